"""Spark reads topics: as tables and as streams."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row

from tests.spark.topics import QUICK, Topics, by_place, finish
from tests.support.drivers.driver import RECENT_MS, Message
from tests.support.waiting import wait_until


def numbered(count: int, start: int = 0) -> list[Message]:
    """Records ten milliseconds apart, whose value is their number."""
    return [Message(b"%d" % number, timestamp_ms=RECENT_MS + 10 * number) for number in range(start, start + count)]


def values(rows: list[Row]) -> list[int]:
    """The numbers that `numbered` wrote, sorted."""
    return sorted(int(row["value"]) for row in rows)


def test_a_table_equals_what_was_produced(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    written = [
        Message(
            value=None if number % 5 == 4 else b"\x00\xffvalue-%d" % number,
            key=None if number % 3 == 2 else b"key-%d" % number,
            headers=(("h", b"\x01%d" % number), ("h", b"")) if number % 2 else (),
            timestamp_ms=RECENT_MS + number,
        )
        for number in range(40)
    ]
    for partition in range(2):
        topics.client.produce(name, written[partition::2], partition=partition, codec="zstd")
    rows = by_place(topics.read(name, includeHeaders="true").collect())
    assert rows.keys() == {(number % 2, number // 2) for number in range(40)}
    for number, message in enumerate(written):
        row = rows[number % 2, number // 2]
        headers = tuple((header["key"], bytes(header["value"])) for header in row["headers"] or ())
        timestamp = row["timestamp"].astimezone(UTC)
        assert (row["topic"], row["key"], row["value"], headers) == (name, message.key, message.value, message.headers)
        assert timestamp == datetime.fromtimestamp(message.timestamp_ms / 1000, UTC)


def test_a_table_holds_the_offsets_asked_for(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    for partition in range(2):
        topics.client.produce(name, numbered(10), partition=partition)
    first = json.dumps({name: {"0": 3, "1": -2}})
    after_last = json.dumps({name: {"0": 7, "1": -1}})
    rows = by_place(topics.read(name, startingOffsets=first, endingOffsets=after_last).collect())
    assert sorted(rows) == [(0, offset) for offset in range(3, 7)] + [(1, offset) for offset in range(10)]


def test_a_table_starts_at_the_time_asked_for(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    topics.client.produce(name, numbered(10))
    exact = topics.read(name, startingTimestamp=str(RECENT_MS + 60)).collect()
    between = topics.read(name, startingTimestamp=str(RECENT_MS + 61), endingTimestamp=str(RECENT_MS + 85)).collect()
    assert values(exact) == [6, 7, 8, 9]
    assert values(between) == [7, 8]


def test_a_time_after_the_last_record_is_an_error_or_the_end_as_told(
    topics: Topics, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    topics.client.produce(name, numbered(10))
    late = {"startingTimestamp": str(RECENT_MS + 91)}
    assert topics.read(name, startingOffsetsByTimestampStrategy="latest", **late).collect() == []
    with pytest.raises(Exception, match=r"(?i)no offset matched"):
        topics.read(name, startingOffsetsByTimestampStrategy="error", **late).collect()


def test_a_running_query_reads_partitions_that_are_added(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    topics.client.produce(name, numbered(5))
    table = name.replace("-", "_")
    query = topics.stream(name).writeStream.format("memory").queryName(table).start()

    def read(expected: list[tuple[int, int]]) -> bool:
        query.processAllAvailable()
        return sorted(by_place(topics.spark.table(table).collect())) == expected

    try:
        first = [(0, offset) for offset in range(5)]
        added = [(2, offset) for offset in range(4)]
        wait_until(lambda: read(first), "the first partition read")
        topics.client.grow_topic(name, 3)
        topics.client.produce(name, numbered(4, start=5), partition=2)
        wait_until(lambda: read(first + added), "the added partition read from its start")
    finally:
        query.stop()


def test_a_running_query_of_a_pattern_reads_topics_that_are_added(
    topics: Topics, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    table = name.replace("-", "_")
    source = {"kafka.bootstrap.servers": topics.address, "subscribePattern": f"{name}-.*", **QUICK}
    stream = topics.spark.readStream.format("kafka").options(**source, startingOffsets="earliest").load()
    topics.client.create_topic(f"{name}-first")
    topics.client.produce(f"{name}-first", numbered(2))
    query = stream.writeStream.format("memory").queryName(table).start()

    def read(expected: list[tuple[str, int]]) -> bool:
        query.processAllAvailable()
        return sorted((row["topic"], row["offset"]) for row in topics.spark.table(table).collect()) == expected

    try:
        first = [(f"{name}-first", offset) for offset in range(2)]
        added = [(f"{name}-second", offset) for offset in range(3)]
        wait_until(lambda: read(first), "the first topic read")
        topics.client.create_topic(f"{name}-second")
        topics.client.produce(f"{name}-second", numbered(3))
        wait_until(lambda: read(first + added), "the added topic read from its start")
    finally:
        query.stop()


def test_the_old_way_to_find_offsets_reads_the_same(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    for partition in range(2):
        topics.client.produce(name, numbered(10, start=10 * partition), partition=partition)
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    topics.spark.conf.set(setting, "true")  # through a consumer group's members instead of the admin client
    try:
        assert values(topics.read(name).collect()) == list(range(20))
    finally:
        topics.spark.conf.unset(setting)


def test_a_query_of_what_is_available_ends(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    for partition in range(2):
        topics.client.produce(name, numbered(50, start=50 * partition), partition=partition)
    written = str(tmp_path / "rows")

    def run() -> list[int]:
        rows = topics.stream(name, maxOffsetsPerTrigger="40").select("value")
        options = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": written}
        finish(rows.writeStream.format("parquet").options(**options).trigger(availableNow=True).start())
        return values(topics.spark.read.parquet(written).collect())

    assert run() == list(range(100))
    assert run() == list(range(100)), "nothing new: ends with nothing read twice"
    topics.client.produce(name, numbered(5, start=100))
    assert run() == list(range(105))
