"""Programs that copy a topic into another one in transactions: python -m tests.support.transforms LIBRARY ADDRESS …

Each transaction holds the records of one poll and the offsets behind them; every third one is aborted and done again. A
producer that was fenced, or has met an error for good, is replaced by a new one. `Transform.java` is the same in Java,
`transform.go` with franz-go.
Arguments behind the library and the address: source, target, group, transactional id, number of records of the source.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.support.drivers.franz_go_driver import built
from tests.support.java import program
from tests.support.java.program import NEWER, OLDER

RECORDS_A_POLL = 20
ABORTED_EVERY = 3
TIMEOUT_S = 20
WITHOUT_BROKER_S = 0.2
"""Time between tries of a program that has failed."""
SESSION_MS = 6_000
"""Time after which the partitions of a program that was killed go to its successor."""


_LIBRDKAFKA = {"log_level": 0, "metadata.recovery.strategy": "none"}
"""With its default, `rebootstrap`, librdkafka 2.15 may wait for ever in send_offsets_to_transaction with a timeout: its
cache of coordinators gives it a handle of the only broker, which it gave up when that was killed."""


@dataclass(frozen=True, slots=True)
class Task:
    """A copy: from where, to where, as whom, and how many records."""

    address: str
    source: str
    target: str
    group: str
    transactional_id: str
    total: int


def copy_with_confluent(task: Task) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": task.address, "group.id": task.group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed", "reconnect.backoff.max.ms": 200,
            "session.timeout.ms": SESSION_MS, **_LIBRDKAFKA,
        }
    )  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": task.address, "transactional.id": task.transactional_id,
            "reconnect.backoff.max.ms": 200, **_LIBRDKAFKA,
        }
    )  # fmt: skip
    try:
        producer.init_transactions(TIMEOUT_S)
        consumer.subscribe([task.source])
        number = 0
        while True:
            messages = [each for each in consumer.consume(RECORDS_A_POLL, 0.2) if each.error() is None]
            assigned = consumer.assignment()
            known = consumer.committed(assigned, TIMEOUT_S) if assigned else []
            if sum(max(place.offset, 0) for place in known) >= task.total:
                return
            if not messages:
                continue
            number += 1
            producer.begin_transaction()
            ends: dict[int, int] = {}
            for message in messages:
                partition = message.partition() or 0
                producer.produce(task.target, message.value(), partition=partition)
                ends[partition] = (message.offset() or 0) + 1
            offsets = [TopicPartition(task.source, partition, offset) for partition, offset in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            if number % ABORTED_EVERY:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
                for place in known:
                    consumer.seek(TopicPartition(task.source, place.partition, max(place.offset, 0)))
    finally:
        consumer.close()


def copy_with_kafka_python(task: Task) -> None:
    consumer: Any = KafkaConsumer(
        task.source, bootstrap_servers=task.address, group_id=task.group, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", max_poll_records=RECORDS_A_POLL,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=SESSION_MS // 3,
    )  # fmt: skip
    producer: Any = KafkaProducer(bootstrap_servers=task.address, transactional_id=task.transactional_id)
    try:
        producer.init_transactions()
        number = 0
        while True:
            polled = consumer.poll(timeout_ms=200)
            known = {place: consumer.committed(place) or 0 for place in consumer.assignment()}
            if known and sum(known.values()) >= task.total:
                return
            if not polled:
                continue
            number += 1
            producer.begin_transaction()
            for records in polled.values():
                for record in records:
                    producer.send(task.target, record.value, partition=record.partition)
            offsets = {place: OffsetAndMetadata(found[-1].offset + 1, "", -1) for place, found in polled.items()}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if number % ABORTED_EVERY:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
                for place, offset in known.items():
                    consumer.seek(place, offset)
    finally:
        producer.close(timeout=1)
        consumer.close()


class _OwnPositions(ConsumerRebalanceListener):  # type: ignore[misc]
    """Keeps the positions of a group's only member when it joins again amid a transaction: aiokafka would go back to
    offsets that were committed before, since it neither asks for stable ones nor names its generation (KIP-447)."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.known: dict[Any, int] = {}

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing is lost: nobody else gets them."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        for place in assigned & self.known.keys():
            self._consumer.seek(place, self.known[place])


async def _copy_with_aiokafka(task: Task) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.address, group_id=task.group, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 3,
    )  # fmt: skip
    positions = _OwnPositions(consumer)
    consumer.subscribe([task.source], listener=positions)
    producer = AIOKafkaProducer(bootstrap_servers=task.address, transactional_id=task.transactional_id)
    try:
        await producer.start()
        await consumer.start()
        number = 0
        while True:
            polled = await consumer.getmany(timeout_ms=200, max_records=RECORDS_A_POLL)
            offsets = {place: found[-1].offset + 1 for place, found in polled.items()}
            positions.known |= offsets
            known = {place: await consumer.committed(place) or 0 for place in consumer.assignment()}
            if known and sum(known.values()) >= task.total:
                return
            if not polled:
                continue
            number += 1
            await producer.begin_transaction()
            for records in polled.values():
                for record in records:
                    await producer.send(task.target, record.value, partition=record.partition)
            await producer.send_offsets_to_transaction(offsets, task.group)
            if number % ABORTED_EVERY:
                await producer.commit_transaction()
            else:
                await producer.flush()
                await producer.abort_transaction()
                for place, records in polled.items():  # what it knows as committed may lie before that
                    positions.known[place] = records[0].offset
                    consumer.seek(place, records[0].offset)
    finally:
        await producer.stop()
        await consumer.stop()


def copy_with_aiokafka(task: Task) -> None:
    async def copy() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S):
            await _copy_with_aiokafka(task)

    asyncio.run(copy())


COPIES: dict[str, Callable[[Task], None]] = {
    "aiokafka": copy_with_aiokafka, "confluent-kafka": copy_with_confluent, "kafka-python": copy_with_kafka_python,
}  # fmt: skip
JAVA = {f"Java kafka-clients {version}": version for version in (OLDER, NEWER)}
FRANZ_GO = "franz-go"
LIBRARIES = (*COPIES, *JAVA, FRANZ_GO)
_FAILURES = (AiokafkaError, KafkaException, KafkaError, TimeoutError, AssertionError, asyncio.CancelledError)
"""The last one: aiokafka's consumer may end with that of a task of its own."""


def start(library: str, task: Task, errors: "IO[str] | None" = None) -> "subprocess.Popen[str]":
    """Start a program that copies; its last line is `done`. `errors`: gets what it prints of failures."""
    words = [task.address, task.source, task.target, task.group, task.transactional_id, str(task.total)]
    if library in JAVA:
        return program.start("Transform", words, JAVA[library], errors=errors)
    if library == FRANZ_GO:
        command = [str(built()), "transform", *words]
    else:
        command = [sys.executable, "-m", __name__, library, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)


def main(library: str, address: str, *words: str) -> None:
    source, target, group, transactional_id, total = words
    task = Task(address, source, target, group, transactional_id, int(total))
    while True:
        try:
            COPIES[library](task)
        except _FAILURES as failed:
            print(f"begins again: {type(failed).__name__}: {failed}", file=sys.stderr)
            time.sleep(WITHOUT_BROKER_S)
        else:
            print("done")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
