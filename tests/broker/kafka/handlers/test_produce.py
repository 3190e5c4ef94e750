import asyncio
from collections.abc import Awaitable, Callable

import pytest
from crc32c import crc32c

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.pool_status import Colour
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_by_name_stores_and_tells_the_offset(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    for base_offset in (0, 2):
        response = await client.ask(produce_request("t", make_batch(b"a", b"b")), version)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, base_offset, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)


async def test_version_13_finds_the_topic_by_id(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    request = produce_request("", make_batch(b"a"))
    request.topic_data[0].topic_id = topic_id
    response = await client.ask(request, 13)
    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partition_responses[0].error_code == 0
    request.topic_data[0].topic_id = b"\7" * 16
    response = await client.ask(request, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_unknown_topic_or_partition_is_refused_and_not_created(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for topic, partition in (("u", 0), ("t", 1), ("t", -1)):
        response = await client.ask(produce_request(topic, make_batch(), partition), 9)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.base_offset == -1
    response = await client.ask(MetadataRequest(topics=None))
    assert [topic.name for topic in response.topics] == ["t"]


async def test_partitions_of_one_request_succeed_and_fail_each_for_itself(node: Node, client: Client) -> None:
    await node.create_topic("t", 2)
    data = [PartitionProduceData(index=index, records=memoryview(make_batch())) for index in (0, 5, 1)]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    response = await client.ask(request, 9)
    answers = response.responses[0].partition_responses
    assert [(answer.index, answer.error_code) for answer in answers] == [(0, 0), (5, 3), (1, 0)]


@pytest.mark.parametrize("acks", [2, -2])
async def test_other_acks_are_refused(node: Node, client: Client, acks: int) -> None:
    await node.create_topic("t")
    response = await client.ask(produce_request("t", make_batch(), acks=acks), 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer.error_message
    assert node.server.node.cell.current.topics.get("t").partitions[0].end_offset == 0  # type: ignore[union-attr]


async def test_acks_0_stores_without_an_answer(node: Node, client: Client) -> None:
    await node.create_topic("t")
    client.send(produce_request("t", make_batch(), acks=0), 9)
    client.expect_nothing()
    response = await client.ask(produce_request("t", make_batch()), 9)
    assert response.responses[0].partition_responses[0].base_offset == 1


async def test_a_failure_with_acks_0_closes_the_connection(client: Client) -> None:
    client.send(produce_request("nowhere", make_batch(), acks=0), 9)
    assert await client.is_closed_by_peer()


def corrupt() -> bytearray:
    batch = make_batch(b"a")
    batch[-1] ^= 1
    return batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (corrupt(), ErrorCode.CORRUPT_MESSAGE),
        (make_batch(b"a") + make_batch(b"b"), ErrorCode.INVALID_RECORD),
        (make_batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "corrupt", "two batches", "too large"],
)
async def test_bad_record_data_is_refused(
    node: Node, client: Client, batch: bytes | bytearray | None, code: ErrorCode
) -> None:
    await node.create_topic("t")
    response = await client.ask(produce_request("t", batch), 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code in (code, ErrorCode.CORRUPT_MESSAGE if batch == b"" else code)
    assert answer.base_offset == -1


async def test_zstd_needs_version_7(node: Node, client: Client) -> None:
    await node.create_topic("t")
    response = await client.ask(produce_request("t", make_batch(codec=4)), 6)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    response = await client.ask(produce_request("t", make_batch(codec=4)), 7)
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_a_retried_batch_is_acknowledged_with_its_first_offset(node: Node) -> None:
    await node.create_topic("t")
    sequence = {"producer_id": 9, "producer_epoch": 0}
    first = await node.produce("t", b"a", b"b", base_sequence=0, **sequence)
    again = await node.produce("t", b"a", b"b", base_sequence=0, **sequence)
    assert (first.error_code, first.base_offset, again.error_code, again.base_offset) == (0, 0, 0, 0)
    gap = await node.produce("t", b"c", base_sequence=7, **sequence)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = await node.produce("t", b"d", base_sequence=2, producer_id=9, producer_epoch=-1)
    assert old.error_code != 0


@pytest.mark.spec("4.16")
async def test_log_append_time_is_returned(node: Node) -> None:
    await node.create_topic("t", message_timestamp_type="LogAppendTime")
    answer = await node.produce("t", b"a", timestamp_ms=5)
    assert answer.log_append_time_ms == node.clock.now_ms


async def test_a_refused_commit_is_retriable_and_the_next_goes_through(node: Node) -> None:
    await node.create_topic("t")
    node.engine.faults.refuse_next()
    refused = await node.produce("t", b"a")
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await node.produce("t", b"a")).base_offset == 0


async def test_pipelined_requests_are_stored_and_answered_in_order(node: Node, client: Client) -> None:
    await node.create_topic("t")
    for _ in range(20):
        client.send(produce_request("t", make_batch()), 9)
    offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(20)]
    assert offsets == list(range(20))


def keyed_batch(*keys: bytes | None, codec: int = 0) -> bytearray:
    return encode_batch([Record(key=key, value=b"v", timestamp=1_700_000_000_000) for key in keys], codec=codec)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_a_compacted_topic_refuses_a_batch_and_names_its_records_without_key(
    node: Node, client: Client, policy: str, codec: int
) -> None:
    await node.create_topic("t", cleanup_policy=policy)
    response = await client.ask(produce_request("t", keyed_batch(b"a", None, b"", None, codec=codec)), 12)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert answer.error_message
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in answer.record_errors)
    response = await client.ask(produce_request("t", keyed_batch(b"a", b"", codec=codec)), 12)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset, answer.record_errors) == (0, 0, [])


async def test_a_topic_that_begins_to_compact_refuses_records_without_key(node: Node) -> None:
    await node.create_topic("t")
    assert (await node.produce("t", b"a")).error_code == 0
    await node.server.node.cell.current.topics.reconfigure("t", lambda _: {"cleanup.policy": "compact"})
    assert (await node.produce("t", b"a")).error_code == ErrorCode.INVALID_RECORD


async def test_only_compacted_topics_look_behind_the_first_record(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.create_topic("c", cleanup_policy="compact")
    batch = keyed_batch(b"a", b"b")
    damaged = reseal(batch[:-9] + b"\xff" * 9)
    for topic, code in (("t", 0), ("c", ErrorCode.INVALID_RECORD)):
        response = await client.ask(produce_request(topic, bytearray(damaged)), 9)
        assert response.responses[0].partition_responses[0].error_code == code


def reseal(batch: bytearray) -> bytearray:
    """Give a batch the checksum of what it holds."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


@pytest.mark.spec("A.13", "G.2", "G.5")
async def test_a_writer_over_the_quota_is_throttled_and_not_read_meanwhile(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_write_speed_bytes="1000")
    response = await client.ask(produce_request("t", make_batch(bytes(900))), 9)
    assert (response.responses[0].partition_responses[0].error_code, response.throttle_time_ms) == (0, 0)
    response = await client.ask(produce_request("t", make_batch(bytes(200))), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert 200 < response.throttle_time_ms < 600
    told = asyncio.get_running_loop().time()
    await client.ask(MetadataRequest(topics=None))
    waited_ms = 1000 * (asyncio.get_running_loop().time() - told)
    assert waited_ms > response.throttle_time_ms - 50
    another = await node.connect()
    assert (await another.ask(produce_request("t", make_batch()), 9)).throttle_time_ms > 0


@pytest.mark.spec("A.13", "G.2", "G.5")
async def test_a_writer_over_the_quota_of_records_is_throttled(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_write_speed_messages="10", pq_write_burst_messages="20")
    batch = make_batch(*[b"v"] * 20)
    assert (await client.ask(produce_request("t", batch), 9)).throttle_time_ms == 0
    response = await client.ask(produce_request("t", make_batch(b"v", b"v")), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert 100 < response.throttle_time_ms <= 201


@pytest.mark.spec("A.13", "G.2", "G.5")
async def test_a_writer_over_the_bytes_in_flight_is_throttled(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(write_border_bytes=1 << 20, write_queue_bytes_max=1 << 20)
    await node.create_topic("t", max_message_bytes="3000000")
    clients = [await node.connect() for _ in range(3)]
    node.engine.faults.hold()
    metrics = node.server.node.metrics
    for number, client in enumerate(clients, 1):
        client.send(produce_request("t", make_batch(bytes(900_000))), 9)
        await until(lambda wanted=number * 900_000: metrics.bytes_in > wanted)  # type: ignore[misc]
    refused = await clients[2].receive()
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert refused.throttle_time_ms > 0
    node.engine.faults.release()
    answers = [await client.receive() for client in clients[:2]]
    assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [0, 0]
    assert [answer.throttle_time_ms > 0 for answer in answers] == [False, True]


@pytest.mark.spec("A.12.2", "J.1", "G.2", "G.5")
async def test_a_full_disk_is_a_storage_error_until_there_is_room(node: Node) -> None:
    await node.create_topic("t")
    node.engine.tell_colour(Colour.YELLOW_STOP)
    answer = await node.produce("t", b"a")
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert "the disk is full" in (answer.error_message or "")
    node.engine.tell_colour(None)
    assert (await node.produce("t", b"a")).base_offset == 0


async def test_a_pause_holds_also_when_the_writer_waited_for_its_turn(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_write_speed_bytes="1000")
    node.engine.faults.hold()
    client.send(produce_request("t", make_batch()), 9)
    client.send(MetadataRequest(topics=None))
    client.send(produce_request("t", make_batch(bytes(1200))), 9)
    node.engine.faults.release()
    pause_ms = [await client.receive() for _ in range(3)][2].throttle_time_ms
    told = asyncio.get_running_loop().time()
    await client.ask(MetadataRequest(topics=None))
    assert 1000 * (asyncio.get_running_loop().time() - told) > pause_ms - 50 > 100
