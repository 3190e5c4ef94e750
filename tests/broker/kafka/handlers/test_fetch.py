import asyncio
from typing import Any

import pytest

from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.records import batches, decode_records
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

SECONDS_MS = 1000
LONG_MS = 60 * SECONDS_MS


def fetch_request(
    *wanted: tuple[int, int], topic: str = "t", topic_id: bytes = bytes(16), bytes_max: int = 1 << 20, **fields: Any
) -> FetchRequest:
    """Fetch pairs of (partition, offset) of one topic."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max) for index, offset in wanted
    ]
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)] if wanted else []
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 25, "topics": topics, **fields})


def offsets(data: PartitionData) -> list[int]:
    """Offsets of the batches in an answer."""
    return [header.base_offset for _, header in batches(memoryview(data.records or b""))]  # type: ignore[arg-type]


async def only(client: Client, request: FetchRequest, version: int = 12) -> PartitionData:
    response = await client.ask(request, version)
    data: PartitionData = response.responses[0].partitions[0]
    return data


@pytest.mark.parametrize("version", range(4, 18))
async def test_every_version_gives_what_was_produced(node: Node, client: Client, version: int) -> None:
    topic_id = await node.create_topic("t")
    await node.produce("t", b"a", b"b")
    request = fetch_request((0, 0)) if version < 13 else fetch_request((0, 0), topic="", topic_id=topic_id)
    data = await only(client, request, version)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert isinstance(data.records, memoryview)
    assert [record.value for record in decode_records(data.records)] == [b"a", b"b"]


@pytest.mark.spec("G.7")
async def test_an_offset_inside_a_batch_gives_the_whole_batch(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    assert offsets(await only(client, fetch_request((0, 1)))) == [0]


async def test_the_end_is_empty_and_beyond_it_is_out_of_range(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a")
    at_end = await only(client, fetch_request((0, 1)))
    assert (at_end.error_code, offsets(at_end)) == (0, [])
    beyond = await only(client, fetch_request((0, 2), max_wait_ms=LONG_MS))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (beyond.high_watermark, beyond.log_start_offset) == (1, 0)


async def test_below_the_log_start_is_out_of_range(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await topic.partitions[0].retention.delete_before(1)
    data = await only(client, fetch_request((0, 0), max_wait_ms=LONG_MS))
    assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


async def test_unknown_topics_partitions_and_ids_are_told_at_once(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for request in (fetch_request((0, 0), topic="u", max_wait_ms=LONG_MS), fetch_request((3, 0), max_wait_ms=LONG_MS)):
        assert (await only(client, request)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = fetch_request((0, 0), topic="", topic_id=b"\7" * 16, max_wait_ms=LONG_MS)
    assert (await only(client, by_id, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("difference", "code"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, 0)]
)
async def test_the_leader_epoch_is_checked(node: Node, client: Client, difference: int, code: int) -> None:
    await node.create_topic("t")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    request = fetch_request((0, 0))
    request.topics[0].partitions[0].current_leader_epoch = topic.partitions[0].leader_epoch + difference
    assert (await only(client, request)).error_code == code


@pytest.mark.spec("A.9")
async def test_the_first_partition_with_data_gives_a_batch_above_every_limit(node: Node, client: Client) -> None:
    await node.create_topic("t", 3)
    for partition in (1, 2):
        await node.produce("t", b"x" * 5000, partition=partition)
    response = await client.ask(fetch_request((0, 0), (1, 0), (2, 0), bytes_max=100, max_bytes=200), 12)
    sizes = [len(data.records or b"") for data in response.responses[0].partitions]
    assert sizes[0] == 0
    assert sizes[1] > 5000
    assert sizes[2] == 0


async def test_partitions_share_the_limit_in_the_order_of_the_request(node: Node, client: Client) -> None:
    await node.create_topic("t", 2)
    for partition in (0, 1):
        for _ in range(4):
            await node.produce("t", b"x" * 1000, partition=partition)
    response = await client.ask(fetch_request((1, 0), (0, 0), max_bytes=6000), 12)
    counts = [(data.partition_index, len(offsets(data))) for data in response.responses[0].partitions]
    assert counts == [(1, 4), (0, 1)]


async def test_a_fetch_parks_until_a_record_arrives(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    producer = await node.connect()
    await producer.ask(produce_request("t", make_batch(b"a")), 9)
    response = await client.receive()
    assert offsets(response.responses[0].partitions[0]) == [0]


async def test_a_fetch_parks_until_min_bytes_are_there(node: Node, client: Client) -> None:
    await node.create_topic("t", 2)
    client.send(fetch_request((0, 0), (1, 0), max_wait_ms=LONG_MS, min_bytes=5000), 12)
    waiting = asyncio.ensure_future(client.receive())
    for partition in (0, 1, 0):
        await node.produce("t", b"x" * 1500, partition=partition)
        assert not waiting.done()
    await node.produce("t", b"x" * 1500, partition=1)
    response = await waiting
    assert [len(offsets(data)) for data in response.responses[0].partitions] == [2, 2]


async def test_a_fetch_does_not_wait_for_more_than_its_answer_may_hold(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for _ in range(2):
        await node.produce("t", b"x" * 1000)
    request = fetch_request((0, 0), max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=1500)
    async with asyncio.timeout(10):
        assert offsets(await only(client, request)) == [0]


async def test_the_deadline_ends_the_wait(node: Node, client: Client) -> None:
    await node.create_topic("t")
    data = await only(client, fetch_request((0, 0), max_wait_ms=20))
    assert (data.error_code, offsets(data), data.high_watermark) == (0, [], 0)


@pytest.mark.spec("spark 2")
async def test_a_request_behind_a_parked_fetch_completes_it(node: Node, client: Client) -> None:
    """It does so at once, within its own turn: see `test_connection.py`."""
    await node.create_topic("t")
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    client.send(ListOffsetsRequest(topics=[asked]), 7)
    fetched, listed = await client.receive(), await client.receive()
    assert fetched.responses[0].partitions[0].high_watermark == 0
    assert listed.topics[0].partitions[0].offset == 0
    metrics = node.server.node.metrics
    assert metrics.overstay.count == 1
    assert metrics.overstay_worst_s < LONG_MS / 1000


async def test_a_deleted_topic_ends_the_wait_with_an_error(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    other = await node.connect()
    await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    response = await client.receive()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_of_nothing_is_answered_at_once(client: Client) -> None:
    response = await client.ask(fetch_request(max_wait_ms=LONG_MS), 12)
    assert response.responses == []


async def test_read_committed_has_an_empty_list_of_aborted_transactions(node: Node, client: Client) -> None:
    await node.create_topic("t")
    assert (await only(client, fetch_request((0, 0), isolation_level=1))).aborted_transactions == []
    assert (await only(client, fetch_request((0, 0), isolation_level=0))).aborted_transactions is None


async def test_a_session_lists_only_what_is_new(node: Node, client: Client) -> None:
    await node.create_topic("t", 2)
    opened = await client.ask(fetch_request((0, 0), (1, 0), session_epoch=0), 12)
    assert opened.session_id > 0
    assert len(opened.responses[0].partitions) == 2

    async def next_answer(epoch: int, *wanted: tuple[int, int]) -> list[tuple[int, int]]:
        response = await client.ask(fetch_request(*wanted, session_id=opened.session_id, session_epoch=epoch), 12)
        assert response.error_code == 0
        assert response.session_id == opened.session_id
        return [(data.partition_index, len(offsets(data))) for each in response.responses for data in each.partitions]

    assert await next_answer(1) == []
    await node.produce("t", b"a", partition=1)
    assert await next_answer(2) == [(1, 1)]
    assert await next_answer(3, (1, 1)) == []
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await topic.partitions[1].retention.delete_before(1)
    assert await next_answer(4) == [(1, 0)]


async def test_a_session_tells_a_partitions_error_until_it_is_gone(node: Node, client: Client) -> None:
    await node.create_topic("t")
    opened = await client.ask(fetch_request((0, 0), (1, 0), session_epoch=0), 12)
    for epoch in (1, 2):
        response = await client.ask(fetch_request(session_id=opened.session_id, session_epoch=epoch), 12)
        assert [data.error_code for data in response.responses[0].partitions] == [3]


async def test_session_errors_are_those_of_the_whole_answer(client: Client) -> None:
    unknown = await client.ask(fetch_request(session_id=77, session_epoch=3), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened = await client.ask(fetch_request((0, 0), session_epoch=0), 12)
    wrong = await client.ask(fetch_request(session_id=opened.session_id, session_epoch=9), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_parked_fetch_whose_client_goes_reads_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create_topic("t")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    watchers, reads = topic.partitions[0].watchers, list[ReadQuery]()
    monkeypatch.setattr(PartitionServer, "read", lambda _, query: reads.append(query))
    client = await node.connect()
    client.send(fetch_request((0, 0), max_wait_ms=LONG_MS), 12)
    await until(lambda: len(watchers) == 1)
    client.abort()
    await until(lambda: len(watchers) == 0)
    assert reads == []
