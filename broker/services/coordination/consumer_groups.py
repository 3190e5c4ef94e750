"""Consumer groups as a whole: members are the coordinators', offsets the partitions'; a group may have one alone."""

from collections.abc import Awaitable, Generator, Mapping
from heapq import merge
from typing import Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.services.coordination.callers import GroupsCaller, GroupsNode
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.coordinators import DescribedGroup, ListedGroup
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import Outcomes, TopicPartition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import GroupImage

_SORTED_AT_ONCE: Final = 1_000
"""Names of groups that are sorted in one step."""
_Listing = Generator[None, None, list[ListedGroup]]
"""The groups found, once it has ended; others may have their turns between its steps (`Turns.finish`)."""


def list_groups(node: GroupsNode) -> _Listing:
    """Find every group, by name; one that only has, or had, offsets is empty and of no type.

    KafkaError NOT_COORDINATOR.
    """
    found: dict[str, ListedGroup] = {}
    for group in node.cell.current.coordinators.groups():
        found[group.group_id] = group
        yield
    for group_id in node.cell.current.topics.offsets.groups():
        if group_id not in found:
            found[group_id] = ListedGroup(group_id, "", GroupState.EMPTY, members=0)
        yield
    return (yield from _by_name(found))


def _by_name(found: Mapping[str, ListedGroup]) -> _Listing:
    names, runs = list(found), list[list[str]]()
    for start in range(0, len(names), _SORTED_AT_ONCE):
        runs.append(sorted(names[start : start + _SORTED_AT_ONCE]))
        yield
    ordered: list[ListedGroup] = []
    for name in merge(*runs):
        ordered.append(found[name])
        yield
    return ordered


def visible_groups(caller: GroupsCaller) -> _Listing:
    """Find the groups that the caller may describe, by name. KafkaError NOT_COORDINATOR."""
    groups = yield from list_groups(caller.node)
    if is_allowed(caller, AclOperation.DESCRIBE):
        return groups
    visible: list[ListedGroup] = []
    for group in groups:
        if is_allowed(caller, AclOperation.DESCRIBE, AclResource(AclKind.GROUP, group.group_id)):
            visible.append(group)
        yield
    return visible


def describe_group(node: GroupsNode, group_id: str) -> DescribedGroup | None:
    """Describe a group; None if it never had a member, and has no offsets nor had any lately. KafkaError
    NOT_COORDINATOR."""
    found = node.cell.current.coordinators.describe(group_id)
    if found is None and node.cell.current.topics.offsets.knows(group_id):
        return DescribedGroup(GroupState.EMPTY, GroupImage(group_id, 0, None, None, None, ()))
    return found


async def delete_group(node: GroupsNode, group_id: str) -> None:
    """Forget a group and its offsets; what a failure leaves over can be deleted again.

    KafkaError NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and those of the store; CommitRefused, ShardLost.
    """
    offsets = node.cell.current.topics.offsets
    await offsets.settled(group_id)
    changes = await offsets.plan_deletion(group_id)
    forgotten: Awaitable[None] | None = None
    try:
        if node.cell.current.coordinators.state(group_id) is not None or not offsets.knows(group_id):
            forgotten = node.cell.current.coordinators.delete(group_id)
    except KafkaError:
        changes.give_up()
        raise
    # Enqueued before anybody else has a turn: whoever joins and commits from now on is another group.
    deleted = offsets.enqueue(changes)
    if forgotten is not None:
        await forgotten
    await node.cell.current.transactional_producers.drop_offsets(group_id)
    for refusal in (await deleted).values():
        if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise refusal
    offsets.forget_group(group_id)


def set_offsets(
    node: GroupsNode, group_id: str, offsets: Mapping[TopicPartition, ConsumerOffset | None]
) -> Awaitable[Outcomes]:
    """Commit offsets for a group without members, in one commit, enqueued in this call. KafkaError NON_EMPTY_GROUP."""
    if node.cell.current.coordinators.state(group_id) not in (None, GroupState.EMPTY):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members, which commit for themselves")
    return node.cell.current.topics.offsets.commit(group_id, offsets)
