"""Settings of consumer groups: times, and how large a group, its members and offsets may be."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20
_INT_MAX = (1 << 31) - 1

GROUP_INITIAL_REBALANCE_DELAY_MS = setting(
    "group.initial.rebalance.delay.ms", Kind.INT, 3000,
    "Time that the first rebalance of an empty group waits for more members.", low=0,
)  # fmt: skip
GROUP_MIN_SESSION_TIMEOUT_MS = setting(
    "group.min.session.timeout.ms", Kind.INT, 6000, "Shortest session timeout of a member.", low=0
)
GROUP_MAX_SESSION_TIMEOUT_MS = setting(
    "group.max.session.timeout.ms", Kind.INT, 1_800_000, "Longest session timeout of a member.", low=0
)
GROUP_MAX_SIZE = setting(
    "group.max.size", Kind.INT, _INT_MAX, "Members of a group at most.", low=1
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = setting(
    "group.consumer.session.timeout.ms", Kind.INT, 45_000,
    "Time without a heartbeat after which a member of a group of the consumer protocol (KIP-848) is removed. A group "
    "may have its own, consumer.session.timeout.ms.", low=1,
)  # fmt: skip
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = setting(
    "group.consumer.min.session.timeout.ms", Kind.INT, 45_000,
    "Shortest consumer.session.timeout.ms that a group may have.", low=1,
)  # fmt: skip
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = setting(
    "group.consumer.max.session.timeout.ms", Kind.INT, 60_000,
    "Longest consumer.session.timeout.ms that a group may have.", low=1,
)  # fmt: skip
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.heartbeat.interval.ms", Kind.INT, 5000,
    "Time between heartbeats that members of groups of the consumer protocol are given. A group may have its own, "
    "consumer.heartbeat.interval.ms.", low=1,
)  # fmt: skip
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.min.heartbeat.interval.ms", Kind.INT, 5000,
    "Shortest consumer.heartbeat.interval.ms that a group may have.", low=1,
)  # fmt: skip
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000,
    "Longest consumer.heartbeat.interval.ms that a group may have.", low=1,
)  # fmt: skip
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.assignment.interval.ms", Kind.INT, 1000,
    "Time between two assignments of a group of the consumer protocol at least. A group may have its own, "
    "consumer.assignment.interval.ms.", low=0,
)  # fmt: skip
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.min.assignment.interval.ms", Kind.INT, 0,
    "Shortest consumer.assignment.interval.ms that a group may have.", low=0,
)  # fmt: skip
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.max.assignment.interval.ms", Kind.INT, 15_000,
    "Longest consumer.assignment.interval.ms that a group may have.", low=0,
)  # fmt: skip
GROUP_CONSUMER_ASSIGNORS = setting(
    "group.consumer.assignors", Kind.LIST, ("uniform", "range"),
    "Assignors that members of groups of the consumer protocol can ask for; the first is taken where none does.",
    choices=("uniform", "range"),
)  # fmt: skip
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = setting(
    "group.consumer.regex.refresh.interval.ms", Kind.INT, 600_000,
    "Time after which the regular expressions of a group of the consumer protocol are resolved to topics again, since "
    "permissions may have changed; topics that come and go are noticed within ten seconds.", low=10_000,
)  # fmt: skip
GROUP_EXPRESSION_CHARACTERS_MAX = setting(
    "pqbroker.group.expression.characters.max", Kind.INT, 4096,
    "Characters of a regular expression by which a member of a group subscribes at most; above: "
    "INVALID_REGULAR_EXPRESSION.", low=1, high=65_536,
)  # fmt: skip
GROUP_CONSUMER_MAX_SIZE = setting(
    "group.consumer.max.size", Kind.INT, _INT_MAX,
    "Members of a group of the consumer protocol at most; above: GROUP_MAX_SIZE_REACHED.", low=1,
)  # fmt: skip
GROUP_CONSUMER_MIGRATION_POLICY = setting(
    "group.consumer.migration.policy", Kind.STRING, "bidirectional",
    "Groups that move between the classic and the consumer protocol while members read: to the consumer protocol when "
    "a member of it joins (upgrade), back when the last of these is gone (downgrade), both, or none (disabled).",
    choices=("bidirectional", "upgrade", "downgrade", "disabled"),
)  # fmt: skip
GROUP_ID_BYTES_MAX = setting(
    "pqbroker.group.id.bytes.max", Kind.INT, 1024,
    "Bytes of a group id, or a transactional id, at most; above: INVALID_GROUP_ID, INVALID_REQUEST.", low=1, high=4096,
)  # fmt: skip
MEMBER_METADATA_BYTES_MAX = setting(
    "pqbroker.member.metadata.bytes.max", Kind.INT, MIB,
    "Bytes of one member of a group at most: its subscription in every protocol it offers, and its ids; above: "
    "GROUP_MAX_SIZE_REACHED.", low=1024,
)  # fmt: skip
GROUP_METADATA_BYTES_MAX = setting(
    "pqbroker.group.metadata.bytes.max", Kind.INT, 5 * MIB,
    "Bytes of all members of a group at most, as pqbroker.member.metadata.bytes.max counts them, and 640 for each; "
    "above: GROUP_MAX_SIZE_REACHED.", low=1024, high=5 * MIB,
)  # fmt: skip
GROUP_ASSIGNMENT_BYTES_MAX = setting(
    "pqbroker.group.assignment.bytes.max", Kind.INT, 5 * MIB // 2,
    "Bytes of a group's assignments at most; above: UNKNOWN_SERVER_ERROR, as in Kafka.",
    low=1024, high=5 * MIB // 2,
)  # fmt: skip
GROUPS_BYTES_MAX = setting(
    "pqbroker.groups.bytes.max", Kind.LONG, 64 * MIB,
    "Bytes of all groups of the node at most, members and assignments, and 2 KiB for each; above: "
    "GROUP_MAX_SIZE_REACHED. Stored groups are always served.", low=1024,
)  # fmt: skip
OFFSET_METADATA_MAX_BYTES = setting(
    "offset.metadata.max.bytes", Kind.INT, 4096,
    "Characters of the text that a consumer commits with an offset at most.", low=0, high=16_000,
)  # fmt: skip
OFFSETS_RETENTION_MINUTES = setting(
    "offsets.retention.minutes", Kind.INT, 10_080,
    "Time that a group and its offsets are kept after its last member has left.", low=1,
)  # fmt: skip
OFFSETS_RETENTION_CHECK_INTERVAL_MS = setting(
    "offsets.retention.check.interval.ms", Kind.LONG, 600_000,
    "Time that a group without members is remembered after its last offset was deleted. Expired offsets are deleted "
    "every `log.retention.check.interval.ms`.", low=1,
)  # fmt: skip
PARTITION_CONSUMERS_MAX = setting(
    "pqbroker.partition.consumers.max", Kind.INT, 10_000,
    "Consumer groups with an offset in one partition at most; the commit of one more is refused.", low=1,
)  # fmt: skip
