"""Quotas over Kafka's protocol: set, shown, removed; and what they do to producers, consumers and administrators."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import alter_client_quotas
from pqbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]
USER = {"user": "ANONYMOUS"}


async def alter(
    client: Client, entity: Mapping[str, str | None], *, validate_only: bool = False, **values: float | None
) -> ErrorCode:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    entry = alter_client_quotas.EntryData(entity=parts, ops=ops)
    answer = await client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=validate_only))
    code: ErrorCode = answer.entries[0].error_code
    return code


async def shown(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    asked = [ComponentData(entity_type=kind, match_type=way, match=name) for kind, way, name in components]
    answer = await client.ask(DescribeClientQuotasRequest(components=asked, strict=strict))
    assert answer.error_code == 0
    return [
        ({part.entity_type: part.entity_name for part in entry.entity}, {one.key: one.value for one in entry.values})
        for entry in answer.entries
    ]


async def test_quotas_are_set_shown_and_removed(node: Node, client: Client) -> None:
    assert await alter(client, USER, producer_byte_rate=1024.0, request_percentage=12.5) is ErrorCode.NONE
    assert await alter(client, {"user": None, "client_id": "app"}, consumer_byte_rate=2048.0) is ErrorCode.NONE
    assert await shown(client, ("user", 0, "ANONYMOUS")) == [
        (USER, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})
    ]
    assert await shown(client, ("user", 1, None)) == [
        ({"client-id": "app", "user": None}, {"consumer_byte_rate": 2048.0})
    ]
    assert await shown(client, ("user", 1, None), strict=True) == []
    assert await alter(client, USER, producer_byte_rate=None, request_percentage=None) is ErrorCode.NONE
    assert len(await shown(client)) == 1
    assert await alter(client, USER, validate_only=True, producer_byte_rate=1.0) is ErrorCode.NONE
    assert len(await shown(client)) == 1


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}), ({"topic": "t"}, {"producer_byte_rate": 1.0}),
        (USER, {"producer_byte_rate": -1.0}), (USER, {"no_rate": 1.0}),
        ({"user": "u" * 2000}, {"producer_byte_rate": 1}),
    ],
)  # fmt: skip
async def test_a_quota_that_is_none_is_refused(
    node: Node, client: Client, entity: dict[str, str | None], values: dict[str, Any]
) -> None:
    assert await alter(client, entity, validate_only=False, **values) is ErrorCode.INVALID_REQUEST
    assert await shown(client) == []


async def test_so_many_entities_have_quotas_at_most(start: Start) -> None:
    node = await start(quotas_max=2)
    client = await node.connect()
    codes = [await alter(client, {"user": name}, producer_byte_rate=1.0) for name in ("a", "b", "c", "a")]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


async def test_quotas_outlive_a_cell_that_is_lost_and_opened_again(node: Node, client: Client) -> None:
    await alter(client, USER, producer_byte_rate=1024.0)
    node.engine.faults.lose_next(stored=True)
    await alter(client, {"user": "b"}, producer_byte_rate=1.0)
    await until(lambda: node.server.node.metrics.cell_openings == 2)
    assert len(node.server.node.quotas.entries) == 2


async def produced(client: Client, size: int) -> int:
    answer = await client.ask(produce_request("t", make_batch(bytes(size))), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    throttle_ms: int = answer.throttle_time_ms
    return throttle_ms


async def test_a_producer_above_its_quota_has_to_pause_and_is_not_read_meanwhile(node: Node, client: Client) -> None:
    await node.create_topic("t")
    producer = await node.connect()
    assert await produced(producer, 5000) == 0
    await alter(client, USER, producer_byte_rate=1000.0)
    throttle_ms = await produced(producer, 6000)
    assert 5000 < throttle_ms < 6500
    port = int(producer.address.rpartition(":")[2])
    (connection,) = [one for one in node.server.node.connections if one.peer.port == port]
    producer.send(MetadataRequest(topics=[]))
    assert connection.is_idle
    await alter(client, USER, producer_byte_rate=None)
    another = await node.connect()
    assert await produced(another, 50_000) == 0


async def test_a_quota_counts_in_the_lane_of_a_producer(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await alter(client, {"client_id": None}, producer_byte_rate=100_000.0)
    producer = await node.connect()
    assert [await produced(producer, 2500) for _ in range(3)] == [0, 0, 0]
    pauses = [await produced(producer, 2500) for _ in range(12)]
    assert max(pauses) > 0
    assert node.server.node.quotas.throttled_ms["producer_byte_rate"] >= sum(pauses)


@pytest.mark.parametrize("version", [10, 12])
async def test_a_consumer_above_its_quota_gets_no_records_until_its_pause_is_over(
    node: Node, client: Client, version: int
) -> None:
    """Version 12 has lanes."""
    await node.create_topic("t")
    await produced(await node.connect(), 20_000)
    await alter(client, USER, consumer_byte_rate=1000.0)
    consumer = await node.connect()
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    first = await consumer.ask(request, version)
    assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
    second = await consumer.ask(request, version)
    assert (second.throttle_time_ms > 5000, second.responses) == (True, [])


async def test_a_fetch_session_outlives_a_pause(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await produced(await node.connect(), 20_000)
    await alter(client, USER, consumer_byte_rate=100_000.0)
    consumer = await node.connect()
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=0, topics=topics)
    session_id = (await consumer.ask(request, 12)).session_id
    request.session_id, pauses, read = session_id, [], 0
    for epoch in range(1, 6):
        request.session_epoch = epoch
        answer = await consumer.ask(request, 12)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, session_id)
        pauses.append(answer.throttle_time_ms)
        read += len(answer.responses)
    assert max(pauses) > 0
    assert read > 0, "it reads again when a pause is over"


async def test_a_client_above_its_share_of_the_processor_is_told_to_pause(node: Node, client: Client) -> None:
    await alter(client, {"client_id": None}, request_percentage=0.0001)
    busy = await node.connect()
    answers = [(await busy.ask(MetadataRequest(topics=None), 9)).throttle_time_ms for _ in range(3)]
    assert answers == [0, 0, 1000], "the first finds out that there is a quota"


async def test_an_administrator_above_its_quota_is_refused_topics(node: Node, client: Client) -> None:
    await alter(client, USER, controller_mutation_rate=1.0)
    admin = await node.connect()

    async def create(name: str, partitions: int, version: int) -> tuple[ErrorCode, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await admin.ask(CreateTopicsRequest(topics=[topic]), version)
        return answer.topics[0].error_code, answer.throttle_time_ms

    code, pause_ms = await create("a", 20, 7)
    assert (code, 8000 < pause_ms <= 9000) == (ErrorCode.NONE, True)
    code, pause_ms = await create("b", 1, 7)
    assert (code, pause_ms > 8000) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
    code, pause_ms = await create("b", 1, 5)
    assert (code, pause_ms > 9000) == (ErrorCode.NONE, True), "an early version is only told"


async def test_an_address_that_connects_more_often_than_its_quota_is_refused(node: Node, client: Client) -> None:
    await alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    refused = node.server.node.metrics.connections_refused
    for _ in range(15):
        await node.connect()
    await until(lambda: node.server.node.metrics.connections_refused > refused)
    other = await node.connect("127.0.0.5")
    assert (await other.ask(MetadataRequest(topics=[]))).brokers
