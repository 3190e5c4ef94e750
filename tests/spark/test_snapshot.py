"""`snapshot`: the latest value of each key, in versions that appear whole."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.lake import LakeError
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.lakes.latest import changed, latest
from pqbroker.pipeline.lakes.snapshot import snapshot
from pqbroker.pipeline.lakes.snapshotting import Snapshotting
from pqbroker.pipeline.relays.replay import replay
from pqbroker.pipeline.relays.replaying import Replaying
from tests.spark.lakes import Lander
from tests.spark.topics import Topics
from tests.support.cleaning import settled
from tests.support.drivers.driver import RECENT_MS, Message
from tests.support.serving import Served

COMPACTED = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "1",
}  # fmt: skip


class Taker:
    """Takes snapshots of one topic into one directory."""

    def __init__(self, spark: SparkSession, snapshotting: Snapshotting) -> None:
        self.snapshotting = snapshotting
        self.versions = snapshotting.directory / "versions"
        self._spark = spark

    def run(self, **changes: Any) -> list[str]:
        """Take what is there now; the job's lines."""
        lines: list[str] = []
        asked = replace(self.snapshotting, once=True, **changes)
        snapshot(self._spark, asked, lines.append, threading.Event())
        return lines

    def rows(self, version: str = "latest") -> dict[bytes, Row]:
        """The table by its keys, of which each is there once."""
        rows = self._spark.read.parquet(f"file://{self.snapshotting.directory / version}").collect()
        found = {bytes(row["key"]): row for row in rows}
        assert len(found) == len(rows)
        return found

    def values(self, version: str = "latest") -> dict[bytes, bytes]:
        """Key -> value."""
        return {key: bytes(row["value"]) for key, row in self.rows(version).items()}


@pytest.fixture
def taker(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> Taker:
    """Snapshots of a fresh topic of two partitions."""
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    return Taker(topics.spark, Snapshotting(name, tmp_path / "table", topics.address))


def produce(topics: Topics, taker: Taker, *records: tuple[bytes | None, bytes | None], partition: int = 0) -> None:
    """Records of (key, value), the later one with the later timestamp."""
    messages = [Message(value, key, (), RECENT_MS + number) for number, (key, value) in enumerate(records)]
    topics.client.produce(taker.snapshotting.topic, messages, partition=partition)


def test_a_table_has_the_latest_value_of_each_key(topics: Topics, taker: Taker, tmp_path: Path) -> None:
    produce(topics, taker, (b"a", b"1"), (b"b", b"2"), (None, b"?"), (b"a", b"3"), (b"c", b"4"), (b"c", None))
    produce(topics, taker, (b"d", b""), (None, None), partition=1)
    figures = tmp_path / "snapshot.prom"
    (line,) = taker.run(figures=figures)
    assert line.startswith("batch 0  8 rows  ")
    assert line.endswith("  lag 0  3 keys  2 without a key")
    assert taker.values() == {b"a": b"3", b"b": b"2", b"d": b""}
    row = taker.rows()[b"a"]
    assert (row["partition"], row["offset"], row["timestamp"].timestamp()) == (0, 3, (RECENT_MS + 3) / 1000)
    labels = f'{{topic="{taker.snapshotting.topic}"}}'
    for name, value in {"rows_total": 8, "keyless_total": 2, "keys": 3, "batch": 0}.items():
        assert f"pqbroker_snapshot_{name}{labels} {value}\n" in figures.read_text()


def test_versions_follow_each_other_and_the_last_ones_stay(topics: Topics, taker: Taker) -> None:
    produce(topics, taker, *((b"%d" % (number % 4), b"%d" % number) for number in range(15)))
    taker.run(batch_rows_max=5, keep=2)
    assert sorted(path.name for path in taker.versions.iterdir()) == ["1", "2"]
    assert taker.values("versions/1") == {b"0": b"8", b"1": b"9", b"2": b"6", b"3": b"7"}
    assert taker.values() == {b"0": b"12", b"1": b"13", b"2": b"14", b"3": b"11"}
    produce(topics, taker, *((b"%d" % number, None) for number in range(4)))
    resumed, line = taker.run()
    assert resumed == "batch 2 exists, continuing behind it"
    assert line.endswith("  lag 0  0 keys")
    assert taker.values() == {}
    produce(topics, taker, (b"2", b"again"))
    taker.run()
    assert taker.values() == {b"2": b"again"}


def test_a_key_in_two_partitions_has_its_later_timestamp(spark: SparkSession) -> None:
    columns = "(partition, offset, timestamp, key, headers, value)"
    before = """(0, 1, TIMESTAMP_SECONDS(5), 'kept', 0, '5 s'), (0, 1, TIMESTAMP_SECONDS(5), 'offset', 0, '5 s'),
                (0, 1, TIMESTAMP_SECONDS(5), 'moved', 0, '5 s'), (0, 1, TIMESTAMP_SECONDS(5), 'deleted', 0, '5 s')"""
    after = """(1, 9, TIMESTAMP_SECONDS(4), 'kept', 0, '4 s'), (0, 2, TIMESTAMP_SECONDS(4), 'offset', 0, '4 s'),
               (1, 9, TIMESTAMP_SECONDS(6), 'moved', 0, '6 s'), (1, 9, TIMESTAMP_SECONDS(6), 'deleted', 0, NULL)"""
    table, rows = (spark.sql(f"SELECT * FROM VALUES {values} AS rows {columns}") for values in (before, after))
    found = {row["key"]: row["value"] for row in changed(table, latest(rows)).collect()}
    assert found == {"kept": "5 s", "offset": "4 s", "moved": "6 s"}


def test_values_of_a_schema_are_columns_and_others_dead_letters(topics: Topics, taker: Taker) -> None:
    schema = "id BIGINT NOT NULL, name STRING"
    produce(topics, taker, (b"a", b'{"id": 1}'), (b"b", b'{"id": 2, "name": "b"}'), (b"c", b'{"id": 3}'))
    taker.run(schema=schema)
    produce(topics, taker, (b"a", b"nonsense"), (b"b", None))
    *_, line = taker.run(schema=schema)
    assert line.endswith("  2 keys  1 dead letters")
    assert {key: tuple(row["value"]) for key, row in taker.rows().items()} == {b"a": (1, None), b"c": (3, None)}
    ((_, letter),) = topics.client.read(f"{taker.snapshotting.topic}.dlq", count=1)
    assert dict(letter.headers)["error.reason"] == b"the value is not JSON"


def test_a_kill_between_a_version_and_its_link_is_made_good(topics: Topics, taker: Taker) -> None:
    produce(topics, taker, (b"a", b"1"))
    taker.run()
    link = taker.snapshotting.directory / "latest"
    link.unlink()
    link.symlink_to("versions/earlier")
    taker.run()
    assert taker.values() == {b"a": b"1"}


def test_a_missing_version_is_named(topics: Topics, taker: Taker) -> None:
    produce(topics, taker, (b"a", b"1"))
    taker.run()
    (taker.versions / "0").rename(taker.versions / "kept")
    produce(topics, taker, (b"a", b"2"))
    with pytest.raises(JobError, match=r"versions/0 is missing, and the next version needs it"):
        taker.run()


def test_a_directory_is_of_one_kind(topics: Topics, taker: Taker) -> None:
    taker.run()
    asked = taker.snapshotting
    with pytest.raises(LakeError, match=rf"holds topic {asked.topic} of the job snapshot; name another directory"):
        Lander(topics.spark, Landing(asked.topic, asked.directory, topics.address)).run()


def test_a_table_is_replayed_from_its_latest_version(
    topics: Topics, taker: Taker, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    produce(topics, taker, (b"a", b"1"), (b"a", b"2"))
    taker.run()
    target = fresh_name()
    topics.client.create_topic(target)
    asked = Replaying(taker.snapshotting.directory, target, tmp_path / "state", topics.address)
    replay(topics.spark, asked, lambda line: None, threading.Event())
    ((_, record),) = topics.client.read(target, count=1)
    assert (record.key, record.value) == (b"a", b"2")
    files = json.loads((tmp_path / "state" / "files.json").read_text())
    assert all("/versions/0/" in name for name in files)


@pytest.mark.spec("G.3")
def test_a_table_of_a_topic_that_is_cleaned_between_its_batches_has_the_same_keys(
    topics: Topics, broker: Served, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    """Batches are cut by offsets, of which a cleaning leaves few, or none."""
    name, calls, values = fresh_name(), HttpCalls(lambda: broker.http or ""), {}
    calls.ask("POST", "/v1/topics", {"name": name, "partitions": 2, "config": COMPACTED})
    taker = Taker(topics.spark, Snapshotting(name, tmp_path / "table", topics.address))
    for turn in range(4):
        of_partition: tuple[list[Message], list[Message]] = ([], [])
        for number in range(60):
            key = b"%d" % (number % 7)
            value = None if number == 50 + turn else b"%d %d" % (turn, number) + bytes(100)
            of_partition[number % 7 % 2].append(Message(value, key, (), RECENT_MS))
            values[key] = value
        for partition, messages in enumerate(of_partition):
            topics.client.produce(name, messages, partition=partition)
        if turn % 2:
            taker.run(batch_rows_max=60)
        calls.ask("POST", f"/v1/topics/{name}/clean", {})
        assert {settled(calls, name, partition)["state"] for partition in (0, 1)} == {"clean"}
    taker.run(batch_rows_max=60)
    assert taker.values() == {key: value for key, value in values.items() if value is not None}
