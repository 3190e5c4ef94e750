"""The steps of librdkafka's own test of compaction (0077), which is no part of confluent-kafka: a topic is cleaned by
itself, and what is left are the last records of three keys and every record of keys that stand alone."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.waiting import wait_until

# Its segment.ms is 10 000, and its segment.bytes 10 000, which Kafka 4 takes no more.
CONFIGS = {
    "cleanup.policy": "compact", "segment.ms": "500", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400", "file.delete.delay.ms": "10000",
}  # fmt: skip
KEYS = ("k1", "k2", "k3", None)
"""None: a key of its own for each record."""
FILLED = 20
PATIENCE_S = 30.0
HEADER = "rdk_msgid"
Placed = dict[int, bytes]
"""Ids of records by their offsets."""


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker(settings={"log.cleaner.backoff.ms": "50"}) as started:
        yield started


def fill(address: str, topic: str, size: int) -> None:
    """Produce values of one key and a tombstone, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": address, "log_level": 0, "batch.num.messages": 1})
    for _ in range(FILLED - 1):
        producer.produce(topic, bytes(size), b"filling", 0)
    producer.produce(topic, None, b"filling", 0)
    assert producer.flush(PATIENCE_S) == 0


def write(address: str, topic: str, count_of_key: int, codec: str) -> Placed:
    """Produce the interleaved records; return those that compaction has to leave."""
    settings: dict[str, Any] = {"message.max.bytes": 6000, "linger.ms": 10, "compression.codec": codec}
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **settings})
    left: Placed = {}
    total = count_of_key * len(KEYS)
    for number in range(total):
        key = KEYS[number % len(KEYS)]
        first = number - number % len(KEYS)
        is_last = first + len(KEYS) >= total
        is_tombstone = key == "k1" and (is_last or first % 7 == 0)
        identity = b"testid=1, partition=0, msg=%d" % number
        if key is None or is_last:
            left[FILLED + number] = identity
        value = None if is_tombstone else identity
        producer.produce(topic, value, key or str(number), 0, headers=[(HEADER, identity)])
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return left


def consume(address: str, topic: str) -> Placed:
    """Read the partition from its beginning to its end."""
    settings = {"enable.partition.eof": True, "auto.offset.reset": "error", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": address, "log_level": 0, "group.id": topic, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: Placed = {}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, "the end of the partition was not reached"
        record = consumer.poll(1.0)
        if record is None:
            continue
        error = record.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        if error is not None:
            raise KafkaException(error)
        identity = dict(record.headers() or ()).get(HEADER)
        if identity is not None:
            found[record.offset() or 0] = identity.encode() if isinstance(identity, str) else identity
    consumer.close()
    return found


def is_cleaned(calls: HttpCalls, topic: str) -> Callable[[], bool]:
    def ask() -> bool:
        partition = calls.ask("GET", f"/v1/topics/{topic}/partitions/0")
        return bool(partition["cleaning"]["cleaned_to"] == partition["end_offset"])

    return ask


@pytest.mark.parametrize(("count", "codec"), [(10, "none"), (1000, "none"), (10, "snappy"), (10_000, "gzip")])
def test_what_is_left_is_what_librdkafkas_test_wants(
    running: Broker, fresh_name: Callable[[], str], count: int, codec: str
) -> None:
    topic, address = fresh_name(), running.kafka
    with LibrdkafkaDriver(address) as driver:
        driver.create_topic(topic, config=CONFIGS)
    fill(address, topic, 1000)
    left = write(address, topic, count, codec)
    fill(address, topic, 1024)
    wait_until(is_cleaned(HttpCalls(lambda: running.http), topic), "the topic cleaned by itself", PATIENCE_S)
    assert consume(address, topic) == left
