"""Consumer groups of KIP-848: members that join, share, leave and are fenced; offsets in their epochs; descriptions."""

from typing import Any

from pqbroker.broker.kafka.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from pqbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.kafka_comparison.rendering import UNKNOWN_ID
from tests.kafka_comparison.scripts.groups import (
    Member,
    committing,
    deleting,
    fetching,
    joined,
    joining,
    syncing,
)
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side

Beat = ConsumerGroupHeartbeatRequest
MINUTE_MS = 60_000


def beating(group: str, member_id: str, epoch: int, **fields: Any) -> Beat:
    """Return a heartbeat that says nothing but what is given."""
    return Beat(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def entering(group: str, member_id: str, *topics: str, **fields: Any) -> Beat:
    """Return a heartbeat with which a member joins."""
    wanted: dict[str, Any] = {"subscribed_topic_names": list(topics or (SHARED,)), "topic_partitions": []}
    return beating(group, member_id, 0, **(wanted | {"rebalance_timeout_ms": MINUTE_MS} | fields))


def entered(side: Side, group: str, member_id: str, *topics: str, **fields: Any) -> int:
    """Join and return the epoch."""
    epoch: int = side.ask(entering(group, member_id, *topics, **fields)).member_epoch
    return epoch


def owning(side: Side, *partitions: int) -> list[TopicPartitions]:
    """Return partitions of the shared topic as a member reports them."""
    return [TopicPartitions(topic_id=side.topic_id(SHARED), partitions=list(partitions))]


def assigned(answer: Any) -> list[int]:
    """Return the partitions of an answer; none if it has no assignment."""
    topics = answer.assignment.topic_partitions if answer.assignment else []
    return [index for each in topics for index in each.partitions]


@varied(consumer_group_heartbeat.API, fixed=("subscribed_topic_regex",))
def a_member_that_joins(side: Side) -> Beat:
    return entering(side.group(), "m", instance_id=None, rack_id=None, server_assignor=None)


@varied(consumer_group_heartbeat.API, fixed=("subscribed_topic_regex",))
def a_member_that_lives(side: Side) -> Beat:
    group = side.group()
    epoch = entered(side, group, "m")
    return beating(group, "m", epoch, topic_partitions=owning(side, 0, 1), subscribed_topic_names=[SHARED])


@script(consumer_group_heartbeat.API)
def a_member_joins_lives_and_leaves(side: Side) -> None:
    group = side.group()
    side.compare(entering(group, "m"), "joins")
    side.compare(beating(group, "m", 2), "lives")
    side.compare(beating(group, "m", 2, topic_partitions=owning(side, 0, 1)), "owns all")
    side.compare(entering(group, "m"), "joins again")
    side.compare(beating(group, "m", 2, subscribed_topic_names=[]), "reads nothing")
    side.compare(beating(group, "m", 3, topic_partitions=[]), "has let go")
    side.compare(beating(group, "m", 4, topic_partitions=[]), "of a later epoch")
    side.compare(beating(group, "n", 2), "another")
    side.compare(beating(group, "m", -1), "leaves")
    side.compare(beating(group, "m", -1), "leaves again")
    side.compare(beating(group, "m", 3), "lives after all")
    side.compare(entering(group, "m"), "comes back")


@script(consumer_group_heartbeat.API)
def unknown_modern_groups(side: Side) -> None:
    group = side.group()
    for label, epoch in {"lives": 1, "leaves": -1, "leaves for a while": -2, "leaves oddly": -3}.items():
        side.compare(beating(group, "m", epoch), label)
        side.compare(beating(group, "m", epoch, instance_id="i"), f"{label}, static")
    classic = joined(side)
    side.compare(beating(classic.group, "m", 1), "classic")
    side.compare(beating(classic.group, "m", -1), "leaves a classic one")


@script(consumer_group_heartbeat.API)
def two_members_share(side: Side) -> None:
    group = side.group()
    side.compare(entering(group, "a"), "a joins")
    side.compare(entering(group, "b"), "b joins")
    side.compare(beating(group, "b", 3), "b waits")
    first = side.ask(beating(group, "a", 2, topic_partitions=owning(side, 0, 1)))
    kept = assigned(first)
    side.keep(f"{len(kept)} kept in epoch {first.member_epoch}", "a is to let go")
    side.compare(beating(group, "a", 2, topic_partitions=owning(side, 0, 1)), "a has not")
    side.compare(beating(group, "a", 2), "a does not say")
    side.compare(beating(group, "a", 2, topic_partitions=owning(side, *kept)), "a has")
    side.compare(beating(group, "a", 2, topic_partitions=owning(side, *kept)), "a has not heard")
    side.compare(beating(group, "a", 2, topic_partitions=owning(side, 0, 1)), "a has too many")
    given = side.ask(beating(group, "b", 3))
    side.keep(f"{sorted(kept + assigned(given))} in epoch {given.member_epoch}", "both")


@script(consumer_group_heartbeat.API)
def static_members(side: Side) -> None:
    group = side.group()
    side.compare(entering(group, "a", instance_id="i"), "joins")
    side.compare(entering(group, "a", instance_id="i"), "joins again")
    side.compare(entering(group, "b", instance_id="i"), "another of its instance")
    side.compare(beating(group, "b", 2, instance_id="i"), "another lives")
    side.compare(beating(group, "a", 2), "without its instance")
    side.compare(beating(group, "a", 2, instance_id="j"), "of an unknown instance")
    side.compare(beating(group, "b", -2, instance_id="i"), "another leaves for a while")
    side.compare(beating(group, "a", -2, instance_id="i"), "leaves for a while")
    side.compare(beating(group, "a", 2, instance_id="i"), "lives though it left")
    side.compare(entering(group, "b", instance_id="i"), "another comes in its place")
    side.compare(beating(group, "a", 2, instance_id="i"), "is fenced")
    side.compare(beating(group, "a", -1, instance_id="i"), "leaves though it is fenced")
    side.compare(beating(group, "b", -1, instance_id="i"), "leaves for good")
    side.compare(beating(group, "b", -1, instance_id="i"), "leaves again")


@script(consumer_group_heartbeat.API)
def a_member_takes_an_instance(side: Side) -> None:
    group = side.group()
    side.compare(entering(group, "a"), "joins")
    side.compare(entering(group, "a", instance_id="i"), "takes one")
    side.compare(entering(group, "a", instance_id="j"), "takes another")
    side.compare(entering(group, "b", instance_id="i"), "takes the first")
    side.compare(ConsumerGroupHeartbeatRequest(group_id=group, member_id="a", member_epoch=-1), "leaves")


@script(consumer_group_heartbeat.API)
def what_makes_no_sense(side: Side) -> None:
    group = side.group()
    wrong: dict[str, dict[str, Any]] = {
        "no timeout": {"rebalance_timeout_ms": -1}, "no topics": {"subscribed_topic_names": None},
        "nothing owned": {"topic_partitions": None}, "something owned": {"topic_partitions": owning(side, 0)},
        "unknown assignor": {"server_assignor": "mine"}, "blank instance": {"instance_id": " "},
        "blank rack": {"rack_id": " "}, "blank group": {"group_id": "  "},
        "no such topic": {"subscribed_topic_names": ["not-there"]}, "a bad name": {"subscribed_topic_names": ["a b"]},
        "twice": {"subscribed_topic_names": [SHARED, SHARED]}, "timeout 0": {"rebalance_timeout_ms": 0},
    }  # fmt: skip
    for label, fields in wrong.items():
        said = {"topic_partitions": [], "subscribed_topic_names": [SHARED], "rebalance_timeout_ms": 1000, **fields}
        side.compare(Beat(**{"group_id": group, "member_id": "m", "member_epoch": 0, **said}), label)
    entered(side, group, "m")
    unknown = [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0, -1, 1 << 30])]
    side.compare(beating(group, "m", 2, topic_partitions=unknown), "owns what is not there")


@script(consumer_group_heartbeat.API)
def topics_come_and_go(side: Side) -> None:
    group, name = side.group(), side.name
    side.compare(entering(group, "m", name), "reads what is not there")
    side.topic(partitions=2)
    side.settle()
    side.topic_id(name)
    side.compare(beating(group, "m", 2, topic_partitions=[]), "the topic is made")
    side.compare(beating(group, "m", 3, topic_partitions=[]), "again")


@script(consumer_group_describe.API)
def groups_described(side: Side) -> None:
    group = side.group()
    entered(side, group, "m", rack_id="r", server_assignor="range", instance_id="i")
    for names in ([group], [group, group], ["nobody"], [""], [], [f"{group}-x", group]):
        for operations in (False, True):
            asked = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=operations)
            side.compare(asked, f"{names and names[0][-3:]} {operations}")
    side.ask(beating(group, "m", -2, instance_id="i"))
    side.compare(ConsumerGroupDescribeRequest(group_ids=[group]), "away")
    side.ask(entering(group, "n", instance_id="j"))
    side.ask(beating(group, "m", -1, instance_id="i"))
    side.compare(ConsumerGroupDescribeRequest(group_ids=[group]), "one has left")
    side.ask(beating(group, "n", -1, instance_id="j"))
    side.compare(ConsumerGroupDescribeRequest(group_ids=[group]), "empty")


@script(consumer_group_describe.API)
def a_classic_group(side: Side) -> None:
    side.compare(ConsumerGroupDescribeRequest(group_ids=[joined(side).group]))


@script(describe_groups.API)
def a_modern_group(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.compare(DescribeGroupsRequest(groups=[group]))


@script(list_groups.API, since=5)
def modern_groups_listed(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    for types in ([], ["consumer"], ["CONSUMER"], ["classic"], ["classic", "consumer"], ["share"], ["?"]):
        for states in ([], ["stable"], ["Empty"], ["assigning"]):
            side.compare(ListGroupsRequest(types_filter=types, states_filter=states), f"{types} {states}")


@script(delete_groups.API)
def a_modern_group_deleted(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.compare(DeleteGroupsRequest(groups_names=[group]), "with a member")
    side.ask(beating(group, "m", -1))
    side.compare(DeleteGroupsRequest(groups_names=[group]), "empty")
    side.compare(DeleteGroupsRequest(groups_names=[group]), "again")


@script(offset_commit.API)
def commits_of_members(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    for member_id, epoch in (("m", 2), ("m", 1), ("m", 3), ("m", -1), ("n", 2), ("", -1), ("", 2)):
        asked = committing(side, group, side.version, generation_id_or_member_epoch=epoch, member_id=member_id)
        side.compare(asked, f"{member_id} {epoch}")
    entered(side, group, "m", SHARED, "other")
    for epoch in (2, 3, 1):
        asked = committing(side, group, side.version, generation_id_or_member_epoch=epoch, member_id="m")
        side.compare(asked, f"epoch {epoch}")
    places = ((SHARED, 0), (SHARED, 7))
    asked = committing(side, group, side.version, places, generation_id_or_member_epoch=2, member_id="m")
    side.compare(asked, "beside one that it does not have")
    side.ask(beating(group, "m", -1))
    for member_id, epoch in (("", -1), ("m", 3)):
        asked = committing(side, group, side.version, generation_id_or_member_epoch=epoch, member_id=member_id)
        side.compare(asked, f"{member_id} {epoch}, nobody left")


@script(offset_fetch.API, since=8)
def offsets_of_members(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.ask(committing(side, group, 9, generation_id_or_member_epoch=2, member_id="m"), 9)
    for member_id, epoch in ((None, -1), ("m", 2), ("m", 1), ("m", 3), ("m", -1), ("n", 2), ("", -1), (None, 2)):
        for topic in (SHARED, None):
            asked: OffsetFetchRequest = fetching(side, group, topic, member_id=member_id, member_epoch=epoch)
            side.compare(asked, f"{member_id} {epoch} {topic}")


@script(offset_delete.API)
def offsets_of_a_modern_group_deleted(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.compare(deleting(group), "read")
    side.ask(beating(group, "m", 2, subscribed_topic_names=["other"]))
    side.compare(deleting(group), "not read any more")


@script(join_group.API, since=4)
def a_classic_member_of_an_empty_modern_group(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.ask(beating(group, "m", -1))
    side.compare(joining(group))


@script(consumer_group_heartbeat.API)
def a_member_of_an_empty_classic_group(side: Side) -> None:
    group = side.group()
    side.ask(committing(side, group, 9), 9)
    side.compare(entering(group, "m"), "one of offsets")


@script(heartbeat.API)
def classic_heartbeats_of_a_modern_member(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.compare(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), "member")
    side.compare(HeartbeatRequest(group_id=group, generation_id=1, member_id="n"), "nobody")


@script(sync_group.API)
def a_classic_sync_of_a_modern_member(side: Side) -> None:
    group = side.group()
    entered(side, group, "m")
    side.compare(syncing(Member(group, "m", 1)))


# Groups that move between the protocols.


def mixed(side: Side) -> tuple[str, Member]:
    """Make a group of a classic member, which has its generation, and one of KIP-848, `m`."""
    classic = joined(side)
    side.ask(entering(classic.group, "m"))
    return classic.group, classic


@script(consumer_group_heartbeat.API)
def a_classic_group_that_moves(side: Side) -> None:
    classic = joined(side)
    side.compare(entering(classic.group, "m"), "joins")
    side.compare(beating(classic.group, "m", 2), "lives")
    side.compare(beating(classic.group, "m", -1), "leaves")
    side.compare(beating(classic.group, "m", 2), "is gone")


@script(heartbeat.API)
def classic_heartbeats_in_a_mixed_group(side: Side) -> None:
    group, classic = mixed(side)
    for label, generation in {"known": classic.generation, "later": classic.generation + 1, "none": -1}.items():
        asked = HeartbeatRequest(group_id=group, generation_id=generation, member_id=classic.member_id)
        side.compare(asked, label)
    side.ask(beating(group, "m", -1))
    asked = HeartbeatRequest(group_id=group, generation_id=classic.generation, member_id=classic.member_id)
    side.compare(asked, "moved back")


@script(join_group.API, since=1)
def joins_of_a_mixed_group(side: Side) -> None:
    group, classic = mixed(side)
    side.compare(joining(group, classic.member_id), "again")
    side.compare(joining(group, protocol_type="connect"), "of another type")
    side.compare(joining(group, protocols=[]), "without a protocol")
    side.compare(joining(group, session_timeout_ms=1), "a short session")


@script(sync_group.API)
def syncs_of_a_mixed_group(side: Side) -> None:
    group, classic = mixed(side)
    side.compare(syncing(classic), "before it joins")
    answer = side.ask(joining(group, classic.member_id))
    member = Member(group, classic.member_id, answer.generation_id)
    side.compare(syncing(member, protocol_name="other"), "of another protocol")
    side.compare(syncing(member, protocol_type="connect"), "of another type")
    side.compare(syncing(Member(group, classic.member_id, 99)), "of another generation")
    side.compare(syncing(Member(group, "nobody", answer.generation_id)), "of nobody")
    side.compare(syncing(member), "of the member")


@script(leave_group.API, since=3)
def leaves_of_a_mixed_group(side: Side) -> None:
    group, classic = mixed(side)
    asked = [MemberIdentity(member_id=name) for name in (classic.member_id, "nobody", "m")]
    side.compare(LeaveGroupRequest(group_id=group, members=asked[1:2]), "nobody")
    side.compare(LeaveGroupRequest(group_id=group, members=asked), "all")


@script(offset_commit.API)
def commits_in_a_mixed_group(side: Side) -> None:
    group, classic = mixed(side)
    for epoch in (classic.generation, classic.generation + 1, -1, 0):
        asked = committing(
            side, group, side.version, generation_id_or_member_epoch=epoch, member_id=classic.member_id
        )  # fmt: skip
        side.compare(asked, f"classic {epoch}")


@script(consumer_group_describe.API)
def a_mixed_group(side: Side) -> None:
    group, _ = mixed(side)
    found = side.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]
    kinds = sorted((each.member_type, each.member_epoch) for each in found.members)
    side.keep(f"{found.group_state} {found.group_epoch} {kinds}", "mixed")
