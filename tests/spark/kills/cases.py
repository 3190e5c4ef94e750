"""The jobs that are killed: what each is given, how it is run, how far it is, and whether each row is there once."""

import json
import random
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from pqbroker.pipeline.lakes.land import land
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.lakes.several import land_all
from pqbroker.pipeline.lakes.snapshot import snapshot
from pqbroker.pipeline.lakes.snapshotting import Snapshotting
from pqbroker.pipeline.relays.copy import copy
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.pipeline.relays.replay import replay
from pqbroker.pipeline.relays.replaying import Replaying
from tests.faults.load import read_all
from tests.spark.lakes import batches
from tests.spark.relays import copies
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import LATEST, Wire

PARTITIONS = 2
RECORDS = 1500
"""Of a relay's source, in each partition."""
RATE = 60.0
"""Of a relay: slow enough to be killed within a batch."""
INTERVAL_S = 1.0
BATCH_ROWS = 250
"""Of a job that shall be killed."""
ROUND = 50
"""Records that are fed at once, in each partition."""
_BATCHES_MAX = 3
KEYS = 20
"""Of a snapshot's topic, in each partition."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where the jobs of a round work."""

    address: str
    """Of the broker."""
    directory: Path

    def count(self, topic: str) -> int:
        """Records of a topic."""
        with Wire(self.address) as wire:
            return sum(wire.offset(topic, partition, LATEST)[1] for partition in range(PARTITIONS))

    def read(self, topic: str, partition: int) -> list[Message]:
        """All records of a partition."""
        with Wire(self.address) as wire:
            _, end = wire.offset(topic, partition, LATEST)
        client = LibrdkafkaDriver(self.address)
        return [record for _, record in client.read(topic, count=end, partition=partition)] if end else []


class Case(Protocol):
    """One job."""

    @abstractmethod
    def prepare(self, site: Site) -> None:
        """Make its topics and what it reads from the start on."""

    @abstractmethod
    def feed(self, site: Site, number: int) -> None:
        """Write the next records to what it reads."""

    @abstractmethod
    def step(self, source: random.Random) -> int:
        """How much further it shall be, by `done`, before the next kill."""

    @abstractmethod
    def run(self, spark: SparkSession, site: Site, stopping: threading.Event, *, once: bool) -> None:
        """Run the job; with `once` to the end, without limits."""

    @abstractmethod
    def done(self, site: Site) -> int:
        """How far it is; grows while it works."""

    @abstractmethod
    def check(self, spark: SparkSession, site: Site) -> None:
        """AssertionError unless each row is there once, as of the end."""


class Relay:
    """`copy` or `redrive`."""

    def __init__(self, name: str, *, are_letters: bool) -> None:
        self._state = name
        self._source, self._target = f"{name}-source", f"{name}-target"
        self._are_letters = are_letters

    def prepare(self, site: Site) -> None:
        client = LibrdkafkaDriver(site.address)
        for name in (self._source, self._target):
            client.create_topic(name, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            headers = (("error.partition", b"%d" % partition),) if self._are_letters else ()
            messages = [Message(b"%d" % number, None, headers) for number in range(RECORDS)]
            client.produce(self._source, messages, partition=partition)

    def feed(self, site: Site, number: int) -> None: ...

    def step(self, source: random.Random) -> int:
        return source.randrange(1, 2 * int(RATE))

    def run(self, spark: SparkSession, site: Site, stopping: threading.Event, *, once: bool) -> None:
        asked = Copying(
            self._source, self._target, site.directory / self._state, site.address, site.address,
            are_letters=self._are_letters, once=once, interval_s=INTERVAL_S, batch_rows_max=_batch_rows(once=once),
            records_per_s=None if once else RATE,
        )  # fmt: skip
        copy(spark, asked, lambda line: None, stopping)

    def done(self, site: Site) -> int:
        return site.count(self._target)

    def check(self, spark: SparkSession, site: Site) -> None:
        check_copies(spark, site, self._target, PARTITIONS, RECORDS)


class Replay:
    """`replay` of files of lines."""

    _TARGET = "replay-target"
    _FILES = 4
    _LINES = 500

    def prepare(self, site: Site) -> None:
        LibrdkafkaDriver(site.address).create_topic(self._TARGET, partitions=PARTITIONS)
        files = site.directory / "files"
        files.mkdir(parents=True)
        for number in range(self._FILES):
            lines = (json.dumps({"value": f"{line}", "partition": line % PARTITIONS}) for line in range(self._LINES))
            (files / f"{number}.jsonl").write_text("\n".join(lines) + "\n")

    def feed(self, site: Site, number: int) -> None: ...

    def step(self, source: random.Random) -> int:
        return source.randrange(1, 2 * int(RATE))

    def run(self, spark: SparkSession, site: Site, stopping: threading.Event, *, once: bool) -> None:
        source, state, rate = site.directory / "files", site.directory / "replay", None if once else RATE
        asked = Replaying(source, self._TARGET, state, site.address, records_per_s=rate)
        replay(spark, asked, lambda line: None, stopping)

    def done(self, site: Site) -> int:
        return site.count(self._TARGET)

    def check(self, spark: SparkSession, site: Site) -> None:
        check_copies(spark, site, self._TARGET, self._FILES, self._LINES)


class Land:
    """`land` of one topic, or of several in one session."""

    def __init__(self, *topics: str) -> None:
        self._topics = topics

    def prepare(self, site: Site) -> None:
        for topic in self._topics:
            LibrdkafkaDriver(site.address).create_topic(topic, partitions=PARTITIONS)

    def feed(self, site: Site, number: int) -> None:
        for topic in self._topics:
            for partition in range(PARTITIONS):
                messages = [Message(b"%d" % each) for each in range(number * ROUND, (number + 1) * ROUND)]
                LibrdkafkaDriver(site.address).produce(topic, messages, partition=partition)

    def step(self, source: random.Random) -> int:
        return source.randrange(1, _BATCHES_MAX)

    def run(self, spark: SparkSession, site: Site, stopping: threading.Event, *, once: bool) -> None:
        asked = [self._landing(site, topic, once=once) for topic in self._topics]
        if len(asked) == 1:
            land(spark, asked[0], lambda line: None, stopping)
        else:
            land_all(spark, asked, lambda line: None, stopping)

    def done(self, site: Site) -> int:
        return min(_batches(self._directory(site, topic)) for topic in self._topics)

    def check(self, spark: SparkSession, site: Site) -> None:
        for topic in self._topics:
            table = spark.read.parquet(f"file://{self._directory(site, topic) / 'data'}")
            rows = sorted(tuple(row) for row in table.select("partition", "offset", "value").collect())
            log = [
                (partition, *record)
                for partition in range(PARTITIONS)
                for record in read_all(site.address, topic, partition)
            ]
            assert rows == log, f"{topic}: {len(rows)} rows of {len(log)} records"

    def _landing(self, site: Site, topic: str, *, once: bool) -> Landing:
        directory = self._directory(site, topic)
        if len(self._topics) > 1:
            directory = directory.parent  # `land_all` puts each topic into one of its own
        return Landing(
            topic, directory, site.address, once=once, interval_s=INTERVAL_S, batch_rows_max=_batch_rows(once=once)
        )

    def _directory(self, site: Site, topic: str) -> Path:
        return site.directory / "lakes" / topic


class Snapshot:
    """`snapshot`, all of whose versions are read afterwards."""

    _TOPIC = "snapshot-source"

    def prepare(self, site: Site) -> None:
        LibrdkafkaDriver(site.address).create_topic(self._TOPIC, partitions=PARTITIONS)

    def feed(self, site: Site, number: int) -> None:
        for partition in range(PARTITIONS):
            places = range(number * ROUND, (number + 1) * ROUND)
            messages = [
                Message(None if each % 7 == 0 else b"%d" % each, b"%d %d" % (partition, each % KEYS)) for each in places
            ]
            LibrdkafkaDriver(site.address).produce(self._TOPIC, messages, partition=partition)

    def step(self, source: random.Random) -> int:
        return source.randrange(1, _BATCHES_MAX)

    def run(self, spark: SparkSession, site: Site, stopping: threading.Event, *, once: bool) -> None:
        asked = Snapshotting(
            self._TOPIC, site.directory / "snapshot", site.address, once=once, interval_s=INTERVAL_S,
            batch_rows_max=_batch_rows(once=once),
        )  # fmt: skip
        snapshot(spark, asked, lambda line: None, stopping)

    def done(self, site: Site) -> int:
        versions = (site.directory / "snapshot" / "versions").glob("*")
        return max((int(path.name) + 1 for path in versions), default=0)

    def check(self, spark: SparkSession, site: Site) -> None:
        log = [site.read(self._TOPIC, partition) for partition in range(PARTITIONS)]
        ends = {str(partition): len(records) for partition, records in enumerate(log)}
        versions = [*(site.directory / "snapshot" / "versions").iterdir(), site.directory / "snapshot" / "latest"]
        for place in versions:
            until = json.loads((place / "_landed.json").read_text())["until"][self._TOPIC]
            assert place.name != "latest" or until == ends, f"{place} ends at {until}, the log at {ends}"
            rows = spark.read.parquet(f"file://{place}").collect()
            found = sorted((bytes(row["key"]), bytes(row["value"])) for row in rows)
            assert found == sorted(folded(log, until).items()), f"{place}, until {until}"


CASES: Mapping[str, Callable[[], Case]] = {
    "copy": lambda: Relay("copy", are_letters=False),
    "redrive": lambda: Relay("redrive", are_letters=True),
    "replay": Replay,
    "land": lambda: Land("land-one"),
    "several": lambda: Land("several-one", "several-two"),
    "snapshot": Snapshot,
}


def check_copies(spark: SparkSession, site: Site, target: str, sources: int, records: int) -> None:
    """AssertionError unless the target has each record of the sources once, those of a source in order."""
    options = {"kafka.bootstrap.servers": site.address, "subscribe": target, "includeHeaders": "true"}
    rows = spark.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()
    found = copies(rows)
    missing_or_twice = set(found) ^ {(source, offset) for source in range(sources) for offset in range(records)}
    assert len(found) == len(set(found)), f"{target}: {len(found) - len(set(found))} records are there twice"
    assert not missing_or_twice, f"{target}: {sorted(missing_or_twice)} are missing or unknown"
    order: dict[Any, int] = {}
    for row, (source, offset) in zip(rows, found, strict=True):
        place = (row["partition"], source)
        assert order.get(place, -1) < offset, f"{target}: {source}:{offset} stands behind {order[place]}"
        order[place] = offset


def folded(log: list[list[Message]], until: Mapping[str, int]) -> dict[bytes, bytes]:
    """The latest value of each key of a log before these offsets."""
    table: dict[bytes, bytes] = {}
    for partition, records in enumerate(log):
        for record in records[: until.get(str(partition), 0)]:
            assert record.key is not None
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
    return table


def _batch_rows(*, once: bool) -> int:
    return 1_000_000 if once else BATCH_ROWS


def _batches(directory: Path) -> int:
    return len(batches(directory)) if (directory / "data").is_dir() else 0
