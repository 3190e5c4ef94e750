"""Groups of KIP-848 over a socket, and groups that outlive their node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES, Clock, Node
from tests.broker.wire import Client

MINUTE_MS = 60_000


async def beat(
    client: Client, member_id: str, epoch: int, version: int = 1, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    found: ConsumerGroupHeartbeatResponse = await client.ask(request, version)
    return found


async def join(
    client: Client, member_id: str, *topics: str, version: int = 1, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    return await beat(
        client, member_id, 0, version, subscribed_topic_names=list(topics or ("t",)), topic_partitions=[],
        rebalance_timeout_ms=MINUTE_MS, **fields,
    )  # fmt: skip


async def describe(client: Client, group_id: str = "g", version: int = 1) -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    found: DescribedGroup = (await client.ask(request, version)).groups[0]
    return found


def commit_request(member_id: str, epoch: int, topic_id: bytes, *partitions: int) -> OffsetCommitRequest:
    asked = [OffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions]
    return OffsetCommitRequest(
        group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=asked)],
    )  # fmt: skip


async def commit(client: Client, member_id: str, epoch: int, topic_id: bytes, version: int = 10) -> list[ErrorCode]:
    response = await client.ask(commit_request(member_id, epoch, topic_id, 0, 1), version)
    return [each.error_code for each in response.topics[0].partitions]


@pytest.fixture
async def topic(node: Node) -> bytes:
    """The id of a topic of two partitions."""
    return await node.create_topic("t", 2)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_and_is_described(client: Client, topic: bytes, version: int) -> None:
    joined = await join(client, "m", version=version, rack_id="r", server_assignor="range")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert joined.assignment is not None
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, sorted(assigned.partitions)) == (topic, [0, 1])
    group = await describe(client, version=version)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "range"
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", 2)
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    assert member.member_type == (1 if version else -1)
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions] == [("t", [0, 1])]


async def test_the_broker_gives_an_id_to_a_member_of_version_0(client: Client, topic: bytes) -> None:
    joined = await join(client, "", version=0)
    assert joined.member_id
    assert (await beat(client, joined.member_id, 2, 0)).member_epoch == 2


@pytest.mark.parametrize(
    ("version", "fields", "message"),
    [
        (1, {"member_id": ""}, "MemberId can't be empty."),
        (0, {"member_id": " ", "member_epoch": 1}, "MemberId can't be empty."),
        (0, {"member_id": "", "member_epoch": -1}, "MemberId can't be empty."),
        (1, {"group_id": " "}, "GroupId can't be empty."),
        (1, {"instance_id": ""}, "InstanceId can't be empty."),
        (1, {"rack_id": ""}, "RackId can't be empty."),
        (1, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        (1, {"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            1, {"topic_partitions": [TopicPartitions(topic_id=b"\1" * 16, partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            1, {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (1, {"member_epoch": -2}, "InstanceId can't be null."),
        (1, {"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)  # fmt: skip
async def test_a_request_that_makes_no_sense_is_invalid(
    client: Client, version: int, fields: dict[str, Any], message: str
) -> None:
    valid = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout_ms": 1000}
    request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", "member_epoch": 0, **valid, **fields})
    answer = await client.ask(request, version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert answer.assignment is None


async def test_a_group_takes_as_many_members_as_are_allowed(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(group_consumer_max_size=2)
    await node.create_topic("t", 2)
    client = await node.connect()
    assert [(await join(client, name)).error_code for name in ("a", "b", "a")] == [0, 0, 0]
    refused = await join(client, "c")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The consumer group has reached its maximum capacity of 2 members."


async def test_a_member_with_more_topics_than_it_has_room_for_is_refused_at_once(client: Client) -> None:
    most = (1 << 20) // 64
    assert (await join(client, "m", *map(str, range(most + 1)))).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await describe(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_an_unknown_assignor_is_refused(client: Client) -> None:
    answer = await join(client, "m", server_assignor="mine")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."


async def test_a_heartbeat_needs_its_group(client: Client) -> None:
    assert (await beat(client, "m", 2)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await beat(client, "m", -1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_two_members_share_and_commit_in_their_epochs(client: Client, topic: bytes, node: Node) -> None:
    await join(client, "a")
    node.clock.now_ms += MINUTE_MS
    assert (await join(client, "b")).assignment.topic_partitions == []  # type: ignore[union-attr]
    owned = [TopicPartitions(topic_id=topic, partitions=[0, 1])]
    kept = await beat(client, "a", 2, topic_partitions=owned)
    assert kept.assignment is not None
    assert await commit(client, "a", 2, topic) == [0, 0]
    assert (await beat(client, "a", 2, topic_partitions=kept.assignment.topic_partitions)).member_epoch == 3
    gone = [index for index in (0, 1) if index not in kept.assignment.topic_partitions[0].partitions]
    given = await beat(client, "b", 3)
    assert given.assignment is not None
    assert [each.partitions for each in given.assignment.topic_partitions] == [gone]
    assert await commit(client, "a", 2, topic) == [ErrorCode.STALE_MEMBER_EPOCH] * 2
    assert await commit(client, "a", 4, topic) == [ErrorCode.STALE_MEMBER_EPOCH] * 2
    assert await commit(client, "c", 3, topic) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert await commit(client, "a", 3, topic, version=9) == [0, 0]
    assert await commit(client, "a", 3, topic, version=8) == [ErrorCode.UNSUPPORTED_VERSION] * 2


@pytest.mark.parametrize("version", [9, 10])
async def test_offsets_are_read_in_a_members_epoch(client: Client, topic: bytes, version: int) -> None:
    await join(client, "m")
    await commit(client, "m", 2, topic)

    async def read(member_id: str | None, epoch: int) -> tuple[ErrorCode, list[int]]:
        asked = OffsetFetchRequestTopic(name="t", topic_id=topic, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=[asked])
        found = (await client.ask(OffsetFetchRequest(groups=[group]), version)).groups[0]
        return found.error_code, [each.committed_offset for topic in found.topics for each in topic.partitions]

    assert await read("m", 2) == (0, [5])
    assert await read(None, -1) == (0, [5])
    assert await read("m", 3) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert await read("x", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


async def test_a_group_is_listed_with_its_type(client: Client, topic: bytes) -> None:
    await join(client, "m")
    for types, states, count in (
        ([], [], 1), (["consumer"], [], 1), (["Consumer", "?"], [], 1), (["classic"], [], 0), (["?"], [], 0),
        ([], ["STABLE"], 1), ([], ["assigning"], 0),
    ):  # fmt: skip
        listed = (await client.ask(ListGroupsRequest(types_filter=types, states_filter=states))).groups
        assert len(listed) == count, (types, states)
        for group in listed:
            assert (group.group_id, group.protocol_type, group.group_type) == ("g", "consumer", "consumer")
            assert group.group_state == "Stable"


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_group_of_the_other_protocol_is_unknown_to_each_description(
    client: Client, topic: bytes, version: int, code: ErrorCode
) -> None:
    await join(client, "m")
    other = (await client.ask(DescribeGroupsRequest(groups=["g"]), version)).groups[0]
    assert (other.error_code, other.group_state) == (code, "Dead")
    assert (await describe(client, "nobody")).error_message == "Group nobody not found."
    assert (await describe(client, "")).error_code == ErrorCode.INVALID_GROUP_ID
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0")]
    request = JoinGroupRequest(
        group_id="classic", protocol_type="consumer", session_timeout_ms=MINUTE_MS, rebalance_timeout_ms=MINUTE_MS,
        protocols=protocols,
    )  # fmt: skip
    await client.ask(request, 5)
    found = await describe(client, "classic")
    assert (found.error_code, found.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group.",
    )  # fmt: skip


async def test_an_empty_group_is_deleted_and_one_with_members_is_not(client: Client, topic: bytes) -> None:
    await join(client, "m")
    await commit(client, "m", 2, topic)

    async def delete() -> ErrorCode:
        code: ErrorCode = (await client.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code
        return code

    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    assert (await beat(client, "m", -1)).member_epoch == -1
    assert (await describe(client)).group_state == "Empty"
    assert await delete() == 0
    assert (await client.ask(ListGroupsRequest())).groups == []
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_topics_that_members_read_are_not_deleted(
    client: Client, topic: bytes, node: Node
) -> None:
    await node.create_topic("u")
    await join(client, "m")
    asked = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=asked) for name in ("t", "u")]
    answer = await client.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    codes = [each.partitions[0].error_code for each in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


async def test_a_group_of_one_protocol_without_members_becomes_one_of_the_other(
    client: Client, topic: bytes
) -> None:
    await join(client, "m")
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0")]
    request = JoinGroupRequest(
        group_id="g", protocol_type="consumer", session_timeout_ms=MINUTE_MS, rebalance_timeout_ms=MINUTE_MS,
        protocols=protocols,
    )  # fmt: skip
    await beat(client, "m", -1)
    assert (await client.ask(request, 5)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert [each.group_type for each in (await client.ask(ListGroupsRequest())).groups] == ["classic"]
    assert (await join(client, "m")).member_epoch == 2
    assert [each.group_type for each in (await client.ask(ListGroupsRequest())).groups] == ["consumer"]


async def test_group_version_is_finalized(client: Client) -> None:
    answer = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["group.version"] == 1


async def test_a_group_after_a_restart_is_the_group_before() -> None:
    engine, clock = MemoryEngine(ENGINE_BYTES), Clock()

    async def serve() -> Server:
        server = Server(BrokerSettings(), engine, Address("127.0.0.1", 0), None, clock)
        await server.start()
        return server

    server = await serve()
    client = await Client.connect("127.0.0.1", server.kafka_address.port)
    await server.node.cell.current.topics.create("t", 2, {})
    await join(client, "a", instance_id="i", rack_id="r")
    clock.now_ms += MINUTE_MS
    await join(client, "b")
    await beat(client, "a", 2, topic_partitions=None)
    before = await describe(client)
    await client.close()
    await server.stop()
    server = await serve()
    client = await Client.connect("127.0.0.1", server.kafka_address.port)
    assert await describe(client) == before
    owned = next(each for each in before.members if each.member_id == "a").assignment.topic_partitions
    report = [TopicPartitions(topic_id=each.topic_id, partitions=each.partitions[:1]) for each in owned]
    assert (await beat(client, "a", 2, topic_partitions=report)).error_code == 0
    await client.close()
    await server.stop()


async def test_an_answer_comes_when_what_it_says_is_durable(client: Client, topic: bytes, node: Node) -> None:
    node.engine.faults.hold()
    asked = asyncio.ensure_future(join(client, "m"))
    other = await node.connect()
    await describe(other, "nobody")
    assert not asked.done()
    node.engine.faults.release()
    assert (await asked).member_epoch == 2
