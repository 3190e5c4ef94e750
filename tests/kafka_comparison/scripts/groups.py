"""Consumer groups: finding them, members, offsets, and what is left when the last offset goes."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pqbroker.broker.kafka.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kafka_comparison.rendering import UNKNOWN_ID
from tests.kafka_comparison.scripts.cluster import LEFT_OUT
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06shared\xff\xff\xff\xff\x00\x00\x00\x00"
"""What a consumer of the topic `shared` says of itself."""
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x06shared\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
WRONG_GENERATIONS = (-1, 0, 1, 2, 7)


class Member(NamedTuple):
    """A member of a group that this case made."""

    group: str
    member_id: str
    generation: int


def joining(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    """Return a consumer's request to join."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    wanted: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    wanted |= {"protocol_type": "consumer", "protocols": protocols} | fields
    return JoinGroupRequest(group_id=group, member_id=member_id, **wanted)


def joined(side: Side, *, sync: bool = True, **fields: Any) -> Member:
    """Make a group with one member, which has its assignment with `sync`."""
    group = side.group()
    return member_of(side, group, sync=sync, **fields)


def member_of(side: Side, group: str, *, sync: bool = True, **fields: Any) -> Member:
    """Join a group that has no member."""
    first = side.ask(joining(group, **fields))
    answer = side.ask(joining(group, first.member_id, **fields)) if first.error_code else first
    if sync:
        side.ask(syncing(Member(group, answer.member_id, answer.generation_id)))
    return Member(group, answer.member_id, answer.generation_id)


def syncing(member: Member, **fields: Any) -> SyncGroupRequest:
    """Return a leader's request with its own assignment."""
    assignments = [SyncGroupRequestAssignment(member_id=member.member_id, assignment=ASSIGNMENT)]
    wanted = {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments} | fields
    return SyncGroupRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.member_id, **wanted
    )  # fmt: skip


def committing(side: Side, group: str, version: int, places: Sequence[tuple[str, int]] = ((SHARED, 0),), **fields: Any
               ) -> OffsetCommitRequest:  # fmt: skip
    """Return a commit of offset 1 in each place, in the form of a version."""
    topics = []
    for topic, partition in places:
        asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="m")
        named = {"topic_id": side.topic_id(topic)} if version >= 10 else {"name": topic}
        topics.append(OffsetCommitRequestTopic(partitions=[asked], **named))
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def commit(side: Side, group: str, places: Sequence[tuple[str, int]] = ((SHARED, 0),)) -> None:
    """Commit as a client in no group."""
    side.ask(committing(side, group, 9, places), 9)


def fetching(side: Side, group: str, topic: str | None = SHARED, **fields: Any) -> OffsetFetchRequest:
    """Return a request for a group's offsets, in the form of the case's version; of all topics with None."""
    if side.version < 8:
        topics = None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
        return OffsetFetchRequest(group_id=group, topics=topics)
    asked = None
    if topic is not None:
        named = {"topic_id": side.topic_id(topic)} if side.version >= 10 else {"name": topic}
        asked = [OffsetFetchRequestTopic(partition_indexes=[0, 1], **named)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked, **fields)])


# Finding and listing.


@varied(find_coordinator.API)
def a_group(side: Side) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=side.group(), coordinator_keys=[side.group()])


@varied(list_groups.API)
def groups_in_states(side: Side) -> ListGroupsRequest:
    commit(side, side.group())
    joined_group = joined(side)
    assert joined_group.member_id
    return ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"])


@script(list_groups.API)
def groups(side: Side) -> None:
    commit(side, side.group("-offsets"))
    member = joined(side, sync=False)
    side.compare(ListGroupsRequest(), "one that syncs")
    side.ask(syncing(member))
    side.compare(ListGroupsRequest(), "stable")
    for states in (["Stable", "Empty"], ["stable"], ["Nonsense"], ["Dead"]):
        side.compare(ListGroupsRequest(states_filter=states), " ".join(states))
    for kinds in (["classic"], ["Classic"], ["consumer"], ["share"], ["nonsense"]):
        side.compare(ListGroupsRequest(types_filter=kinds), " ".join(kinds))


@script(describe_groups.API)
def states_of_groups(side: Side) -> None:
    offsets = side.group("-offsets")
    commit(side, offsets)
    member = joined(side, sync=False)
    for operations in (False, True):
        names = [member.group, offsets, "nobody", "", member.group]
        side.compare(DescribeGroupsRequest(groups=names, include_authorized_operations=operations), f"{operations}")
    side.ask(syncing(member))
    side.compare(DescribeGroupsRequest(groups=[member.group]), "stable")
    side.ask(leaving(member), 0)
    side.compare(DescribeGroupsRequest(groups=[member.group]), "left")


@varied(describe_groups.API)
def a_group_to_describe(side: Side) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[joined(side).group])


@varied(delete_groups.API)
def a_group_to_delete(side: Side) -> DeleteGroupsRequest:
    group = side.group()
    commit(side, group)
    return DeleteGroupsRequest(groups_names=[group])


@script(delete_groups.API)
def groups_to_delete(side: Side) -> None:
    member = joined(side)
    side.compare(DeleteGroupsRequest(groups_names=[member.group]), "with a member")
    side.ask(leaving(member), 0)
    side.compare(DeleteGroupsRequest(groups_names=[member.group]), "without")
    side.compare(DeleteGroupsRequest(groups_names=[member.group]), "again")


# Members.


@varied(join_group.API, fixed=("group_id",))
def a_first_member(side: Side) -> JoinGroupRequest:
    return joining(side.group())


@script(join_group.API)
def members(side: Side) -> None:
    group = side.group()
    first = side.compare(joining(group), "first")
    member_id = getattr(first, "member_id", "")
    side.compare(joining(group, member_id), "with its id")
    side.compare(joining(group, "nobody"), "an unknown id")
    side.compare(joining(group, member_id, protocol_type="connect"), "another protocol type")
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    side.compare(joining(group, "", protocols=other, protocol_type="other"), "another protocol")


@script(join_group.API)
def group_ids(side: Side) -> None:
    side.group()
    for label, group in {"empty": "", "odd": "a b/é", "long": "n" * 250}.items():
        side.compare(joining(group), label)


@script(join_group.API, since=5)
def static_members(side: Side) -> None:
    group = side.group()
    first = side.compare(joining(group, group_instance_id="i"), "first")
    side.compare(joining(group, group_instance_id="i"), "in its place")
    member_id = getattr(first, "member_id", "")
    side.compare(joining(group, member_id, group_instance_id="i"), "the one before")
    side.compare(joining(group, member_id, group_instance_id="j"), "another instance")
    for label, name in {"empty": "", "odd": "a b", "long": "n" * 250, "dots": ".."}.items():
        side.compare(joining(side.group(f"-{label}"), group_instance_id=name), label)


@varied(sync_group.API)
def a_leader(side: Side) -> SyncGroupRequest:
    return syncing(joined(side, sync=False))


@script(sync_group.API)
def syncs(side: Side) -> None:
    member = joined(side, sync=False)
    for generation in WRONG_GENERATIONS[2:]:
        asked = syncing(member._replace(generation=generation))
        if generation != member.generation:
            side.compare(asked, f"{generation}")
    side.compare(syncing(member._replace(group=f"{member.group}-no")), "an unknown group")
    side.compare(syncing(member), "right")
    side.compare(syncing(member), "again")
    side.compare(syncing(member, assignments=[]), "again, without assignments")


@varied(heartbeat.API)
def a_beat(side: Side) -> HeartbeatRequest:
    member = joined(side)
    return HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)


@script(heartbeat.API)
def beats(side: Side) -> None:
    member = joined(side, sync=False)
    for generation in WRONG_GENERATIONS:
        asked = HeartbeatRequest(group_id=member.group, generation_id=generation, member_id=member.member_id)
        side.compare(asked, f"before the sync, {generation}")
    side.ask(leaving(member), 0)
    side.compare(asked, "after it left")


@script(heartbeat.API, since=3)
def beats_of_static_members(side: Side) -> None:
    member = joined(side, group_instance_id="i")
    for member_id, instance in ((member.member_id, "i"), ("other", "i"), (member.member_id, "j"), ("other", "j")):
        asked = HeartbeatRequest(
            group_id=member.group, generation_id=member.generation, member_id=member_id, group_instance_id=instance
        )
        label = f"{'right' if member_id == member.member_id else 'other'} {instance}"
        side.compare(asked, label)


def leaving(member: Member) -> LeaveGroupRequest:
    """Return a member's request to leave, in every form."""
    return LeaveGroupRequest(
        group_id=member.group, member_id=member.member_id, members=[MemberIdentity(member_id=member.member_id)]
    )


@varied(leave_group.API)
def a_member_that_leaves(side: Side) -> LeaveGroupRequest:
    return leaving(joined(side))


@script(leave_group.API)
def leaves(side: Side) -> None:
    member = joined(side)
    side.compare(leaving(member._replace(member_id="nobody")), "an unknown member")
    side.compare(leaving(member._replace(group=f"{member.group}-no")), "an unknown group")
    side.compare(leaving(member), "right")
    side.compare(leaving(member), "again")


@script(leave_group.API, since=3)
def static_members_that_leave(side: Side) -> None:
    member = joined(side, group_instance_id="i")
    for label, member_id, instance in (
        ("another instance", "", "j"), ("a wrong member", "nobody", "i"), ("by instance", "", "i"), ("again", "", "i"),
    ):  # fmt: skip
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        side.compare(LeaveGroupRequest(group_id=member.group, members=[identity]), label)


# Offsets.


@varied(offset_commit.API)
def an_offset(side: Side) -> OffsetCommitRequest:
    return committing(side, side.group(), side.version)


@script(offset_commit.API)
def commits_without_members(side: Side) -> None:
    group = side.group()
    for generation in WRONG_GENERATIONS:
        for member in ("", "nobody"):
            asked = committing(side, group, side.version, generation_id_or_member_epoch=generation, member_id=member)
            side.compare(asked, f"no group, {generation} {member}")
    commit(side, group)
    for generation in WRONG_GENERATIONS:
        for member in ("", "nobody"):
            asked = committing(side, group, side.version, generation_id_or_member_epoch=generation, member_id=member)
            side.compare(asked, f"an empty group, {generation} {member}")


@script(offset_commit.API)
def commits_of_members(side: Side) -> None:
    member = joined(side, sync=False)
    for state in ("before", "after"):
        for generation in WRONG_GENERATIONS:
            for member_id in (member.member_id, "", "nobody"):
                asked = committing(
                    side, member.group, side.version, generation_id_or_member_epoch=generation, member_id=member_id
                )
                who = "right" if member_id == member.member_id else member_id
                side.compare(asked, f"{state} the sync, {generation} {who}")
        side.ask(syncing(member))
    side.ask(leaving(member), 0)
    for generation in WRONG_GENERATIONS:
        for member_id in (member.member_id, ""):
            asked = committing(
                side, member.group, side.version, generation_id_or_member_epoch=generation, member_id=member_id
            )
            side.compare(asked, f"after it left, {generation} {'right' if member_id else ''}")


@script(offset_commit.API)
def places_to_commit(side: Side) -> None:
    group = side.group()
    side.compare(committing(side, group, side.version, [(SHARED, 0), (SHARED, 7), (SHARED, -1)]), "partitions")
    if side.version < 10:
        side.compare(committing(side, group, side.version, [("nobody", 0), ("a b", 0), ("", 0)]), "topics")
    else:
        unknown = [OffsetCommitRequestTopic(topic_id=UNKNOWN_ID, partitions=[OffsetCommitRequestPartition()])]
        side.compare(OffsetCommitRequest(group_id=group, topics=unknown), "topics")
    long = committing(side, group, side.version)
    for size in (4096, 4097):
        long.topics[0].partitions[0].committed_metadata = "m" * size
        side.compare(long, f"metadata of {size}")


@varied(offset_fetch.API)
def offsets_of_a_group(side: Side) -> OffsetFetchRequest:
    group = side.group()
    commit(side, group)
    return fetching(side, group)


@script(offset_fetch.API)
def offsets_of_groups(side: Side) -> None:
    unknown, group = side.group("-no"), side.group()
    side.compare(fetching(side, unknown), "an unknown group")
    commit(side, group)
    side.compare(fetching(side, group), "one topic")
    if side.version >= 2:
        side.compare(fetching(side, unknown, None), "all topics of an unknown group")
        side.compare(fetching(side, group, None), "all topics")


@script(offset_fetch.API, since=9)
def offsets_of_members(side: Side) -> None:
    member = joined(side)
    commit(side, member.group)
    for member_id in (None, "", member.member_id, "nobody"):
        for epoch in (-1, 0, member.generation, 7):
            who = "right" if member_id == member.member_id else member_id
            side.compare(fetching(side, member.group, member_id=member_id, member_epoch=epoch), f"{who} {epoch}")


@script(offset_fetch.API, since=8)
def offsets_of_several_groups(side: Side) -> None:
    group = side.group()
    commit(side, group)
    asked = fetching(side, group)
    asked.groups += fetching(side, f"{group}-no").groups + fetching(side, group, None).groups
    side.compare(asked)


@varied(offset_delete.API)
def an_offset_to_delete(side: Side) -> OffsetDeleteRequest:
    group = side.group()
    commit(side, group)
    return deleting(group)


def deleting(group: str, topic: str = SHARED, partitions: Sequence[int] = (0,)) -> OffsetDeleteRequest:
    """Return a request to delete a group's offsets of a topic."""
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])


@script(offset_delete.API)
def offsets_to_delete(side: Side) -> None:
    member = joined(side)
    side.compare(deleting(member.group), "a topic that a member reads")
    side.compare(deleting(member.group, "nobody"), "an unknown topic")
    side.ask(leaving(member), 0)
    side.compare(deleting(member.group), "without members")


def without_offsets(side: Side) -> Iterator[tuple[str, str]]:
    """Yield kinds of groups whose last offset went, and their names."""
    deleted = side.group("-deleted")
    commit(side, deleted)
    side.ask(deleting(deleted))
    yield "its offset was deleted", deleted
    member = member_of(side, side.group("-left"))
    side.ask(leaving(member), 0)
    yield "its member left", member.group
    both = member_of(side, side.group("-both"))
    commit(side, both.group)
    side.ask(leaving(both), 0)
    side.ask(deleting(both.group))
    yield "its member left and its offset was deleted", both.group
    topic, gone = side.topic(), side.group("-gone")
    commit(side, gone, [(topic, 0)])
    side.end_of_topic(topic)
    yield "its topic was deleted", gone


@script(list_groups.API)
def groups_without_offsets(side: Side) -> None:
    for _ in without_offsets(side):
        pass
    side.compare(ListGroupsRequest())


@script(describe_groups.API)
def groups_without_offsets_described(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(DescribeGroupsRequest(groups=[group]), label)


@script(offset_fetch.API)
def groups_without_offsets_fetched(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(fetching(side, group), label)


@script(offset_commit.API)
def groups_without_offsets_committed(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(committing(side, group, side.version, generation_id_or_member_epoch=1, member_id="m"), label)


@script(offset_delete.API)
def groups_without_offsets_deleted_from(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(deleting(group), label)


@script(delete_groups.API)
def groups_without_offsets_deleted(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(DeleteGroupsRequest(groups_names=[group]), label)


@script(heartbeat.API)
def groups_without_offsets_beaten(side: Side) -> None:
    for label, group in without_offsets(side):
        side.compare(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), label)


# Groups of other kinds.


@script(LEFT_OUT["ShareGroupHeartbeat"])
def a_member_of_a_share_group(side: Side) -> None:
    for label, epoch in {"joins": 0, "leaves": -1}.items():
        asked = ShareGroupHeartbeatRequest(group_id=side.group(), member_id="m", member_epoch=epoch)
        asked.subscribed_topic_names = [SHARED]
        side.compare(asked, label)
