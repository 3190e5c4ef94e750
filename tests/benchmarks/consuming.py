"""Read what is there as fast as the broker gives it, from the page cache: librdkafka, and bare Fetch requests."""

import time

from confluent_kafka import Consumer, TopicPartition

from tests.benchmarks.figures import MEGABYTES
from tests.benchmarks.producing import VALUE_BYTES, fill
from tests.benchmarks.wire import Connection, WireError, end_offsets, fetch_request, read_fetched
from tests.benchmarks.workload import Outcome, Scale, Target

RAW_FETCH_BYTES = 1 << 20  # what a consumer asks of a partition by default
LIBRDKAFKA = {
    "group.id": "benchmark",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 262_144,
    "fetch.queue.backoff.ms": 5,  # the default of a second would measure the client's pauses
}
_POLL_TIMEOUT_S = 30


def fill_for_reading(target: Target, scale: Scale) -> int:
    """What the consume workloads read."""
    return fill(target, scale.consume_bytes)


def consume_librdkafka(target: Target, scale: Scale) -> Outcome:
    """confluent-kafka by assignment from offset 0; large values, so that Python is not what is measured."""
    count = sum(end_offsets(target.address, target.topic, target.partitions))
    consumer = Consumer(LIBRDKAFKA | {"bootstrap.servers": target.address})
    try:
        consumer.list_topics(target.topic, timeout=10)
        started = time.perf_counter()
        consumer.assign([TopicPartition(target.topic, partition, 0) for partition in range(target.partitions)])
        seen = 0
        while seen < count:
            seen += _values_polled(consumer)
        took = time.perf_counter() - started
    finally:
        consumer.close()
    return Outcome({MEGABYTES: count * VALUE_BYTES / took / 1e6}, payload_bytes=count * VALUE_BYTES)


def consume_raw(target: Target, scale: Scale) -> Outcome:
    """One Fetch after another on one connection; the answer is walked by batch, not decoded."""
    count = sum(end_offsets(target.address, target.topic, target.partitions))
    with Connection(target.address) as connection:
        started = time.perf_counter()
        for partition in range(target.partitions):
            _read_to_end(connection, target.topic, partition, count // target.partitions)
        took = time.perf_counter() - started
    return Outcome({MEGABYTES: count * VALUE_BYTES / took / 1e6}, payload_bytes=count * VALUE_BYTES)


def _values_polled(consumer: Consumer) -> int:
    messages = consumer.consume(500, _POLL_TIMEOUT_S)
    if not messages:
        raise WireError(f"nothing was received for {_POLL_TIMEOUT_S} s")
    for message in messages:
        if message.error():
            raise WireError(str(message.error()))
        value = message.value()
        assert value is not None
        assert len(value) == VALUE_BYTES
    return len(messages)


def _read_to_end(connection: Connection, topic: str, partition: int, end_offset: int) -> None:
    offset = 0
    while offset < end_offset:
        connection.send(fetch_request(topic, partition, offset, RAW_FETCH_BYTES))
        fetched = read_fetched(connection.receive(), topic)
        if fetched.next_offset is None:
            raise WireError(f"nothing at offset {offset} of {topic}-{partition}, which ends at {end_offset}")
        offset = fetched.next_offset
