"""Histories of Kafka transactions under kills, checked as by Jepsen: python -m tests.faults.log_histories --minutes 10

Producers of both versions of the protocol write to an ordered table, whose tablets move between three cells, and to a
compacted topic, which is cleaned all the time; readers of committed records, consumers of librdkafka among them, read
both; the broker and its workers are killed. All that they did and saw is a history, in which tests/histories finds no
lost, doubled, aborted or torn write, no reader who goes back or passes over a record, and no offset that goes back.
"""

import argparse
import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pqbroker.testing import Broker, broker
from tests.broker.wire import Client
from tests.faults.sorted_kills import kill_workers, patiently
from tests.faults.transactional_producing import LogNotes, WireProducer, leave, produce_with_aiokafka
from tests.histories.committed import committed_values
from tests.histories.history import Ending
from tests.histories.log_checker import FoundLogAnomaly, check_log
from tests.histories.log_history import Found, Reading

PLAIN, KEPT = "plain", "kept"
PARTITIONS: Final = {PLAIN: 3, KEPT: 2}
CELLS: Final = 3
PRODUCERS: Final = 2
"""Producers of each version of the protocol."""
ROUND_S: Final = 60.0
CALM_S: Final = (0.1, 0.8)
KILL_SHARE, WORKER_SHARE, CLEAN_SHARE = 0.2, 0.1, 0.3
SESSION_S: Final = 2.0
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.05
FETCH_BYTES: Final = 20_000
COMMITTED: Final = 1
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "0", "pqbroker.ballast.bytes": "0", "pqbroker.cells.max": "10",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip
KEPT_CONFIG: Final = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000", "segment.ms": "500",
}  # fmt: skip


@dataclass(slots=True)
class LogCounts:
    """Counts of a run."""

    kills: int = 0
    changes: int = 0
    """Moves, cleanings and kills of workers."""
    ending: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    records: int = 0
    """Records that readers got."""

    def add(self, notes: LogNotes) -> None:
        for one in notes.history.produced:
            self.ending[one.ending] += 1
        self.records += sum(len(reading.found) for reading in notes.history.readings)


def run(directory: Path, *, seconds: float, seed: int) -> LogCounts:
    """Run as many rounds as fit. AssertionError when a promise is broken."""
    counts, number, left_s = LogCounts(), 0, seconds
    while left_s > 0:
        _run_round(directory / f"round-{number}", min(left_s, ROUND_S), f"{seed}:{number}", counts)
        left_s -= ROUND_S
        number += 1
    return counts


def _run_round(data: Path, seconds: float, seed: str, counts: LogCounts) -> None:
    notes, chance = LogNotes(PARTITIONS, frozenset({KEPT})), random.Random(seed)
    with broker(data, SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        _make_topics(calls)
        with _load(node, notes, seed):
            _disturb(node, calls, chance, time.monotonic() + seconds, counts)
        _serve_all(calls)
        _read_all(node.kafka, notes)
    counts.add(notes)
    found = check_log(notes.history)
    assert not found, "\n".join([f"seed {seed}: {len(found)} anomalies", *_explained(found[:5], notes)])
    findings = examine_directory(data, {}).found
    left = [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)]
    assert not left, left


def _explained(found: Sequence[FoundLogAnomaly], notes: LogNotes) -> Iterator[str]:
    for one in found:
        yield str(one)
        numbers = [int(word.strip(":,")) for word in str(one).split() if word.strip(":,").isdigit()]
        produced = notes.history.produced
        yield from (f"    {number}: {produced[number]}" for number in numbers[:2] if number < len(produced))


def _make_topics(calls: HttpCalls) -> None:
    for _ in range(CELLS - 1):
        calls.ask("POST", "/v1/cells", {"bundle": "default"})
    calls.ask("POST", "/v1/topics", {"name": KEPT, "partitions": PARTITIONS[KEPT], "config": KEPT_CONFIG})
    schema = [{"name": "text", "type": "string"}]
    calls.ask("POST", "/v1/tables", {"path": f"//{PLAIN}", "schema": schema, "tablet_count": PARTITIONS[PLAIN]})
    calls.ask("PATCH", f"/v1/topics/{PLAIN}/configs", {"configs": {"value.invalid": "keep"}})
    for index in range(PARTITIONS[PLAIN]):
        _mount(calls, index, index % CELLS)


# Disturbances


def _disturb(node: Broker, calls: HttpCalls, chance: random.Random, until: float, counts: LogCounts) -> None:
    """Kill the broker and its workers, move tablets, have the compacted topic cleaned, again and again."""
    while time.monotonic() < until:
        time.sleep(chance.uniform(*CALM_S))
        kind = chance.random()
        if kind < KILL_SHARE:
            node.kill()
            node.start()
            counts.kills += 1
            continue
        counts.changes += 1
        with suppress(BrokerRefusedError, OSError, HTTPException):
            if kind < KILL_SHARE + WORKER_SHARE:
                kill_workers(node.pid)
            elif kind < KILL_SHARE + WORKER_SHARE + CLEAN_SHARE:
                calls.ask("POST", f"/v1/topics/{KEPT}/clean", {})
            else:
                _mount(calls, chance.randrange(PARTITIONS[PLAIN]), chance.randrange(CELLS))


def _mount(calls: HttpCalls, index: int, cell: int) -> None:
    """Have a tablet of the table live in a cell."""
    tablets = {"first_tablet_index": index, "last_tablet_index": index}
    calls.ask("POST", f"/v1/tables/{PLAIN}/mount", {**tablets, "cell_id": str(cell)})


def _serve_all(calls: HttpCalls) -> None:
    """Have all tablets mounted, which a refusal amid a move may have left otherwise."""
    patiently(lambda: calls.ask("POST", f"/v1/tables/{PLAIN}/mount", {}))


# Clients


@contextmanager
def _load(node: Broker, notes: LogNotes, seed: str) -> Iterator[None]:
    """Have clients at work until the block ends, over whatever happens to the broker."""
    stopping = threading.Event()

    with ThreadPoolExecutor(2) as threads:
        working = [
            threads.submit(_consume, node.kafka, notes, stopping, random.Random(f"{seed}:consumer")),
            threads.submit(asyncio.run, _produce_and_read(node.kafka, notes, stopping, seed)),
        ]
        try:
            yield
        finally:
            stopping.set()
            for each in working:
                each.result()


async def _produce_and_read(address: str, notes: LogNotes, stopping: threading.Event, seed: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        producers = [
            WireProducer(address, notes, f"second {number}", random.Random(f"{seed}:second {number}"))
            for number in range(PRODUCERS)
        ]
        for producer in producers:
            tasks.create_task(producer.run(stopping))
        for number in range(PRODUCERS):
            chance = random.Random(f"{seed}:first {number}")
            tasks.create_task(produce_with_aiokafka(address, notes, f"first {number}", stopping, chance))
        for number in range(2):
            tasks.create_task(_read_on(address, notes, stopping, random.Random(f"{seed}:reader {number}")))
        tasks.create_task(_look_at_groups(address, notes, stopping, [producer.group for producer in producers]))


def _consume(address: str, notes: LogNotes, stopping: threading.Event, chance: random.Random) -> None:
    """Read partitions from their start, one after the other, with librdkafka."""
    places = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
    while not stopping.is_set():
        place = chance.choice(places)
        found = consume(address, notes, place, time.monotonic() + SESSION_S)
        notes.history.readings.append(Reading(place, 0, found[0], found[1]))


def consume(
    address: str, notes: LogNotes, place: tuple[str, int], deadline: float
) -> tuple[list[Found], int | None]:
    """Read a partition from its start; what was found, and its last stable offset, if that was reached in time."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "unused", "isolation.level": "read_committed", "log_level": 0,
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error",
            "metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 100,
        }
    )  # fmt: skip
    found: list[Found] = []
    try:
        consumer.assign([TopicPartition(*place, 0)])
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    found.append(Found(message.offset() or 0, _value_of(message.value()), notes.moment()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found, message.offset()
    finally:
        consumer.close()
    return found, None


async def _read_on(address: str, notes: LogNotes, stopping: threading.Event, chance: random.Random) -> None:
    """Follow partitions by Fetch requests, one after the other, from their start or from where somebody was."""
    places = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
    known = dict.fromkeys(places, 0)
    while not stopping.is_set():
        place = chance.choice(places)
        start = chance.choice((0, known[place]))
        deadline = asyncio.get_running_loop().time() + SESSION_S
        reading = await read_over_wire(address, notes, place, start, deadline)
        notes.history.readings.append(reading)
        known[place] = reading.end or 0


async def read_over_wire(
    address: str, notes: LogNotes, place: tuple[str, int], start: int, deadline: float | None
) -> Reading:
    """Read a partition from an offset on until it is time, or, where there is none, to its end, when all is over."""
    found: list[Found] = []
    position, client = start, None
    host, _, port = address.rpartition(":")
    is_last = deadline is None
    while deadline is None or asyncio.get_running_loop().time() < deadline:
        invoked = notes.moment()
        try:
            client = client or await Client.connect(host, int(port))
            data = await _fetch(client, place, position)
        except (OSError, EOFError, TimeoutError):
            await leave(client)
            client, data = None, None
        if data is None or data.error_code:
            await asyncio.sleep(PAUSE_S)
            continue
        notes.seen(("stable", place), data.last_stable_offset, invoked)
        notes.seen(("end", place), data.high_watermark, invoked)
        named = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        records: Any = data.records
        content = bytes(records or b"")
        values, following = committed_values(content, named)
        moment = notes.moment()
        found += [Found(offset, value, moment) for offset, value in values if offset >= position]
        if is_last and position >= data.last_stable_offset:
            break
        position = max(position, following)
    await leave(client)
    return Reading(place, start, found, position, is_last)


async def _fetch(client: Client, place: tuple[str, int], offset: int) -> PartitionData:
    partition = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=COMMITTED,
        topics=[FetchTopic(topic=place[0], partitions=[partition])],
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        response = await client.ask(request, 12)
    data: PartitionData = response.responses[0].partitions[0]
    return data


async def _look_at_groups(address: str, notes: LogNotes, stopping: threading.Event, groups: Sequence[str]) -> None:
    """Note the offsets that transactions have committed."""
    host, _, port = address.rpartition(":")
    client = None
    while not stopping.is_set():
        await asyncio.sleep(PAUSE_S)
        try:
            client = client or await Client.connect(host, int(port))
            for group in groups:
                topic = OffsetFetchRequestTopic(name=PLAIN, partition_indexes=[0])
                invoked = notes.moment()
                answer = await client.ask(OffsetFetchRequest(group_id=group, topics=[topic]), 6)
                found = answer.topics[0].partitions[0]
                if not answer.error_code and not found.error_code:
                    notes.seen(("group", group), max(found.committed_offset, 0), invoked)
        except (OSError, EOFError):
            await leave(client)
            client = None
    await leave(client)


def _value_of(content: bytes | None) -> int:
    return int((content or b"").split(b":")[0])


def _read_all(address: str, notes: LogNotes) -> None:
    """Read all partitions to their ends, once no transaction is open, twice over."""
    for topic, count in PARTITIONS.items():
        for index in range(count):
            place = (topic, index)
            last = asyncio.run(read_over_wire(address, notes, place, 0, None))
            notes.history.readings.append(last)
            found, end = consume(address, notes, place, time.monotonic() + PATIENCE_S)
            assert end is not None, f"{place} is not read to its end"
            notes.history.readings.append(Reading(place, 0, found, end, is_last=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.log_histories", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-histories-") as scratch:
        seen = run(Path(scratch), seconds=60 * options.minutes, seed=options.seed)
    print(
        f"{seen.ending[Ending.OK]} transactions committed, {seen.ending[Ending.FAIL]} aborted, "
        f"{seen.ending[Ending.UNKNOWN]} in doubt, {seen.records} records read, under {seen.kills} kills and "
        f"{seen.changes} moves, cleanings and kills of workers: no anomaly (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
