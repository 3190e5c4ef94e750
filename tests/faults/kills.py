"""`kill -9` at random moments under load: python -m tests.faults.kills --kills 100 --gigabyte

What was acknowledged is there once and in order, the end of a log never moves back, the broker serves again soon, and
the directory is healthy in the end. So is all that the story of the long runs had answered, and so are its backups.
"""

import argparse
import asyncio
import itertools
import random
import statistics
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.cli.crashtest.kills import crash
from pqbroker.testing import Broker, broker
from tests.faults.exec_time import Start, start
from tests.faults.load import Load, check
from tests.faults.story.book import Book
from tests.faults.story.reading import missing_in, restore_all
from tests.faults.story.story import Story
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import LATEST, Wire

RESTART_MAX_S = 1.5
BULK_PARTITIONS = 100
GIGABYTE = 1 << 30
_BULK_VALUE_BYTES = 128 << 10
_TOPIC, _BULK = "load", "bulk"
_PATIENCE_S = 60.0
_MOVE_EVERY, _BACKUP_EVERY = 4, 15
"""Turns of the story."""
_PAUSE_S = 0.2
"""Between turns, so that a long run does not fill the disk."""
_RESTORED_MAX = 12
_LOADED = [0, 1, 1]  # the partition of each producer: one alone, two together


@dataclass(slots=True)
class Outcome:
    """Counts of a run: every restart, and how many records were acknowledged."""

    restarts: list[Start] = field(default_factory=list)
    acknowledged: int = 0
    answers: int = 0
    """Of the story."""
    backups: int = 0
    """Restored and read."""


def run(directory: Path, *, kills: int, seed: int, bulk_bytes: int = 0) -> Outcome:
    """Kill and restart a broker `kills` times under load. Broken when it breaks what the module promises."""
    outcome, book = Outcome(), Book()
    data, backups = directory / "data", directory / "backups"
    settings = {"pqbroker.backup.dir": str(backups), "pqbroker.backups.max": "1000"}
    with broker(data, settings) as node:
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(_TOPIC, partitions=max(_LOADED) + 1)
        bulk_ends = _fill(client, node.kafka, bulk_bytes) if bulk_bytes else {}
        with Load(node.kafka, _TOPIC, _LOADED, seed) as load, _told(node, book, seed):
            crash(
                node, load, random.Random(seed),
                goes_on=lambda done: done < kills,
                start=lambda: outcome.restarts.append(start(node, _TOPIC)),
                read_ends=lambda: _ends(node.kafka, _TOPIC, max(_LOADED) + 1),
            )  # fmt: skip
            load.settle()
        load.check_failures()
        outcome.acknowledged = check(load, node.kafka)
        assert _ends(node.kafka, _BULK, len(bulk_ends)) == bulk_ends
    found = examine_directory(data, {})
    assert not found.found, found.found
    missing = asyncio.run(missing_in(data, book, book.owed()))
    assert not missing, missing
    outcome.answers = len(book.answers)
    outcome.backups = restore_all(backups, book, book.owed().backups, _RESTORED_MAX)
    return outcome


@contextmanager
def _told(node: Broker, book: Book, seed: int) -> Iterator[None]:
    """Tell the story until the block ends, over whatever happens to the broker."""
    story = Story(lambda: node.http, book, random.Random(f"{seed}:story"), patience_s=_PATIENCE_S)
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        telling = thread.submit(_tell, story, stopping)
        try:
            yield
        finally:
            stopping.set()
            telling.result()


def _tell(story: Story, stopping: threading.Event) -> None:
    story.begin()
    for turn in itertools.count(1):
        if stopping.wait(_PAUSE_S):
            return
        story.write()
        if turn % _MOVE_EVERY == 0:
            story.move()
        if turn % _BACKUP_EVERY == 0:
            story.back_up()


def _fill(client: LibrdkafkaDriver, address: str, size: int) -> dict[int, int]:
    """Write `size` bytes over many partitions of a topic of their own; the end of each."""
    client.create_topic(_BULK, partitions=BULK_PARTITIONS)
    settings = {"bootstrap.servers": address, "log_level": 0, "linger.ms": 20, "queue.buffering.max.kbytes": 1 << 17}
    producer = Producer(settings)
    value = random.Random(size).randbytes(_BULK_VALUE_BYTES)
    for number in range(size // _BULK_VALUE_BYTES):
        while len(producer) > 500:
            producer.poll(0.01)
        producer.produce(_BULK, value, partition=number % BULK_PARTITIONS)
    assert producer.flush(120) == 0
    return _ends(address, _BULK, BULK_PARTITIONS)


def _ends(address: str, topic: str, partitions: int) -> dict[int, int]:
    with Wire(address) as wire:
        found = {partition: wire.offset(topic, partition, LATEST) for partition in range(partitions)}
    assert all(error_code == 0 for error_code, _ in found.values()), found
    return {partition: end for partition, (_, end) in found.items()}


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--gigabyte", action="store_true", help="on a directory of a gigabyte in 100 partitions")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:
        bulk_bytes = GIGABYTE if options.gigabyte else 0
        outcome = run(Path(scratch), kills=options.kills, seed=options.seed, bulk_bytes=bulk_bytes)
    wall = [restart.wall_s for restart in outcome.restarts]
    own = [restart.own_s for restart in outcome.restarts]
    print(f"exec to first answer, on the clock: median {statistics.median(wall):.3f} s, worst {max(wall):.3f} s")
    print(
        f"0 lost in {options.kills} kills: {outcome.acknowledged} records and {outcome.answers} answers of the story,"
        f" each there once; {outcome.backups} of its backups restored; a restart took the broker"
        f" {statistics.median(own):.2f} s in the median, {max(own):.2f} s at worst (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
