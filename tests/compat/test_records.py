"""Every client library writes and reads records, by assignment and explicit offsets."""

import random
import threading
from collections.abc import Callable

import pytest

from tests.support.drivers.driver import RECENT_MS, Driver, Message
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.wire import CODECS, LATEST, Wire

LARGE_BYTES = 1_000_000


def messages(count: int) -> list[Message]:
    """Records with keys and none, headers and none, a tombstone now and then, and values worth compressing."""
    return [
        Message(
            value=None if number % 7 == 3 else b"value %d " % number * 20,
            key=None if number % 7 == 5 else b"key-%d" % (number % 4),
            headers=(("trace", b"\x00\xff%d" % number), ("trace", b""), ("kind", b"odd")) if number % 3 == 0 else (),
            timestamp_ms=RECENT_MS + 10 * number,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_writes_every_client_reads(
    client: Driver, others: list[Driver], kafka: str, topic: str, codec: str
) -> None:
    written = messages(40)
    offsets = client.produce(topic, written, codec=codec)
    assert offsets == list(range(40))
    with Wire(kafka) as wire:
        stored = [header for header, _ in wire.log(topic, 0)]
    assert {header.codec for header in stored} == {CODECS[codec]}
    for reader in others:
        assert reader.read(topic, count=40) == list(enumerate(written)), type(reader).__name__


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_broker_compresses_every_client_reads(
    others: list[Driver], kafka: str, fresh_name: Callable[[], str], codec: str
) -> None:
    written, topic = messages(40), fresh_name()
    others[0].create_topic(topic, config={"compression.type": "uncompressed" if codec == "none" else codec})
    others[0].produce(topic, written, codec="none" if codec == "gzip" else "gzip")
    with Wire(kafka) as wire:
        assert {header.codec for header, _ in wire.log(topic, 0)} == {CODECS[codec]}
    for reader in others:
        assert reader.read(topic, count=40) == list(enumerate(written)), type(reader).__name__


def test_an_idempotent_producer_numbers_what_it_writes(client: Driver, kafka: str, topic: str) -> None:
    client.produce(topic, messages(3))
    client.produce(topic, messages(3))
    with Wire(kafka) as wire:
        stored = [header for header, _ in wire.log(topic, 0)]
    assert all(header.producer_id >= 0 and header.producer_epoch >= 0 for header in stored)
    assert len({header.producer_id for header in stored}) == 2, "each producer has an id of its own"
    assert [header.base_sequence for header in stored if header.base_offset in (0, 3)] == [0, 0]


def test_values_of_a_million_bytes_come_back_whole(client: Driver, others: list[Driver], topic: str) -> None:
    source = random.Random(7)
    written = [Message(source.randbytes(LARGE_BYTES), key=b"large-%d" % number) for number in range(3)]
    assert client.produce(topic, written) == [0, 1, 2]
    for reader in others:
        assert reader.read(topic, count=3) == list(enumerate(written)), type(reader).__name__


def test_a_million_bytes_that_compress_come_back_whole(client: Driver, topic: str) -> None:
    written = [Message(b"0123456789" * (LARGE_BYTES // 10))]
    assert client.produce(topic, written, codec="gzip") == [0]
    assert client.read(topic, count=1) == [(0, written[0])]


@pytest.mark.parametrize("acks", [0, 1])
def test_producers_that_wait_for_less_lose_nothing(client: Driver, kafka: str, topic: str, acks: int) -> None:
    written = messages(20)
    client.produce(topic, written, acks=acks, idempotent=False)
    with Wire(kafka) as wire:
        wait_until(lambda: wire.offset(topic, 0, LATEST) == (0, 20), "twenty records there")
    assert client.read(topic, count=20) == list(enumerate(written))


def test_reading_starts_at_exactly_the_offset_asked_for(client: Driver, topic: str) -> None:
    written = messages(30)
    client.produce(topic, written[:20])
    client.produce(topic, written[20:])
    for offset in (0, 7, 19, 20, 29):
        assert client.read(topic, count=1, offset=offset) == [(offset, written[offset])]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_time_leads_to_the_first_record_not_older(client: Driver, topic: str, codec: str) -> None:
    client.produce(topic, messages(30), codec=codec)
    assert client.offset_at(topic, RECENT_MS - 1) == 0
    assert client.offset_at(topic, RECENT_MS + 10 * 17) == 17
    assert client.offset_at(topic, RECENT_MS + 10 * 17 + 1) == 18
    assert client.offset_at(topic, RECENT_MS + 10 * 29) == 29
    assert client.offset_at(topic, RECENT_MS + 10 * 29 + 1) is None


def test_bounds_follow_what_is_written(client: Driver, topic: str) -> None:
    assert client.bounds(topic) == (0, 0)
    client.produce(topic, messages(12))
    assert client.bounds(topic) == (0, 12)


def test_partitions_are_logs_of_their_own(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    client.create_topic(name, partitions=3)
    written = messages(9)
    for partition in range(3):
        client.produce(name, written[3 * partition : 3 * partition + 3], partition=partition)
    for partition in range(3):
        assert client.bounds(name, partition) == (0, 3)
        assert client.read(name, count=3, partition=partition) == list(enumerate(written[3 * partition :][:3]))


def test_producing_to_an_unknown_topic_creates_it(client: Driver, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    written = messages(2)
    assert client.produce(name, written) == [0, 1]
    assert client.read(name, count=2) == list(enumerate(written))


def test_a_reader_at_the_end_gets_what_comes(client: Driver, others: list[Driver], topic: str) -> None:
    written = messages(4)
    client.produce(topic, written[:3])
    found: list[tuple[int, Message]] = []
    reader = threading.Thread(target=lambda: found.extend(client.read(topic, count=2, offset=2)))
    reader.start()
    writer = next(driver for driver in others if type(driver) is not type(client))
    writer.produce(topic, written[3:])
    reader.join(DEADLINE_S)
    assert found == [(2, written[2]), (3, written[3])]


def test_many_batches_come_back_in_order(client: Driver, topic: str) -> None:
    source = random.Random(11)
    written = [Message(source.randbytes(900), key=b"%d" % number) for number in range(3000)]
    assert client.produce(topic, written) == list(range(3000))
    read = client.read(topic, count=3000)
    assert [offset for offset, _ in read] == list(range(3000))
    assert all(message == expected for (_, message), expected in zip(read, written, strict=True))
