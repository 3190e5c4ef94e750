"""Backups of a broker under full load, each restored and read: python -m tests.faults.backups --times 50

A backup holds one moment: all that was acknowledged before it began, of each producer a beginning without a gap, and no
record without the one that was acknowledged before it was sent. The doctor finds backup and restored copy healthy.
"""

import argparse
import itertools
import json
import random
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.testing import Broker, broker
from tests.faults.load import Load, read_all
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver

_LOAD, _CHAIN, _PASSING = "load", "chain", "passing"
_LOADED = [0, 1, 1]  # the partition of each producer: one alone, two together
_CHAINED = 2
_SETTINGS = {
    "pqbroker.segment.bytes": str(1 << 20),
    "pqbroker.ballast.bytes": "0",
    "pqbroker.backups.max": "1000",
    "log.retention.check.interval.ms": "200",
}


@dataclass(slots=True)
class Outcome:
    """Counts of a run."""

    records: int = 0
    """Read from all copies."""
    linked_bytes: int = 0
    copied_bytes: int = 0


@dataclass(slots=True)
class Chain:
    """Writes one record at a time, each to the next partition, once the one before was acknowledged."""

    acknowledged: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self, address: str) -> None:
        producer = Producer({"bootstrap.servers": address, "log_level": 0, "enable.idempotence": True, "linger.ms": 0})
        for number in itertools.count():
            if self._stopping.is_set():
                return
            producer.produce(_CHAIN, b"%d" % number, partition=number % _CHAINED)
            assert producer.flush(30) == 0
            self.acknowledged = number + 1

    def pass_by(self, address: str) -> None:
        """Write what retention removes soon, so that segments empty while backups are made."""
        producer = Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 5})
        while not self._stopping.is_set():
            producer.produce(_PASSING, random.randbytes(50_000), partition=0)
            producer.flush(30)

    def stop(self) -> None:
        self._stopping.set()


def run(directory: Path, *, times: int, seed: int) -> Outcome:
    """Make `times` backups of a broker under load, and look into each."""
    outcome = Outcome()
    with broker(directory / "data", _SETTINGS) as node:
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(_LOAD, partitions=max(_LOADED) + 1)
        client.create_topic(_CHAIN, partitions=_CHAINED)
        client.create_topic(_PASSING, partitions=1, config={"retention.bytes": str(1 << 20)})
        with _chained(node.kafka) as chain, Load(node.kafka, _LOAD, _LOADED, seed) as load:
            made = []
            for turn in range(times):
                load.await_acknowledgements(100)
                made.append(_back_up(node, f"turn-{turn}", load, chain))
            load.settle()
        load.check_failures()
        for turn, each in enumerate(made):
            _look(each, directory / "restored" / str(turn), outcome)
    found = examine_directory(directory / "data", {})
    assert not found.damages, found.found
    return outcome


@dataclass(frozen=True, slots=True)
class _Made:
    """A backup, and what was known before it began and after it was whole."""

    facts: Mapping[str, Any]
    acknowledged: tuple[list[int | None], ...]
    """Offsets, -1 where none was told."""
    chained: int
    sent: tuple[int, ...]


@contextmanager
def _chained(address: str) -> Iterator[Chain]:
    chain = Chain()
    threads = [threading.Thread(target=each, args=(address,)) for each in (chain.run, chain.pass_by)]
    for thread in threads:
        thread.start()
    try:
        yield chain
    finally:
        chain.stop()
        for thread in threads:
            thread.join()


def _back_up(node: Broker, name: str, load: Load, chain: Chain) -> _Made:
    acknowledged = tuple([book.offset(number) for number in range(book.acknowledged)] for book in load.books)
    chained = chain.acknowledged
    request = urllib.request.Request(
        f"http://{node.http}/v1/backups", json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        facts = json.load(response)
    return _Made(facts, acknowledged, chained, tuple(book.sent for book in load.books))


def _look(made: _Made, directory: Path, outcome: Outcome) -> None:
    """Restore a backup and read all of it."""
    backup = Path(made.facts["directory"])
    found = examine_directory(backup, {})
    assert not found.damages, found.found
    restore(backup, directory, {}, lambda size: None)
    with broker(directory, _SETTINGS) as restored:
        outcome.records += _check_load(restored.kafka, made) + _check_chain(restored.kafka, made)
    found = examine_directory(directory, {})
    assert not found.damages, found.found
    outcome.linked_bytes += made.facts["linked_bytes"]
    outcome.copied_bytes += made.facts["copied_bytes"]


def _check_load(address: str, made: _Made) -> int:
    """`read_all` finds every offset once; here whose they are."""
    places: list[list[int]] = [[] for _ in _LOADED]
    for partition in range(max(_LOADED) + 1):
        for offset, value in read_all(address, _LOAD, partition):
            producer, number, _ = value.split(b":", 2)
            assert int(number) == len(places[int(producer)]), f"{value[:30]!r} at {offset} of {partition}"
            places[int(producer)].append(offset)
    for known, found, sent in zip(made.acknowledged, places, made.sent, strict=True):
        assert len(known) <= len(found) <= sent
        assert all(offset in (-1, place) for offset, place in zip(known, found, strict=False))
    return sum(map(len, places))


def _check_chain(address: str, made: _Made) -> int:
    found = sorted(int(value) for part in range(_CHAINED) for _, value in read_all(address, _CHAIN, part))
    assert found == list(range(len(found))), "a record is there without one that was acknowledged before it"
    assert len(found) >= made.chained
    return len(found)


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.backups", description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-backups-") as scratch:
        outcome = run(Path(scratch), times=options.times, seed=options.seed)
    print(f"{options.times} backups restored and read, {outcome.records} records, all healthy")
    print(f"{outcome.linked_bytes} bytes linked, {outcome.copied_bytes} copied")


if __name__ == "__main__":
    main()
