"""OffsetCommit, OffsetFetch and OffsetDelete over sockets."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from pqbroker.broker.services.coordination.classic.messages import Join, Joined, Sync, Synced
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
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
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.broker.conftest import Node, until
from tests.broker.wire import Client

NOTHING = (-1, -1, "", 0)
HOUR_MS = 3_600_000


def commit_request(
    offsets: Mapping[tuple[str, int], tuple[int, int, str | None]],
    member: tuple[str, int] = ("", -1),
    ids: dict[str, bytes] | None = None,
    **fields: Any,
) -> OffsetCommitRequest:
    """Of offsets, epochs and metadata by topic and partition; `member` is id and generation."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), (offset, epoch, metadata) in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=(ids or {}).get(name, bytes(16))))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id="g",
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        topics=list(topics.values()),
        **fields,
    )


async def commit(
    client: Client, offsets: dict[tuple[str, int], int], version: int = 9, **options: Any
) -> dict[tuple[str, int], int]:
    """Commit plain offsets; error codes by topic and partition."""
    request = commit_request({place: (offset, -1, "") for place, offset in offsets.items()}, **options)
    return codes(await client.ask(request, version))


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def fetch_request(
    version: int, topics: dict[str, list[int]] | None, group_id: str = "g", ids: dict[str, bytes] | None = None
) -> OffsetFetchRequest:
    if version < 8:
        asked = None if topics is None else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]  # fmt: skip
        return OffsetFetchRequest(group_id=group_id, topics=asked)
    listed = None if topics is None else [
        OffsetFetchRequestTopic(name=name, topic_id=(ids or {}).get(name, bytes(16)), partition_indexes=indexes)
        for name, indexes in topics.items()
    ]  # fmt: skip
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=listed)])


async def fetch(
    client: Client, topics: dict[str, list[int]] | None, version: int = 9, **options: Any
) -> dict[tuple[Any, int], tuple[int, int, str, int]]:
    """Offset, epoch, metadata and error by topic and partition."""
    response = await client.ask(fetch_request(version, topics, **options), version)
    (group,) = response.groups if version >= 8 else [response]
    assert group.error_code == 0
    return {
        (topic.name if version < 10 else topic.topic_id, each.partition_index): (
            each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }  # fmt: skip


async def delete(client: Client, *places: tuple[str, int], group_id: str = "g") -> Any:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in places
    ]
    return await client.ask(OffsetDeleteRequest(group_id=group_id, topics=topics))


async def join(node: Node, *topics: str, protocol_type: str = "consumer") -> tuple[str, int]:
    """Make a member that reads the topics; its id and generation."""
    encode: Any = encoder(ConsumerProtocolSubscription, 0)
    data = struct.pack(">h", 0) + b"".join(map(bytes, encode(ConsumerProtocolSubscription(topics=list(topics)))))
    coordinators = node.server.node.cell.current.coordinators
    answers: list[Joined | Synced] = []
    request = Join(
        "", None, protocol_type, (MemberProtocol("range", data),), 30_000, 30_000, "member", requires_known_id=False
    )
    coordinators.join("g", request, answers.append)
    await until(lambda: len(answers) == 1)
    joined = answers[0]
    assert isinstance(joined, Joined)
    assert joined.error == 0
    coordinators.sync("g", Sync(joined.member_id, None, joined.generation, assignments={}), answers.append)
    await until(lambda: len(answers) == 2)
    return joined.member_id, joined.generation


async def until_busy(node: Node) -> None:
    """Wait until a commit of the group is on its way."""
    async with asyncio.timeout(10):
        while True:
            settled = asyncio.ensure_future(node.server.node.cell.current.topics.offsets.settled("g"))
            await asyncio.sleep(0)
            if not settled.done():
                return


@pytest.fixture
async def node(start: Callable[..., Awaitable[Node]]) -> Node:
    """With topics t (3 partitions) and u (1)."""
    started = await start(group_initial_rebalance_delay_ms=0)
    await started.create_topic("t", 3)
    await started.create_topic("u")
    return started


@pytest.mark.parametrize("version", range(2, 10))
async def test_what_is_committed_is_fetched(client: Client, version: int) -> None:
    given = {("t", 0): (5, 7, "here"), ("t", 2): (6, 7, None), ("u", 0): (0, 7, "é" * 4096)}
    assert codes(await client.ask(commit_request(given), version)) == dict.fromkeys(given, 0)
    epoch = 7 if version >= 6 else -1
    expected = {place: (offset, epoch, metadata or "", 0) for place, (offset, _, metadata) in given.items()}
    assert await fetch(client, {"t": [0, 2], "u": [0]}) == expected
    assert await fetch(client, None) == expected


@pytest.mark.parametrize("version", range(1, 10))
async def test_offsets_are_fetched_in_every_version(client: Client, version: int) -> None:
    await client.ask(commit_request({("t", 0): (5, 7, "here")}), 9)
    epoch = 7 if version >= 5 else -1
    assert await fetch(client, {"t": [0, 1]}, version) == {("t", 0): (5, epoch, "here", 0), ("t", 1): NOTHING}
    if version > 1:
        assert await fetch(client, None, version) == {("t", 0): (5, epoch, "here", 0)}


async def test_version_10_names_topics_by_id(node: Node, client: Client) -> None:
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    ids = {"t": topic.record.topic_id, "v": b"\1" * 16}
    response = await client.ask(commit_request({("t", 0): (5, 7, ""), ("v", 0): (5, 7, "")}, ids=ids), 10)
    answers = {asked.topic_id: asked.partitions[0].error_code for asked in response.topics}
    assert answers == {ids["t"]: 0, ids["v"]: ErrorCode.UNKNOWN_TOPIC_ID}
    assert await fetch(client, {"t": [0, 1], "v": [0]}, 10, ids=ids) == {
        (ids["t"], 0): (5, 7, "", 0),
        (ids["t"], 1): NOTHING,
        (ids["v"], 0): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID),
    }
    assert await fetch(client, None, 10) == {(ids["t"], 0): (5, 7, "", 0)}


@pytest.mark.parametrize("version", range(1, 10))
async def test_an_unknown_group_and_an_unknown_topic_have_no_offset_and_no_error(client: Client, version: int) -> None:
    assert await fetch(client, {"t": [0, 9], "v": [0]}, version, group_id="nobody") == {
        ("t", 0): NOTHING, ("t", 9): NOTHING, ("v", 0): NOTHING,
    }  # fmt: skip
    if version > 1:
        assert await fetch(client, None, version, group_id="nobody") == {}


async def test_several_groups_are_fetched_at_once(client: Client) -> None:
    await commit(client, {("t", 0): 5})
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("g", "other")]
    response = await client.ask(OffsetFetchRequest(groups=groups, require_stable=True), 9)
    assert [(group.group_id, len(group.topics)) for group in response.groups] == [("g", 1), ("other", 0)]


async def test_what_cannot_be_stored_is_refused_for_itself(client: Client) -> None:
    given = {("t", 0): (5, -1, ""), ("t", 3): (5, -1, ""), ("v", 0): (5, -1, ""), ("u", 0): (5, -1, "x" * 4097)}
    assert codes(await client.ask(commit_request(given), 9)) == {
        ("t", 0): 0,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("v", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
    assert await fetch(client, None) == {("t", 0): (5, -1, "", 0)}


async def test_a_refusal_of_the_store_is_a_reason_to_try_again(node: Node, client: Client) -> None:
    node.engine.faults.refuse_next()
    refused = dict.fromkeys([("t", 0), ("u", 0)], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await commit(client, {("t", 0): 5, ("u", 0): 5}) == refused
    assert await fetch(client, None) == {}
    assert set((await commit(client, {("t", 0): 5, ("u", 0): 5})).values()) == {0}


async def test_members_commit_in_their_generation_and_nobody_beside_them(node: Node, client: Client) -> None:
    member_id, generation = member = await join(node, "t")
    assert await commit(client, {("t", 0): 5}, member=member) == {("t", 0): 0}
    for stranger, code in (
        (("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (("zombie", generation), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member_id, generation - 1), ErrorCode.ILLEGAL_GENERATION),
    ):
        given = {("t", 0): 6, ("v", 0): 6}
        expected = {("t", 0): code, ("v", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await commit(client, given, member=stranger) == expected
    assert await fetch(client, {"t": [0]}) == {("t", 0): (5, -1, "", 0)}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_commit_with_a_generation_needs_a_member(client: Client, version: int, code: ErrorCode) -> None:
    member = ("zombie", 3)
    assert await commit(client, {("t", 0): 5}, version, member=member) == {("t", 0): code}
    assert await commit(client, {("t", 0): 5}) == {("t", 0): 0}
    assert await commit(client, {("t", 0): 6}, member=member) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}


async def test_nobody_reads_offsets_that_an_earlier_commit_then_changes(node: Node, client: Client) -> None:
    await commit(client, {("t", 0): 5, ("u", 0): 5})
    zombie, owner = await node.connect(), await node.connect()
    node.engine.faults.hold()
    zombie.send(commit_request({("t", 0): (9, -1, ""), ("u", 0): (9, -1, "")}), 9)
    await until_busy(node)
    owner.send(fetch_request(9, {"t": [0], "u": [0]}), 9)
    assert (await client.ask(fetch_request(9, {"t": [0]}, "other"), 9)).groups[0].error_code == 0
    node.engine.faults.release()
    assert set(codes(await zombie.receive()).values()) == {0}
    (group,) = (await owner.receive()).groups
    assert [topic.partitions[0].committed_offset for topic in group.topics] == [9, 9]


async def test_a_deleted_topics_offsets_do_not_come_back_with_its_name(node: Node, client: Client) -> None:
    await commit(client, {("t", 0): 5, ("u", 0): 5})
    await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert await fetch(client, None) == {("u", 0): (5, -1, "", 0)}
    await node.create_topic("t", 3)
    assert await fetch(client, {"t": [0]}) == {("t", 0): NOTHING}


async def test_offsets_are_there_when_the_cell_was_lost_and_opened_again(node: Node, client: Client) -> None:
    await commit(client, {("t", 0): 5})
    openings = node.server.node.metrics.cell_openings
    node.engine.faults.lose_next()
    assert await commit(client, {("t", 0): 6}) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    for group_id in ("g", "without offsets"):
        response = await client.ask(fetch_request(9, None, group_id), 9)
        assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert (await client.ask(fetch_request(7, None), 7)).error_code == ErrorCode.NOT_COORDINATOR
    named = await client.ask(fetch_request(3, {"t": [0]}), 3)  # aiokafka looks at the partitions alone
    assert (named.error_code, codes(named)) == (ErrorCode.NOT_COORDINATOR, {("t", 0): ErrorCode.NOT_COORDINATOR})
    old = await client.ask(fetch_request(1, {"t": [0]}), 1)
    assert old.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    await until(lambda: node.server.node.metrics.cell_openings > openings)
    assert await fetch(client, None) == {("t", 0): (5, -1, "", 0)}


async def test_offsets_expire_when_their_group_has_been_empty_long_enough(node: Node, client: Client) -> None:
    member = await join(node, "t")
    await commit(client, {("t", 0): 5, ("u", 0): 5}, member=member)
    node.clock.now_ms += 8 * 24 * HOUR_MS
    await node.server.node.cell.retain()
    assert set(await fetch(client, None)) == {("t", 0)}


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_old_versions_say_how_long_an_offset_is_kept(node: Node, client: Client, version: int) -> None:
    await commit(client, {("t", 0): 5}, version, retention_time_ms=HOUR_MS)
    await commit(client, {("t", 1): 5}, version, retention_time_ms=(1 << 63) - 1)
    await commit(client, {("t", 2): 5}, version)
    node.clock.now_ms += HOUR_MS - 1
    await node.server.node.cell.retain()
    assert len(await fetch(client, None)) == 3
    node.clock.now_ms += 1
    await node.server.node.cell.retain()
    assert set(await fetch(client, None)) == {("t", 1), ("t", 2)}


async def test_offsets_are_deleted_one_by_one(client: Client) -> None:
    await commit(client, {("t", 0): 5, ("t", 1): 5, ("u", 0): 5})
    response = await delete(client, ("t", 0), ("t", 2), ("u", 0), ("u", 1), ("v", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.error_code == 0
    assert codes(response) == {("t", 0): 0, ("t", 2): 0, ("u", 0): 0, ("u", 1): unknown, ("v", 0): unknown}
    assert set(await fetch(client, None)) == {("t", 1)}


async def test_a_group_outlives_its_last_offset_for_a_while(node: Node, client: Client) -> None:
    zombie = ("zombie", 3)
    await commit(client, {("t", 0): 5})
    for _ in range(2):
        assert codes(await delete(client, ("t", 0))) == {("t", 0): 0}
        (group,) = (await client.ask(DescribeGroupsRequest(groups=["g"]))).groups
        assert (group.error_code, group.group_state) == (0, "Empty")
        assert [each.group_id for each in (await client.ask(ListGroupsRequest())).groups] == ["g"]
        assert await commit(client, {("t", 0): 5}, member=zombie) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    for _ in range(2):
        await node.server.node.cell.retain()
        node.clock.now_ms += 600_000
    assert (await client.ask(ListGroupsRequest())).groups == []
    assert (await delete(client, ("t", 0))).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_outlives_a_topic_that_had_its_last_offset(node: Node, client: Client) -> None:
    await commit(client, {("u", 0): 5})
    await client.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=1000), 5)
    assert [each.group_id for each in (await client.ask(ListGroupsRequest())).groups] == ["g"]


async def test_a_group_that_outlived_its_offsets_is_deleted_once(client: Client) -> None:
    await commit(client, {("t", 0): 5})
    await delete(client, ("t", 0))
    for code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        (result,) = (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results
        assert result.error_code == code
    assert (await client.ask(ListGroupsRequest())).groups == []


async def test_a_group_whose_offsets_are_deleted_with_it_is_gone(client: Client) -> None:
    await commit(client, {("t", 0): 5})
    (result,) = (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results
    assert (result.error_code, (await client.ask(ListGroupsRequest())).groups) == (0, [])


async def test_offsets_of_a_topic_that_members_read_stay(node: Node, client: Client) -> None:
    member = await join(node, "t")
    await commit(client, {("t", 0): 5, ("u", 0): 5}, member=member)
    response = await delete(client, ("t", 0), ("u", 0))
    assert codes(response) == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0}
    assert set(await fetch(client, None)) == {("t", 0)}


async def test_offsets_of_a_group_that_does_not_say_what_it_reads_stay(node: Node, client: Client) -> None:
    member = await join(node, protocol_type="connect")
    await commit(client, {("t", 0): 5}, member=member)
    assert (await delete(client, ("t", 0))).error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await delete(client, ("t", 0), group_id="nobody")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await delete(client, ("t", 0), group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
