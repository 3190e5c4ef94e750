"""Configs of consumer groups (KIP-848, KIP-932, KIP-1071) and of client metrics subscriptions (KIP-714), by Kafka's
names.

They are stored and described. Those of groups of the consumer protocol have an effect, within the bounds of the node
(`group_times.py`); the others have none, since such groups are not served.
"""

from dataclasses import dataclass

from pqbroker.conf.declare import Kind, setting, without_effect

_OF_SHARE_GROUPS = "Share groups are not served."
_OF_STREAMS = "Groups of the streams protocol are not served."
_NO_TELEMETRY = "Clients push no metrics to this broker."


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Configs of one consumer group."""

    consumer_assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms", Kind.INT, 1000,
        "Time between two assignments of the group at least; in the bounds group.consumer.min.assignment.interval.ms "
        "and group.consumer.max.assignment.interval.ms of the node.", low=0,
    )  # fmt: skip
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms", Kind.INT, 5000,
        "Time between heartbeats that members are given; in the bounds group.consumer.min.heartbeat.interval.ms and "
        "group.consumer.max.heartbeat.interval.ms of the node.", low=1,
    )  # fmt: skip
    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms", Kind.INT, 45_000,
        "Time without a heartbeat after which a member is removed; in the bounds group.consumer.min.session.timeout.ms "
        "and group.consumer.max.session.timeout.ms of the node.", low=1,
    )  # fmt: skip
    share_assignment_interval_ms: int = without_effect(
        "share.assignment.interval.ms", Kind.INT, 1000, _OF_SHARE_GROUPS, low=0
    )
    share_auto_offset_reset: str = without_effect(
        "share.auto.offset.reset", Kind.STRING, "latest", _OF_SHARE_GROUPS,
        pattern=r"latest|earliest|by_duration:P[0-9DTHMS.]+",
    )  # fmt: skip
    share_delivery_count_limit: int = without_effect(
        "share.delivery.count.limit", Kind.INT, 5, _OF_SHARE_GROUPS, low=2, high=10
    )
    share_heartbeat_interval_ms: int = without_effect(
        "share.heartbeat.interval.ms", Kind.INT, 5000, _OF_SHARE_GROUPS, low=5000, high=15_000
    )
    share_isolation_level: str = without_effect(
        "share.isolation.level", Kind.STRING, "read_uncommitted", _OF_SHARE_GROUPS,
        choices=("read_committed", "read_uncommitted"),
    )  # fmt: skip
    share_partition_max_record_locks: int = without_effect(
        "share.partition.max.record.locks", Kind.INT, 2000, _OF_SHARE_GROUPS, low=100, high=4000
    )
    share_record_lock_duration_ms: int = without_effect(
        "share.record.lock.duration.ms", Kind.INT, 30_000, _OF_SHARE_GROUPS, low=15_000, high=60_000
    )
    share_renew_acknowledge_enable: bool = without_effect(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, True, _OF_SHARE_GROUPS
    )
    share_session_timeout_ms: int = without_effect(
        "share.session.timeout.ms", Kind.INT, 45_000, _OF_SHARE_GROUPS, low=45_000, high=60_000
    )
    streams_assignment_interval_ms: int = without_effect(
        "streams.assignment.interval.ms", Kind.INT, 1000, _OF_STREAMS, low=0
    )
    streams_heartbeat_interval_ms: int = without_effect(
        "streams.heartbeat.interval.ms", Kind.INT, 5000, _OF_STREAMS, low=5000, high=15_000
    )
    streams_initial_rebalance_delay_ms: int = without_effect(
        "streams.initial.rebalance.delay.ms", Kind.INT, 3000, _OF_STREAMS, low=0
    )
    streams_num_standby_replicas: int = without_effect(
        "streams.num.standby.replicas", Kind.INT, 0, _OF_STREAMS, low=0, high=2
    )
    streams_session_timeout_ms: int = without_effect(
        "streams.session.timeout.ms", Kind.INT, 45_000, _OF_STREAMS, low=45_000, high=60_000
    )


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """Configs of one subscription to the metrics of clients."""

    interval_ms: int = without_effect("interval.ms", Kind.INT, 300_000, _NO_TELEMETRY, low=100, high=3_600_000)
    match: tuple[str, ...] = without_effect(
        "match", Kind.LIST, (), _NO_TELEMETRY,
        pattern=r"(client_(instance_id|id|software_name|software_version|source_address|source_port))=.+",
    )  # fmt: skip
    metrics: tuple[str, ...] = without_effect("metrics", Kind.LIST, (), _NO_TELEMETRY)
