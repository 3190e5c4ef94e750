"""Deaths and pauses of the processes of a broker of two nodes: python -m tests.faults.node_kills --kills 100

A node is killed or stopped for a while, both are killed, or their parent is, and the broker started again. Meanwhile
idempotent producers write to partitions of both nodes, members of groups of two libraries read and commit, and programs
copy in Kafka transactions. What was acknowledged is there once and in order, no committed offset is lost or goes back,
each input is copied once, no producer meets an error for good, and the doctor finds nothing in the directory.
"""

import asyncio
import logging
import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from pqbroker.fixture.http_calls import HttpCalls
from tests.faults.killed_load import check_directory, run_from_command_line, under_load
from tests.faults.load import Load, check
from tests.faults.transactional_copies import (
    LOADING,
    RECORDS_A_SECOND,
    Copy,
    Counts,
    await_end,
    await_programs,
    check_ended,
    copies_of,
    create_topics,
    written,
)
from tests.faults.transactional_copies import check as check_copy
from tests.support import transforms
from tests.support.drivers.driver import RefusedError
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.several_nodes import SeveralNodes
from tests.support.transforms import JAVA
from tests.support.waiting import wait_until

NODES: Final = 2
SETTINGS: Final = {
    "pqbroker.node.return.ms": "500", "group.initial.rebalance.delay.ms": "0", "pqbroker.node.silence.ms": "3000",
}  # fmt: skip
TOPIC: Final = "load"
PARTITIONS: Final = 6
PATIENCE_S: Final = 180.0
CALM_S: Final = (0.2, 3.0)
STOPPED_S: Final = (0.1, 6.0)
"""Seconds that a process is stopped: short of the silence that its parent allows, and beyond it."""
COPIED_S: Final = 4.0
"""Seconds for each kill that the inputs of the copies are written."""
FATAL: Final = "FATAL"
"""Word in librdkafka's errors that end a producer for good."""
LIBRARIES: Final = ("confluent-kafka", "aiokafka", list(JAVA)[-1])
_LOOK_S: Final = 0.2


@dataclass(slots=True)
class Outcome:
    """Counts of a run."""

    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    """Records that members of groups have read and whose offsets they have committed."""
    copied: Counts = field(default_factory=Counts)


def run(directory: Path, *, kills: int, seed: int, libraries: Sequence[str] = LIBRARIES) -> Outcome:
    """Do `kills` things to the processes under load. AssertionError, Broken when a promise is broken."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it has a line for each connection that it misses
    outcome, chance = Outcome(), random.Random(seed)
    nodes = SeveralNodes(directory / "data", NODES, SETTINGS, directory / "log")
    try:
        nodes.start()
        nodes.keep_addresses()
        with ExitStack() as stack:
            errors = stack.enter_context((directory / "errors").open("w+", encoding="utf-8"))
            copies = list(copies_of(nodes.kafka, libraries, round(kills * COPIED_S * RECORDS_A_SECOND)))
            _work(nodes, copies, errors, partial(_disturb, nodes, chance, kills, outcome), outcome, seed)
        assert nodes.stop() == 0
    finally:
        nodes.end()
    check_directory(directory / "data")
    return outcome


def _work(
    nodes: SeveralNodes, copies: Sequence[Copy], errors: IO[str],
    disturb: "Callable[[Load, Sequence[_Member]], None]", outcome: Outcome, seed: int,
) -> None:  # fmt: skip
    """Run all clients while `disturb` does, then check what they have seen and what is there."""
    _create_topics(nodes, copies)
    groups: Sequence[_Member] = [_LibrdkafkaMember(nodes.kafka, "confluent"), _AiokafkaMember(nodes.kafka, "aiokafka")]
    programs = [transforms.start(copy.library, copy.task, errors) for copy in copies]
    try:
        await_programs(HttpCalls(lambda: nodes.http), copies)
        with Load(nodes.kafka, TOPIC, list(range(PARTITIONS)), seed, timeout_s=PATIENCE_S) as load:
            with under_load([group.run for group in groups]), written(nodes.kafka, copies):
                disturb(load, groups)
            load.settle()
        for copy in copies:
            await_end(nodes.kafka, copy)
        ended = [program.poll() for program in programs]  # members of one group do not know when all is copied
        assert set(ended) <= {None, 0}, ended
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    load.check_failures()
    outcome.acknowledged = check(load, nodes.kafka)
    for group in groups:
        group.check()
        outcome.read += group.read
    for copy in {copy.task.group: copy for copy in copies}.values():
        check_copy(nodes.kafka, copy, outcome.copied)
    check_ended(HttpCalls(lambda: nodes.http))
    errors.seek(0)
    fatal = [line for line in errors if FATAL in line]
    assert not fatal, fatal[:3]


def _create_topics(nodes: SeveralNodes, copies: Sequence[Copy]) -> None:
    """Create topics with a tablet for each partition, so that both nodes have some."""
    calls = HttpCalls(lambda: nodes.http)

    def are_open() -> bool:
        return {cell["health"] for cell in calls.ask("GET", "/v1/cells")["cells"]} == {"good"}

    wait_until(are_open, "all cells are open", PATIENCE_S)
    config = {"pq.partitions.per.tablet": "1"}
    LibrdkafkaDriver(nodes.kafka).create_topic(TOPIC, partitions=PARTITIONS, config=config)
    create_topics(nodes.kafka, copies, config)


def _disturb(
    nodes: SeveralNodes, chance: random.Random, kills: int, outcome: Outcome, load: Load, groups: "Sequence[_Member]"
) -> None:
    faults: Sequence[tuple[str, int, Callable[[], None]]] = (
        ("node killed", 4, lambda: _kill(nodes, [chance.randint(1, NODES)])),
        ("node stopped", 3, lambda: _stop_a_while(nodes.pids()[chance.randint(1, NODES)], chance.uniform(*STOPPED_S))),
        ("all nodes killed", 1, lambda: _kill(nodes, list(range(1, NODES + 1)))),
        ("parent stopped", 1, lambda: _stop_parent(nodes, chance)),
        ("parent killed", 2, lambda: _restart(nodes)),
    )
    for _ in range(kills):
        time.sleep(chance.uniform(*CALM_S))
        ((name, _, fault),) = chance.choices(faults, [weight for _, weight, _ in faults])
        print(f"{name} ({nodes.pids()})", flush=True)
        fault()
        outcome.faults[name] += 1
        _await_acknowledgements(load)
        for group in groups:
            group.check()


def _await_acknowledgements(load: Load) -> None:
    """Return when each producer has one acknowledgement more."""
    before = {book.producer: book.acknowledged for book in load.books}

    def is_acknowledged() -> bool:
        load.check_failures()
        return all(book.acknowledged > before[book.producer] for book in load.books)

    wait_until(is_acknowledged, "acknowledgements of all partitions", PATIENCE_S)


def _kill(nodes: SeveralNodes, numbers: Sequence[int]) -> None:
    """Kill nodes; return when they are started again."""
    killed = {number: nodes.pids()[number] for number in numbers}
    for pid in killed.values():
        _send(pid, signal.SIGKILL)
    wait_until(
        lambda: all(nodes.pids()[number] != pid for number, pid in killed.items()), "nodes are started again",
        PATIENCE_S,
    )  # fmt: skip


def _stop_a_while(pid: int, seconds: float) -> None:
    _send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    _send(pid, signal.SIGCONT)


def _stop_parent(nodes: SeveralNodes, chance: random.Random) -> None:
    """Stop the parent, and kill a node that it does not start meanwhile."""
    number = chance.randint(1, NODES)
    killed = nodes.pids()[number]
    nodes.parent.send_signal(signal.SIGSTOP)
    _send(killed, signal.SIGKILL)
    time.sleep(chance.uniform(*STOPPED_S))
    nodes.parent.send_signal(signal.SIGCONT)
    wait_until(lambda: nodes.pids()[number] != killed, "the node is started again", PATIENCE_S)


def _restart(nodes: SeveralNodes) -> None:
    nodes.kill_parent()
    nodes.start()


def _send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class _Member(ABC):
    """The only member of a group: it skips no record, and no offset that it has committed is lost or goes back."""

    def __init__(self, address: str, group: str) -> None:
        self._address = address
        self._group = group
        self._committed: Counter[int] = Counter()
        self._seen: Counter[int] = Counter()
        self.read = 0

    @abstractmethod
    def run(self, stopping: threading.Event) -> None:
        """Read and commit until it is to stop."""

    def note_read(self, partition: int, offset: int) -> None:
        """Note a record. It may be one that was read before: a client that joins again may ask for its offsets while it
        commits later ones."""
        seen = self._seen[partition]
        assert offset <= seen, f"{self._group}: {partition}-{seen} is skipped, {offset} is read"
        self._seen[partition] = max(seen, offset + 1)

    def note_committed(self, partition: int, offset: int) -> None:
        self.read += max(0, offset - self._committed[partition])
        self._committed[partition] = max(self._committed[partition], offset)

    def ends(self) -> dict[int, int]:
        """Return the offsets behind what was read."""
        return {partition: end for partition, end in self._seen.items() if end}

    def check(self) -> None:
        """Compare what the group has committed with what was acknowledged before."""
        acknowledged, found = dict(self._committed), dict[int, int]()

        def is_known() -> bool:
            try:
                found.update(LibrdkafkaDriver(self._address).committed(self._group, TOPIC))
            except RefusedError as refused:
                if refused.code not in LOADING:
                    raise
                return False
            return True

        wait_until(is_known, "the offsets of a group", PATIENCE_S)
        late = {partition: end for partition, end in acknowledged.items() if found.get(partition, 0) < end}
        assert not late, f"{self._group} has committed {found}, and these were acknowledged: {late}"


class _LibrdkafkaMember(_Member):
    """The only member of a group, with librdkafka."""

    def run(self, stopping: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address, "group.id": self._group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "reconnect.backoff.max.ms": 200, "log_level": 0,
                "session.timeout.ms": 10_000,
            }
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        try:
            while not stopping.is_set():
                for message in consumer.consume(100, _LOOK_S):
                    if message.error() is None:
                        self.note_read(message.partition() or 0, message.offset() or 0)
                if ends := self.ends():
                    self._commit(consumer, ends)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, ends: dict[int, int]) -> None:
        """Commit; it is tried again later if it fails."""
        places = [Place(TOPIC, partition, offset) for partition, offset in ends.items()]
        try:
            done = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return
        for place in done or ():
            if place.error is None:
                self.note_committed(place.partition, place.offset)


class _AiokafkaMember(_Member):
    """The only member of a group, with aiokafka."""

    def run(self, stopping: threading.Event) -> None:
        asyncio.run(self._run(stopping))

    async def _run(self, stopping: threading.Event) -> None:
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=self._address, group_id=self._group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=10_000, heartbeat_interval_ms=3_000,
        )  # fmt: skip
        await consumer.start()
        try:
            while not stopping.is_set():
                for place, records in (await consumer.getmany(timeout_ms=200, max_records=100)).items():
                    for record in records:
                        self.note_read(place.partition, record.offset)
                await self._commit(consumer)
        finally:
            await consumer.stop()

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        ends = {
            partition: end for partition, end in self.ends().items()
            if TopicPartition(TOPIC, partition) in consumer.assignment()
        }  # fmt: skip
        if ends:
            with suppress(AiokafkaError):
                await consumer.commit({TopicPartition(TOPIC, partition): end for partition, end in ends.items()})
                for partition, end in ends.items():
                    self.note_committed(partition, end)


def main() -> None:
    kills, outcome = run_from_command_line(
        __doc__, 100, lambda directory, kills, seed: run(directory, kills=kills, seed=seed)
    )
    told = ", ".join(f"{count} times {name}" for name, count in sorted(outcome.faults.items()))
    print(
        f"{kills} faults ({told}): {outcome.acknowledged} records acknowledged, {outcome.read} read by groups that "
        f"commit, {outcome.copied.records} copied in transactions; none lost, doubled or out of order"
    )


if __name__ == "__main__":
    main()
