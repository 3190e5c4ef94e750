"""Read what is there as fast as the broker gives it, from the page cache: librdkafka, and bare Fetch requests."""

import time

from confluent_kafka import Consumer, Message, TopicPartition

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
READINGS = 3  # of the same data in one run
_RECEIVE_TIMEOUT_S = 30
_BATCH_MESSAGES = 500


def fill_for_reading(target: Target, scale: Scale) -> int:
    """What the consume workloads read."""
    return fill(target, scale.consume_bytes)


def consume_librdkafka(target: Target, scale: Scale) -> Outcome:
    """confluent-kafka by assignment from offset 0; large values, so that Python is not what is measured.

    A consumer for each reading: one that has reached the end waits there, and would begin anew only after that wait.
    """
    count = sum(end_offsets(target.address, target.topic, target.partitions))
    return read_librdkafka(target, count)


def read_librdkafka(target: Target, count: int) -> Outcome:
    """Read the `count` records that a topic has."""
    took = sum(_reading_s(target, count) for _ in range(READINGS))
    size = READINGS * count * VALUE_BYTES
    return Outcome({MEGABYTES: size / took / 1e6}, payload_bytes=size)


def consume_raw(target: Target, scale: Scale) -> Outcome:
    """One Fetch after another on one connection; the answer is walked by batch, not decoded."""
    ends = end_offsets(target.address, target.topic, target.partitions)
    size = READINGS * sum(ends) * VALUE_BYTES
    with Connection(target.address) as connection:
        started = time.perf_counter()
        for partition, end_offset in [*enumerate(ends)] * READINGS:
            _read_to_end(connection, target.topic, partition, end_offset)
        took = time.perf_counter() - started
    return Outcome({MEGABYTES: size / took / 1e6}, payload_bytes=size)


def _reading_s(target: Target, count: int) -> float:
    consumer = Consumer(LIBRDKAFKA | {"bootstrap.servers": target.address, "log_level": 0, **target.client})
    try:
        consumer.list_topics(target.topic, timeout=10)  # connects, so that the clock does not see it
        started = time.perf_counter()
        consumer.assign([TopicPartition(target.topic, partition, 0) for partition in range(target.partitions)])
        _receive(consumer, count)
        return time.perf_counter() - started
    finally:
        consumer.close()


def _receive(consumer: Consumer, count: int) -> None:
    """Receive `count` messages and look at each; `consume` returns only when it has as many as were asked."""
    left = count
    while left:
        asked = min(_BATCH_MESSAGES, left)
        messages = consumer.consume(asked, _RECEIVE_TIMEOUT_S)
        if len(messages) < asked:
            raise WireError(f"{len(messages)} of {asked} messages were received within {_RECEIVE_TIMEOUT_S} s")
        for message in messages:
            _check(message)
        left -= asked


def _check(message: Message) -> None:
    if message.error():
        raise WireError(str(message.error()))
    value = message.value()
    assert value is not None
    assert len(value) == VALUE_BYTES


def _read_to_end(connection: Connection, topic: str, partition: int, end_offset: int) -> None:
    offset = 0
    while offset < end_offset:
        connection.send(fetch_request(topic, partition, offset, RAW_FETCH_BYTES))
        fetched = read_fetched(connection.receive(), topic)
        if fetched.next_offset is None:
            raise WireError(f"nothing at offset {offset} of {topic}-{partition}, which ends at {end_offset}")
        offset = fetched.next_offset
