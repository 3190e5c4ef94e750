"""Groups that move between the protocols while members read (KIP-848): a classic group becomes one of KIP-848 when a
member of that protocol joins, and a classic one again when the last of these is gone.

    group.consumer.migration.policy    classic to KIP-848    back
    bidirectional                      yes                   yes
    upgrade                            yes                   no
    downgrade                          no                    yes
    disabled                           no, and no classic member may join one of KIP-848

Every member keeps what it reads until it has let go of it: what a classic group assigned is held, and is the target, of
its generation's epoch; and what was the target becomes the assignment of the classic group, which then rebalances.
"""

from collections.abc import Collection, Generator
from enum import StrEnum

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.member import Member
from pqbroker.broker.services.coordination.classic.subscriptions import (
    CONSUMER,
    read_assignment,
    read_subscription,
)
from pqbroker.broker.services.coordination.modern.consumer_bytes import assignment_bytes_of
from pqbroker.broker.services.coordination.modern.group import FIRST_EPOCH, ModernGroup
from pqbroker.broker.services.coordination.modern.member import ModernMember
from pqbroker.broker.services.coordination.modern.messages import KnownTopics
from pqbroker.broker.services.coordination.modern.topics_read import topics_hash
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberImage
from pqbroker.storage.tablets.modern_group_rows import ClassicSide, CurrentAssignment, MemberState, Subscription


class MigrationPolicy(StrEnum):
    """Values of group.consumer.migration.policy."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Return True if classic groups may become groups of KIP-848."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Return True if groups of KIP-848 may become classic ones."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


def check_upgrade(group: Group, policy: MigrationPolicy) -> None:
    """Check that a classic group may become one of KIP-848. KafkaError GROUP_ID_NOT_FOUND."""
    if not policy.upgrades:
        raise _no_upgrade(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER:
        raise _no_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > group.limits.modern_members_max:
        raise _no_upgrade(group, "the group size exceeds the consumer group maximum size.")


def from_classic(group: Group, topics: KnownTopics) -> ModernGroup:
    """Return a classic group as one of KIP-848. KafkaError GROUP_ID_NOT_FOUND for members whose bytes are their own."""
    steps = steps_from_classic(group, topics)
    while True:
        try:
            next(steps)
        except StopIteration as built:
            found: ModernGroup = built.value
            return found


def steps_from_classic(group: Group, topics: KnownTopics) -> Generator[None, None, ModernGroup]:
    """Build what `from_classic` returns, a member with each step. KafkaError GROUP_ID_NOT_FOUND. A change of the group
    meanwhile makes it useless."""
    modern = ModernGroup(group.group_id, group.limits, group.usage.payer)
    # A group whose first rebalance is not over has no generation yet.
    modern.epoch = modern.assignment_epoch = max(group.generation, FIRST_EPOCH)
    try:
        for member in list(group.members.values()):
            modern.add(_migrated(group, member, modern, topics))
            yield
    except (KafkaError, GeneratorExit):
        modern.usage.release()
        raise
    modern.topics_version, modern.topics_hash = topics.version, topics_hash(modern, topics)
    modern.note_group()
    return modern


def _migrated(group: Group, member: Member, modern: ModernGroup, topics: KnownTopics) -> ModernMember:
    protocol = group.protocol or member.protocols[0].name
    said = read_subscription(member.metadata(protocol))
    assigned = read_assignment(protocol, member.assignment) if member.assignment else []
    if said is None or assigned is None:
        raise _no_upgrade(group, "the embedded consumer protocol is malformed, or a custom assignor is in use.")
    held: dict[bytes, dict[int, int]] = {}
    for each in assigned:
        topic = topics.find(each.topic)
        if topic is not None:
            # What a leader of classic groups assigns is its own business: it may name anything, and twice.
            free = (index for index in each.partitions if 0 <= index < topic.partitions.count)
            epochs = {index: modern.epoch for index in free if index not in modern.owners.get(topic.topic_id, {})}
            held.setdefault(topic.topic_id, {}).update(epochs)
    subscription = Subscription(
        member.instance_id, said.rack_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
        frozenset(said.topics), classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )  # fmt: skip
    current = CurrentAssignment(MemberState.STABLE, modern.epoch, modern.epoch, held)
    target = {topic_id: tuple(sorted(epochs)) for topic_id, epochs in held.items()}
    return ModernMember(member.member_id, subscription, current, target)


def becomes_classic(group: ModernGroup, without: Collection[str], policy: MigrationPolicy) -> bool:
    """Return True if a group is a classic one once these members are gone: all others speak that protocol."""
    gone = frozenset(without)
    others = [member for member_id, member in group.members.items() if member_id not in gone]
    return (
        bool(others)
        and policy.downgrades
        and len(others) <= group.limits.members_max
        and all(member.subscription.classic is not None for member in others)
    )


def to_classic(group: ModernGroup, topics: KnownTopics, now_ms: int) -> Group:
    """Return a group of KIP-848 as a stable classic one of the epoch's generation; all its members speak that protocol.
    Its sessions begin now."""
    members = []
    for member in group.members.values():
        said = member.subscription
        assert said.classic is not None
        assignment = assignment_bytes_of(member.target, topics, said.classic.protocols[0].metadata)
        members.append(
            MemberImage(
                member.member_id, said.instance_id, said.client_id, said.client_host, said.classic.session_timeout_ms,
                said.rebalance_timeout_ms, said.classic.protocols, assignment,
            )
        )  # fmt: skip
    image = GroupImage(group.group_id, group.epoch, CONSUMER, None, members[0].member_id, tuple(members))
    classic = Group.load(image, group.limits, now_ms)
    classic.protocol = classic.offers.choose(classic.members.values())
    return classic


def _no_upgrade(group: Group, reason: str) -> KafkaError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
