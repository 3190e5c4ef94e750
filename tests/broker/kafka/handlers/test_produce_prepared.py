"""Produce to topics whose batches are recompressed, or read to the end, before they are stored."""

import threading
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from pqbroker.broker.services.topics import record_checks
from pqbroker.broker.services.topics.record_checks import RecordChecks, preparation_of
from pqbroker.protocol import record_parts
from pqbroker.protocol.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD, compress
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pqbroker.protocol.records import Record, decode_records, encode_batch, read_header, recompressed
from tests.broker.conftest import Node, make_batch, produce_request
from tests.broker.kafka.handlers.test_produce import keyed_batch, reseal
from tests.broker.wire import Client

VALUES = [b"a" * 100, b"", b"\0" * 3000]


async def produced(client: Client, topic: str, batch: bytearray, version: int = 12) -> PartitionProduceResponse:
    response = await client.ask(produce_request(topic, batch), version)
    answer = response.responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


async def stored(client: Client, topic: str) -> bytes:
    """The first batch of the topic as it is stored."""
    asked = [FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])]
    response = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=asked), 12)
    return bytes(response.responses[0].partitions[0].records)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("wanted", CODEC_NAMES)
async def test_a_batch_is_stored_under_the_codec_of_its_topic(
    node: Node, client: Client, codec: int, wanted: str
) -> None:
    await node.create_topic("t", compression_type=wanted)
    batch = make_batch(*VALUES, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await produced(client, "t", batch)).error_code == 0
    found = await stored(client, "t")
    header, sent = read_header(found), read_header(batch)
    assert header.codec == CODEC_NAMES.index(wanted)
    assert header.crc == crc32c(found[21:])
    assert header.size_bytes == len(found)
    assert header[6:] == sent[6:]
    assert [record.value for record in decode_records(found)] == VALUES
    again = await produced(client, "t", batch)
    assert (again.error_code, again.base_offset) == (0, 0)


async def test_a_topic_that_takes_the_producers_codec_stores_the_same_bytes(node: Node, client: Client) -> None:
    await node.create_topic("t", compression_type="producer")
    batch = make_batch(*VALUES, codec=LZ4)
    await produced(client, "t", batch)
    assert (await stored(client, "t"))[21:] == bytes(batch[21:])


async def test_recompression_runs_beside_the_loop_and_keeps_the_order(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t", compression_type="gzip")
    in_loop, threads = threading.get_ident(), set()

    def follow(batch: memoryview, codec: int, level: int | None) -> bytearray:
        threads.add(threading.get_ident())
        return recompressed(batch, codec, level)

    monkeypatch.setattr("pqbroker.broker.services.topics.record_checks.recompressed", follow)
    codecs = [NONE, GZIP, ZSTD, GZIP, GZIP, NONE]
    for codec in codecs:
        client.send(produce_request("t", make_batch(b"v", codec=codec)), 12)
    offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in codecs]
    assert offsets == list(range(len(codecs)))
    assert threads
    assert in_loop not in threads


async def test_a_batch_that_recompression_makes_too_large_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("t", compression_type="uncompressed", max_message_bytes="1000")
    batch = make_batch(b"\0" * 5000, codec=GZIP)
    assert len(batch) < 1000
    assert (await produced(client, "t", batch)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await produced(client, "t", make_batch(b"small", codec=GZIP))).base_offset == 0


async def test_a_level_is_the_codecs_own(node: Node, client: Client) -> None:
    value = b"".join(b"%d," % (number * number % 9973) for number in range(3000))
    sizes = []
    for level in ("1", "9"):
        await node.create_topic(f"t{level}", compression_type="gzip", compression_gzip_level=level)
        await produced(client, f"t{level}", make_batch(value))
        sizes.append(len(await stored(client, f"t{level}")))
    assert sizes[1] < sizes[0]


def lying_batch(count: int, more: bytes = b"") -> bytearray:
    """A compressed batch of two records whose header counts more, as many as its bytes could stand for; `more`: what is
    unpacked behind them."""
    batch = encode_batch([Record(key=b"k", value=b"v")] * 2)
    body = compress(ZSTD, bytes(batch[61:])) + more
    batch[61:] = body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = ZSTD.to_bytes(2, "big")
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return reseal(batch)


@pytest.mark.parametrize(
    "config",
    [
        {"pq_batch_check": "full"},
        {"cleanup_policy": "compact"},
        {"pq_schema": '[{"name": "a", "type": "int64"}]'},
    ],
)
async def test_a_compressed_batch_that_counts_records_it_does_not_hold_is_refused(
    node: Node, client: Client, config: dict[str, str]
) -> None:
    await node.create_topic("t", 1, **config)
    answer = await produced(client, "t", lying_batch(100_000))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert (await produced(client, "t", keyed_batch(b"k", codec=ZSTD))).base_offset == 0


@pytest.mark.parametrize("config", [{"pq_batch_check": "full"}, {"cleanup_policy": "compact"}])
async def test_300_kb_that_count_more_than_a_billion_records_are_refused(
    node: Node, client: Client, config: dict[str, str]
) -> None:
    """They unpack to 9 GiB of zeros; what is unpacked of them is bounded."""
    await node.create_topic("t", 1, **config)
    batch = lying_batch(1_404_478_610, compress(ZSTD, bytes(16 << 20)) * 580)
    answer = await produced(client, "t", batch)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert (await produced(client, "t", keyed_batch(b"k", codec=ZSTD))).base_offset == 0
    await node.create_topic("unchecked")
    assert (await produced(client, "unchecked", batch)).error_code == 0


async def test_a_topic_without_schema_or_compaction_pays_no_call(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert preparation_of(topic) is None
    for name in ("decode_parts", "check_keys", "recompressed"):
        monkeypatch.delattr(record_checks, name)
    monkeypatch.delattr(RecordChecks, "write")
    for batch in (make_batch(*VALUES, codec=ZSTD), make_batch(*VALUES), make_batch(*[b"v"] * 1000)):
        assert (await produced(client, "t", batch)).error_code == 0


async def test_a_topic_can_take_batches_by_their_header_alone(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_batch_check="header", pq_schema='[{"name": "a", "type": "int64"}]')
    assert (await produced(client, "t", lying_batch(100))).error_code == 0


async def test_an_uncompressed_batch_is_read_to_its_end_too(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_batch_check="full")
    damaged = reseal(keyed_batch(b"a", b"b")[:-9] + b"\xff" * 9)
    assert (await produced(client, "t", bytearray(damaged))).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.spec("4.16")
@pytest.mark.parametrize("codec", range(5))
async def test_a_refused_batch_names_the_records_whose_timestamps_are_out_of_range(
    node: Node, client: Client, codec: int
) -> None:
    await node.create_topic("t", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    now_ms = node.clock.now_ms
    times = [now_ms, now_ms - 1001, now_ms + 1001, now_ms - 1000, now_ms + 1000]
    batch = encode_batch([Record(value=b"v", timestamp=time) for time in times], codec=codec)
    answer = await produced(client, "t", batch)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 2]
    assert all(error.batch_index_error_message for error in answer.record_errors)
    long = encode_batch([Record(value=b"v", timestamp=now_ms - 1001)] * 201, codec=codec)
    answer = await produced(client, "t", long)
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


async def test_a_short_compressed_batch_is_never_unpacked_in_the_loop(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of bytes may stand for 16 MiB, and a request has many of them: each would take 7 ms."""
    await node.create_topic("t", partitions=8, pq_batch_check="full")
    in_loop, threads = threading.get_ident(), list[int]()
    decode = record_parts.decode_parts

    def follow(batch: memoryview) -> Iterator[tuple[bytes | None, bytes | None]]:
        threads.append(threading.get_ident())
        return decode(batch)

    monkeypatch.setattr("pqbroker.broker.services.topics.record_checks.decode_parts", follow)
    bomb = encode_batch([Record(key=b"k", value=bytes(16 << 20))], codec=ZSTD)
    assert len(bomb) < 1024
    asked = [PartitionProduceData(index=index, records=memoryview(bytearray(bomb))) for index in range(8)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=asked)])
    answers = (await client.ask(request, 12)).responses[0].partition_responses
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0)] * 8
    assert (len(threads), in_loop in threads) == (8, False)
