"""Copies of topics in Kafka transactions under `kill -9`: python -m tests.faults.transactional_copies --minutes 10

Programs of six client libraries consume, copy and produce side by side, each its own topic, and five of them one topic
more as members of one group, while that is still written and the broker or one of the programs is killed. In the end a
reader of committed records finds each input once in its copy, nothing of an aborted transaction, and each group has
committed the end of its input; nothing of a transaction is left open.
"""

import argparse
import itertools
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.protocol.errors import ErrorCode
from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.support import transforms
from tests.support.drivers.driver import RefusedError
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.transforms import LIBRARIES, Task
from tests.support.waiting import wait_until

PARTITIONS: Final = 2
SHARED_PARTITIONS: Final = 5
SHARED: Final = tuple(each for each in LIBRARIES if each != "aiokafka")
"""Libraries whose transactions say which generation of their group they belong to; aiokafka's do not."""
RECORDS_A_SECOND: Final = 25
"""Records that are written to each partition."""
CALM_S: Final = (0.5, 3.0)
"""Seconds between kills."""
CLIENT_SHARE: Final = 0.4
"""Share of the kills that hit a program instead of the broker."""
PATIENCE_S: Final = 120.0
LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
)  # fmt: skip
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Copy:
    """A program that copies a topic. Several may be members of one group."""

    library: str
    task: Task
    partitions: int


@dataclass(slots=True)
class Counts:
    """Counts of a run."""

    broker_kills: int = 0
    client_kills: int = 0
    records: int = 0
    aborted: int = 0
    """Records of the copies that no reader of committed records sees."""


@dataclass(slots=True)
class Running:
    """The programs that run now."""

    copies: Sequence[Copy]
    processes: "dict[Copy, subprocess.Popen[str]]" = field(default_factory=dict)

    def start(self, copy: Copy) -> None:
        self.processes[copy] = transforms.start(copy.library, copy.task)

    def kill(self, copy: Copy) -> None:
        self.processes[copy].kill()
        self.processes.pop(copy).communicate()

    def start_ended(self) -> None:
        """Start those again that had read all there was."""
        for copy, process in list(self.processes.items()):
            if process.poll() is not None:
                assert process.returncode == 0, f"{copy.library} ended with status {process.returncode}"
                process.communicate()
                self.start(copy)


def run(directory: Path, *, seconds: float, seed: int, libraries: Sequence[str] = LIBRARIES) -> Counts:
    """Copy for so long under kills, and compare. AssertionError when a record is lost, doubled or undone."""
    counts, chance = Counts(), random.Random(seed)
    with broker(directory / "data", FOR_TESTS) as node:
        copies = list(copies_of(node.kafka, libraries, round(seconds * RECORDS_A_SECOND)))
        create_topics(node.kafka, copies)
        running = Running(copies)
        try:
            for copy in copies:
                running.start(copy)
            await_programs(HttpCalls(lambda: node.http), copies)
            with written(node.kafka, copies):
                _disturb(node, running, chance, time.monotonic() + seconds, counts)
            for copy in copies:
                await_end(node.kafka, copy)
        finally:
            for copy in list(running.processes):
                running.kill(copy)
        for copy in by_group(copies):
            check(node.kafka, copy, counts)
        check_ended(HttpCalls(lambda: node.http))
    left = [
        one for one in examine_directory(directory / "data", {}).found
        if (one.check, one.weight) != ("segment", Weight.HARMLESS)
    ]  # fmt: skip
    assert not left, left
    return counts


def copies_of(address: str, libraries: Sequence[str], total: int) -> Iterator[Copy]:
    for number, library in enumerate(libraries):
        task = Task(address, f"in-{number}", f"out-{number}", f"group-{number}", f"copy-{number}", PARTITIONS * total)
        yield Copy(library, task, PARTITIONS)
    for number, library in enumerate(each for each in libraries if each in SHARED):
        words = ("in-shared", "out-shared", "group-shared", f"shared-{number}")
        yield Copy(library, Task(address, *words, SHARED_PARTITIONS * total), SHARED_PARTITIONS)


def by_group(copies: Sequence[Copy]) -> Sequence[Copy]:
    """Return one of the copies of each group."""
    return list({copy.task.group: copy for copy in copies}.values())


def create_topics(address: str, copies: Sequence[Copy], config: Mapping[str, str] | None = None) -> None:
    with LibrdkafkaDriver(address) as driver:
        for copy in by_group(copies):
            for name in (copy.task.source, copy.task.target):
                driver.create_topic(name, partitions=copy.partitions, config=config)


def _disturb(node: Broker, running: Running, chance: random.Random, until: float, counts: Counts) -> None:
    """Kill the broker and programs, again and again."""
    while (left_s := until - time.monotonic()) > 0:
        time.sleep(min(left_s, chance.uniform(*CALM_S)))
        if chance.random() < CLIENT_SHARE:
            victim = chance.choice(list(running.processes))
            running.kill(victim)
            running.start(victim)
            counts.client_kills += 1
        else:
            node.kill()
            time.sleep(chance.random() * 0.3)
            node.start()
            counts.broker_kills += 1
        running.start_ended()


def await_programs(calls: HttpCalls, copies: Sequence[Copy]) -> None:
    """Wait until all programs are members of their groups: only then do kills come amid their transactions."""
    wanted = Counter(copy.task.group for copy in copies)

    def are_members() -> bool:
        listed = calls.ask("GET", "/v1/groups")["groups"]
        found = {one["name"]: one["member_count"] for one in listed}
        return all(found.get(group, 0) >= count for group, count in wanted.items())

    wait_until(are_members, "all programs are members", PATIENCE_S)


@contextmanager
def written(address: str, copies: Sequence[Copy]) -> Iterator[None]:
    """Write the inputs while the block runs; all of them are written when it ends."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 20, "log_level": 0,
            "reconnect.backoff.max.ms": 100, "message.timeout.ms": 0,
            "metadata.recovery.strategy": "none",
        }
    )  # fmt: skip
    writing = threading.Thread(target=_write, args=(producer, by_group(copies), failures))
    writing.start()
    try:
        yield
    finally:
        writing.join()
        assert producer.flush(PATIENCE_S) == 0, "records neither acknowledged nor failed"
    assert not failures, failures[:3]


def _write(producer: Producer, copies: Sequence[Copy], failures: list[str]) -> None:
    def answered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    started = time.monotonic()
    for number in itertools.count():
        due = [copy for copy in copies if number < copy.task.total // copy.partitions]
        if not due:
            return
        for copy in due:
            for partition in range(copy.partitions):
                producer.produce(
                    copy.task.source, b"%d-%d" % (partition, number), partition=partition, on_delivery=answered
                )
        producer.poll(max(0.0, started + number / RECORDS_A_SECOND - time.monotonic()))


def await_end(address: str, copy: Copy) -> None:
    """Wait until the group has committed the end of its input, as long as it gets on."""
    ends = dict.fromkeys(range(copy.partitions), copy.task.total // copy.partitions)
    with LibrdkafkaDriver(address) as driver:
        committed: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_S
        while committed != ends:
            before, committed = committed, _committed(driver, copy) or committed
            if committed != before:
                deadline = time.monotonic() + PATIENCE_S
            assert time.monotonic() < deadline, f"{copy} stays at {committed} of {ends}"
            time.sleep(LOOK_S)


def _committed(driver: LibrdkafkaDriver, copy: Copy) -> dict[int, int]:
    """Return what the group has committed; nothing while its coordinator is loading."""
    try:
        return driver.committed(copy.task.group, copy.task.source)
    except RefusedError as refused:
        if refused.code not in LOADING:
            raise
        return {}


def check(address: str, copy: Copy, counts: Counts) -> None:
    """Compare a copy with what was written: each record once."""
    total = copy.task.total // copy.partitions
    expected = Counter(b"%d-%d" % place for place in itertools.product(range(copy.partitions), range(total)))
    found = read_all(address, copy.task.target, copy.partitions, "read_committed")
    lost, doubled = expected - found, found - expected
    assert not lost, f"{copy.task.group}: {sum(lost.values())} records are lost, {list(lost)[:3]}"
    assert not doubled, f"{copy.task.group}: {sum(doubled.values())} records are doubled, {list(doubled)[:3]}"
    written = read_all(address, copy.task.target, copy.partitions, "read_uncommitted")
    counts.records += found.total()
    counts.aborted += written.total() - found.total()


def read_all(address: str, topic: str, partitions: int, isolation: str) -> Counter[bytes]:
    """Read a topic to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "reader", "isolation.level": isolation, "log_level": 0,
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"{topic} is not read to its end"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            values[message.value() or b""] += 1
    consumer.close()
    return values


def check_ended(calls: HttpCalls) -> None:
    """Check that no transaction stays open, once those of killed programs are aborted."""

    def open_ids() -> Mapping[str, str]:
        listed = calls.ask("GET", "/v1/transactional-ids")["transactional_ids"]
        return {one["name"]: one["state"] for one in listed}

    for transactional_id, state in open_ids().items():
        if state == "Ongoing":
            calls.ask("POST", f"/v1/transactional-ids/{transactional_id}/abort", {})

    def are_ended() -> bool:
        return all(state in ("Empty", "CompleteCommit", "CompleteAbort") for state in open_ids().values())

    wait_until(are_ended, "all transactions ended", PATIENCE_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.transactional_copies", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-copies-") as scratch:
        seen = run(Path(scratch), seconds=60 * options.minutes, seed=options.seed)
    print(
        f"{seen.records} records, each copied once in transactions of {len(LIBRARIES)} client libraries, "
        f"{seen.aborted} more aborted and unseen; {seen.broker_kills} kills of the broker, "
        f"{seen.client_kills} of clients (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
