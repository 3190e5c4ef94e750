"""Spark reads compacted topics whose logs are cleaned: gaps in offsets are no loss of data."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.lakes.snapshotting import Snapshotting
from pqbroker.pipeline.relays.copying import Copying
from tests.compat.churn import COMPACTED, KEYS, Log, last_of_each_key, message, write_all_codecs
from tests.spark.lakes import Lander
from tests.spark.relays import Copier, copies
from tests.spark.test_copy import repeat_last_batch
from tests.spark.test_snapshot import Taker
from tests.spark.topics import Topics, finish
from tests.support.cleaning import clean_topic
from tests.support.drivers.driver import RECENT_MS, Message
from tests.support.serving import Served, is_ours

pytestmark = pytest.mark.skipif(not is_ours(), reason="only our broker cleans on command")

LOSSES = {"failOnDataLoss": "true"}


@pytest.fixture
def calls(broker: Served) -> HttpCalls:
    http = broker.http
    assert http is not None
    return HttpCalls(lambda: http)


@pytest.fixture
def compacted(topics: Topics, fresh_name: Callable[[], str]) -> str:
    """A compacted topic that is cleaned on command alone."""
    name = fresh_name()
    topics.client.create_topic(name, config={**COMPACTED, "delete.retention.ms": "0"})
    return name


def contents(rows: list[Row]) -> Log:
    """Keys and values by offset."""
    return {row["offset"]: Message(row["value"], row["key"]) for row in rows}


def shown(log: Log) -> Log:
    return {offset: Message(each.value, each.key) for offset, each in log.items()}


def without_tombstones(log: Log) -> Log:
    return {offset: each for offset, each in last_of_each_key(log).items() if each.value is not None}


def run(stream: DataFrame, directory: Path) -> None:
    """Add what is available to a table of Parquet files, from the checkpoint on."""
    sink = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    finish(sink.option("path", str(directory / "rows")).trigger(availableNow=True).start())


def landed(topics: Topics, directory: Path) -> Log:
    return contents(topics.spark.read.parquet(str(directory / "rows")).collect())


def write_tail_of_tombstones(topics: Topics, topic: str) -> Log:
    """Write a key that is deleted at the end of the log; a cleaning leaves nothing there."""
    messages = [Message(b"gone", b"gone", timestamp_ms=RECENT_MS) for _ in range(30)]
    messages.append(Message(None, b"gone", timestamp_ms=RECENT_MS))
    return dict(zip(topics.client.produce(topic, messages), messages, strict=True))


def test_a_table_has_what_a_cleaning_left(topics: Topics, calls: HttpCalls, compacted: str) -> None:
    written = write_all_codecs(topics.client, compacted, 40)
    written.update(write_tail_of_tombstones(topics, compacted))
    clean_topic(calls, compacted)
    left = without_tombstones(written)
    assert max(left) < len(written) - 30
    assert contents(topics.read(compacted, **LOSSES).collect()) == shown(left)
    for first, behind in ((1, 150), (100, 101), (201, len(written)), (0, 3)):
        bounds = {
            "startingOffsets": json.dumps({compacted: {"0": first}}),
            "endingOffsets": json.dumps({compacted: {"0": behind}}),
        }
        rows = topics.read(compacted, **bounds, **LOSSES).collect()
        assert contents(rows) == shown({each: left[each] for each in left if first <= each < behind})


def test_a_stream_continues_from_an_offset_that_was_cleaned(
    topics: Topics, calls: HttpCalls, compacted: str, tmp_path: Path
) -> None:
    written = write_all_codecs(topics.client, compacted, 20)
    at = len(written)
    stream = topics.stream(compacted, maxOffsetsPerTrigger="30", **LOSSES)
    run(stream, tmp_path)
    seen = landed(topics, tmp_path)
    assert seen == shown(written)
    written.update(write_tail_of_tombstones(topics, compacted))
    messages = [message(number) for number in range(len(written), len(written) + 40)]
    written.update(zip(topics.client.produce(compacted, messages), messages, strict=True))
    written.update(write_tail_of_tombstones(topics, compacted))
    clean_topic(calls, compacted)
    left = without_tombstones(written)
    assert min(offset for offset in left if offset >= at) > at + 30, "a whole batch of the stream has no record"
    run(stream, tmp_path)
    assert landed(topics, tmp_path) == {**seen, **shown({each: left[each] for each in left if each >= at})}


def test_a_running_stream_reads_through_cleanings(
    topics: Topics, calls: HttpCalls, compacted: str, tmp_path: Path
) -> None:
    written = write_all_codecs(topics.client, compacted, 10)
    query = (
        topics.stream(compacted, maxOffsetsPerTrigger="20", **LOSSES)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "rows"))
        .start()
    )
    try:
        for _ in range(6):
            messages = [message(number) for number in range(len(written), len(written) + KEYS)]
            written.update(zip(topics.client.produce(compacted, messages), messages, strict=True))
            clean_topic(calls, compacted)
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    found = landed(topics, tmp_path)
    assert found.items() <= shown(written).items()
    assert shown(without_tombstones(written)).items() <= found.items()


def test_a_copy_that_is_continued_writes_no_value_that_the_target_has_lost_to_a_later_one(
    topics: Topics, calls: HttpCalls, compacted: str, tmp_path: Path
) -> None:
    source = f"{compacted}-source"
    topics.client.create_topic(source)
    copier = Copier(topics.spark, Copying(source, compacted, tmp_path / "state", topics.address, topics.address))
    values = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"a", b"3"), (b"b", b"2")]
    topics.client.produce(source, [Message(value, key, timestamp_ms=RECENT_MS) for key, value in values])
    copier.run()
    clean_topic(calls, compacted)
    before = copies(copier.rows())
    assert before == [(0, 3), (0, 4), (0, 5)]
    repeat_last_batch(copier, {"0": 0})
    copier.run()
    assert copies(copier.rows()) == before


def test_jobs_read_a_cleaned_topic_from_where_they_were(
    topics: Topics, calls: HttpCalls, compacted: str, tmp_path: Path
) -> None:
    lander = Lander(topics.spark, Landing(compacted, tmp_path / "lake", topics.address))
    taker = Taker(topics.spark, Snapshotting(compacted, tmp_path / "table", topics.address))
    written = write_all_codecs(topics.client, compacted, 12)
    lander.run()
    taker.run()
    seen = set(written)
    for _ in range(2):
        messages = [message(number) for number in range(len(written), len(written) + 40)]
        written.update(zip(topics.client.produce(compacted, messages), messages, strict=True))
        clean_topic(calls, compacted)
        seen |= {offset for offset in without_tombstones(written) if offset > max(seen)}
        lander.run()
        taker.run()
    assert [(offset, value) for _, offset, value in lander.rows()] == [
        (offset, written[offset].value) for offset in sorted(seen)
    ]
    left = without_tombstones(written)
    assert taker.values() == {one.key: one.value for one in left.values()}
