"""`kill -9` of a broker, and of the processes that clean, under writes of a compacted topic that is cleaned all the
time: python -m tests.faults.cleaning_kills --kills 100

After each kill a consumer reads the log from its start: each record is the one that was acknowledged there, in order,
and of each key at least the last one that was acknowledged is read; a deleted key does not come back. In the end the
topic is cleaned on command: it has one record a key, and the doctor finds nothing.
"""

import argparse
import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, Producer, TopicPartition

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.faults.sorted_kills import kill_workers, patiently
from tests.support.waiting import wait_until

TOPIC: Final = "state"
PARTITIONS: Final = 2
KEYS: Final = 150
"""Keys of each partition."""
DELETED: Final = 0.15
LARGE: Final = 0.02
IN_FLIGHT_MAX: Final = 40
PAUSE_S: Final = 0.002
UNDER_LOAD_MAX_S: Final = 0.6
WORKER_SHARE: Final = 0.4
"""Share of the kills that hit workers alone."""
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.05
READ_WAIT_S: Final = 0.1
"""Longest wait for the rest of what is read at once."""
LAST: Final = b"last"
"""Key of the record behind all that a reader is owed."""
SETTINGS: Final = {"log.cleaner.backoff.ms": "0", "log.cleaner.threads": "2", "pqbroker.ballast.bytes": "0"}
CONFIG: Final = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000", "segment.ms": "500",
}  # fmt: skip
Found = Sequence[tuple[int, bytes, bytes | None]]
Reader = Callable[[str, int, int], Found]


class Sent(NamedTuple):
    """One record that was acknowledged; a value of None deletes its key."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Book:
    """The acknowledged records of one partition, by offset."""

    log: dict[int, Sent] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, sent: Sent, error: Any, message: Any) -> None:
        with self.guard:
            if error is not None:
                self.failures.append(str(error))
                return
            before = self.log.setdefault(message.offset(), sent)
            assert before is sent, f"offset {message.offset()} was acknowledged for {before} and {sent}"

    def last(self) -> dict[bytes, int]:
        """The last offset of each key."""
        with self.guard:
            return {sent.key: offset for offset, sent in sorted(self.log.items())}

    def check(self, found: Found, owed: Mapping[bytes, int]) -> None:
        """Compare what was read with what was acknowledged; `owed`: the last offsets when the reading began."""
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets)), "offsets are read out of order"
        with self.guard:
            for offset, key, value in found:
                sent = self.log.get(offset)
                assert sent is None or sent == (key, value), f"offset {offset} holds {key!r}, acknowledged was {sent}"
            read = {key: offset for offset, key, _ in found}
            for key, offset in owed.items():
                if key in read:
                    assert read[key] >= offset, f"key {key!r} is read as of {read[key]}, it was written at {offset}"
        for key, offset in owed.items():
            if key not in read and self.log[offset].value is not None:
                self._await_later(key, offset, found[-1][0])

    def _await_later(self, key: bytes, offset: int, end: int) -> None:
        """Wait until it is acknowledged that a key which was not read was written again behind the end of the reading:
        it may have been cleaned meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while self.last()[key] <= end:
            assert time.monotonic() < deadline, f"key {key!r} is gone: it was written at {offset}, and read up to {end}"
            time.sleep(LOOK_S)


@dataclass(slots=True)
class Outcome:
    """Counts of a run."""

    broker_kills: int = 0
    worker_kills: int = 0
    records: int = 0
    passes: int = 0
    """Passes that ended well, as far as brokers lived to tell it."""
    records_gone: int = 0


def run(directory: Path, *, kills: int, seed: int) -> Outcome:
    """Kill a broker, or its workers, so often under load. AssertionError when a promise is broken."""
    outcome, chance = Outcome(), random.Random(seed)
    books = [Book() for _ in range(PARTITIONS)]
    with broker(directory / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS, "config": CONFIG})
        with load(node, books, seed):
            for number in range(kills):
                time.sleep(chance.uniform(0, UNDER_LOAD_MAX_S))
                if chance.random() < WORKER_SHARE:
                    outcome.worker_kills += kill_workers(node.pid)
                    patiently(lambda: calls.ask("POST", f"/v1/topics/{TOPIC}/clean", {}))  # else not for a minute
                else:
                    _note_passes(calls, outcome)
                    node.kill()
                    node.start()
                    outcome.broker_kills += 1
                reader = (read_with_librdkafka, read_with_aiokafka)[number % 2]
                check(node, books, reader)
            wait_until(lambda: outcome.passes + _totals(calls)["passes"] > 1, "passes of the cleaner", PATIENCE_S)
        _note_passes(calls, outcome)
        clean_all(calls)
        for reader in (read_with_librdkafka, read_with_aiokafka):
            for found in check(node, books, reader):
                keys = [key for _, key, _ in found if key != LAST]
                assert len(keys) == len(set(keys)), "a key has two records after its topic was cleaned"
    outcome.records = sum(len(book.log) for book in books)
    findings = examine_directory(directory / "data", {}).found
    left = [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)]
    assert not left, left
    return outcome


def check(node: Broker, books: Sequence[Book], reader: Reader) -> list[Found]:
    """Read all partitions from their start, and compare; what was read."""
    read = []
    for index, book in enumerate(books):
        owed = book.last()
        found = reader(node.kafka, index, end_of(node.kafka, index))
        book.check(found, owed)
        assert not book.failures, book.failures[:3]
        read.append(found)
    return read


def end_of(address: str, index: int) -> int:
    """Write one record more; its offset."""
    offsets: list[int] = []
    producer = Producer(_settings(address))
    producer.produce(TOPIC, b"end", LAST, index, on_delivery=lambda _, message: offsets.append(message.offset() or 0))
    assert producer.flush(PATIENCE_S) == 0
    return offsets[0]


def read_with_librdkafka(address: str, index: int, last: int) -> Found:
    """Read a partition from its start up to an offset."""
    found: list[tuple[int, bytes, bytes | None]] = []
    settings = {
        "bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "log_level": 0,
        "auto.offset.reset": "error",
    }  # fmt: skip
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(TOPIC, index, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while not found or found[-1][0] < last:
            assert time.monotonic() < deadline, f"nothing behind offset {found[-1][0] if found else 0} of {last}"
            for record in consumer.consume(1000, READ_WAIT_S):
                assert record.error() is None, record.error()
                found.append((record.offset() or 0, record.key() or b"", record.value()))
    return found


def read_with_aiokafka(address: str, index: int, last: int) -> Found:
    """Read a partition from its start up to an offset."""

    async def read() -> Found:
        found: list[tuple[int, bytes, bytes | None]] = []
        consumer = AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="none")
        await consumer.start()
        try:
            place = Place(TOPIC, index)
            consumer.assign([place])
            consumer.seek(place, 0)
            async with asyncio.timeout(PATIENCE_S):
                while not found or found[-1][0] < last:
                    record = await consumer.getone()
                    found.append((record.offset, record.key or b"", record.value))
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def clean_all(calls: HttpCalls) -> None:
    """Have all partitions cleaned, and wait for it."""
    patiently(lambda: calls.ask("POST", f"/v1/topics/{TOPIC}/clean", {}))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        shown = [calls.ask("GET", f"/v1/topics/{TOPIC}/partitions/{index}")["cleaning"] for index in range(PARTITIONS)]
        if all(one["state"] == "clean" for one in shown):
            return
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)


def _totals(calls: HttpCalls) -> Mapping[str, int]:
    totals: Mapping[str, int] = patiently(lambda: calls.ask("GET", "/v1/cleaner"))
    return totals


def _note_passes(calls: HttpCalls, outcome: Outcome) -> None:
    """Count what the cleaner of a broker that is about to be killed has done."""
    totals = _totals(calls)
    outcome.passes += totals["passes"]
    outcome.records_gone += totals["records_gone"]


@contextmanager
def load(node: Broker, books: Sequence[Book], seed: int) -> Iterator[None]:
    """Write records until the block ends, over whatever happens to the broker."""
    stopping = threading.Event()
    producer = Producer(_settings(node.kafka))
    thread = threading.Thread(target=_write, args=(producer, books, stopping, random.Random(f"{seed}:load")))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        assert producer.flush(PATIENCE_S) == 0, "records neither acknowledged nor failed"


def _write(producer: Producer, books: Sequence[Book], stopping: threading.Event, chance: random.Random) -> None:
    number = 0
    while not stopping.wait(PAUSE_S):
        producer.poll(0)
        if len(producer) >= IN_FLIGHT_MAX:
            continue
        number += 1
        index = chance.randrange(PARTITIONS)
        key = b"%d" % (KEYS * index + chance.randrange(KEYS))
        fill = 5_000 if chance.random() < LARGE else chance.randrange(60)
        sent = Sent(key, None if chance.random() < DELETED else b"%d:" % number + bytes(fill))
        producer.produce(TOPIC, sent.value, key, index, on_delivery=partial(books[index].answered, sent))


def _settings(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, "log_level": 0,
        "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50, "message.timeout.ms": int(1000 * PATIENCE_S),
    }  # fmt: skip


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cleaning_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:
        seen = run(Path(scratch), kills=options.kills, seed=options.seed)
    kills = f"{seen.broker_kills} kills of the broker, {seen.worker_kills} of workers"
    cleaned = f"{seen.passes} passes at least took {seen.records_gone} out"
    print(f"{kills}: {seen.records} records acknowledged, {cleaned}; each key has its last one (seed {options.seed})")


if __name__ == "__main__":
    main()
