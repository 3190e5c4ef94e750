"""`land`: a topic in Parquet, each row once; what does not parse in the dead letters; the job seen from outside."""

import math
import random
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.lake import LANDED, Lake, LakeError
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.ownership import owned
from tests.spark.admin import committed, trim
from tests.spark.lakes import Lander, batches
from tests.spark.topics import Topics
from tests.support.drivers.driver import Message
from tests.support.growth import grow_by_http
from tests.support.serving import Served
from tests.support.waiting import wait_until

SCHEMA = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def lander(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> Lander:
    """A landing of a fresh topic of two partitions."""
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    return Lander(topics.spark, Landing(name, tmp_path / "lake", topics.address))


def produce(topics: Topics, lander: Lander, first: int, after_last: int) -> None:
    """Numbers as values, the odd ones into partition 1."""
    for partition in range(2):
        numbers = range(first + partition, after_last, 2)
        topics.client.produce(lander.landing.topic, [Message(b"%d" % each) for each in numbers], partition=partition)


def expected(after_last: int) -> list[tuple[int, int, bytes]]:
    """The rows of all numbers below."""
    return sorted((number % 2, number // 2, b"%d" % number) for number in range(after_last))


def test_a_topic_lands_once_and_is_resumed(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 40)
    lander.run(batch_rows_max=10)
    assert lander.rows() == expected(40)
    assert len(batches(lander.landing.directory)) == 4
    produce(topics, lander, 40, 50)
    lander.run()
    assert lander.rows() == expected(50)


def test_records_that_were_gone_stop_the_job_unless_that_is_allowed(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 10)
    lander.run()
    produce(topics, lander, 10, 20)
    trim(topics.address, lander.landing.topic, 7)
    with pytest.raises(JobError, match=r"records were gone before they were read, .*; --allow-loss continues behind"):
        lander.run()
    assert lander.rows() == expected(10)
    lander.run(fail_on_data_loss=False)
    assert lander.rows() == [row for row in expected(20) if row[:2] not in {(0, 5), (0, 6)}]


def test_a_replayed_batch_lands_once(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 10)
    lander.run()
    produce(topics, lander, 10, 20)
    lander.run()
    directory = lander.landing.directory
    done = directory / "checkpoint" / "commits" / "1"
    forget(done)  # killed after the batch landed, before Spark knew it
    written = (directory / "data" / "batch=1").stat().st_mtime_ns
    lander.run()
    assert done.exists(), "the batch was not replayed"
    assert (directory / "data" / "batch=1").stat().st_mtime_ns == written
    forget(done)  # killed while the batch was written
    (directory / "data" / "batch=1").rename(directory / "temporary" / "half")
    lander.run()
    assert lander.rows() == expected(20)
    assert list((directory / "temporary").iterdir()) == []


def forget(file: Path) -> None:
    """Remove one of Spark's files with its checksum."""
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink()


def test_batches_of_another_checkpoint_are_refused(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 10)
    lander.run()
    shutil.rmtree(lander.landing.directory / "checkpoint")
    with pytest.raises(LakeError, match="through another checkpoint"):
        lander.run()
    assert lander.rows() == expected(10)


def test_a_topic_made_again_is_refused(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 10)
    lander.run()
    topics.client.delete_topic(lander.landing.topic)
    topics.client.create_topic(lander.landing.topic, partitions=2)
    produce(topics, lander, 0, 30)
    with pytest.raises(LakeError, match="deleted and made again"):
        lander.run()
    assert lander.rows() == expected(10)


def test_what_does_not_parse_goes_to_the_dead_letters(topics: Topics, lander: Lander, tmp_path: Path) -> None:
    topic = lander.landing.topic
    good = Message(b'{"id": 1, "name": "one"}')
    bad = {
        b"nonsense": b"the value is not JSON",
        b'{"id": 2}\xff': b"the value is not JSON",
        b'{"id": "x", "name": "y"}': b"the value does not fit the schema: id is not BIGINT",
        b"[3]": b"the value does not fit the schema",
        b'{"name": "four"}': b"id is missing",
        None: b"there is no value",
    }
    headers = (("trace", b"\x00\xff"),)
    topics.client.produce(topic, [good, *(Message(value, b"key", headers) for value in bad), good])
    figures = tmp_path / "land.prom"
    (line,) = lander.run(schema=SCHEMA, figures=figures)
    assert line.endswith("  lag 0  6 dead letters")
    assert f'pqbroker_land_dead_letters_total{{topic="{topic}"}} 6\n' in figures.read_text()
    assert [(offset, tuple(value)) for _, offset, value in lander.rows()] == [(0, (1, "one")), (7, (1, "one"))]
    letters = [letter for _, letter in topics.client.read(f"{topic}.dlq", count=len(bad))]
    assert topics.client.bounds(f"{topic}.dlq") == (0, len(bad))
    assert [(letter.key, letter.value, letter.headers) for letter in letters] == [
        (b"key", value, (*headers, *reason(why, topic, 1 + place))) for place, (value, why) in enumerate(bad.items())
    ]


def test_a_value_that_goes_on_behind_its_document_is_a_dead_letter(topics: Topics, lander: Lander) -> None:
    trailing = (b"nonsense", b'{"id": 2}', b'\n{"id": 2}', b'},{"id": 2}', b"]", b"}", b",", b'],"end"', b"\x00")
    bad = [b'{"id": 1}' + text for text in trailing]
    topics.client.produce(lander.landing.topic, [Message(value) for value in (*bad, b' {"id": 3}\n')])
    lander.run(schema=SCHEMA)
    assert [(offset, tuple(value)) for _, offset, value in lander.rows()] == [(len(bad), (3, None))]
    letters = [letter for _, letter in topics.client.read(f"{lander.landing.topic}.dlq", count=len(bad))]
    told = [(letter.value, dict(letter.headers)["error.reason"]) for letter in letters]
    assert told == [(value, b"the value is not JSON") for value in bad]


def test_what_is_not_null_is_looked_for_at_any_depth(topics: Topics, lander: Lander) -> None:
    schema = "a STRUCT<b: INT NOT NULL>, l ARRAY<STRUCT<m: MAP<STRING, STRUCT<`c.d`: INT NOT NULL>>>>"
    good = [b'{"e`f": 1}', b'{"e`f": 1, "a": {"b": 2}, "l": [null, {}, {"m": {"k": {"c.d": 3}}}]}']
    bad = {
        b'{"a": {"b": 1}}': b"e`f is missing",
        b'{"e`f": 1, "a": {}}': b"a.b is missing",
        b'{"e`f": 1, "l": [{"m": {"k": {"c.d": 3}}}, {"m": {"k": {}}}]}': b"l[].m[].c.d is missing",
    }
    topics.client.produce(lander.landing.topic, [Message(value) for value in [*good, *bad]])
    lander.run(schema=f"{schema}, `e``f` INT NOT NULL")
    assert [offset for _, offset, _ in lander.rows()] == [0, 1]
    letters = [letter for _, letter in topics.client.read(f"{lander.landing.topic}.dlq", count=len(bad))]
    assert {letter.value: dict(letter.headers)["error.reason"] for letter in letters} == bad


@pytest.mark.parametrize("batch_bytes_max", [1 << 20, 5 << 20])
def test_a_dead_letter_may_be_as_large_as_its_topic_allows(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path, batch_bytes_max: int
) -> None:
    name = fresh_name()
    topics.client.create_topic(name, config={"max.message.bytes": str(batch_bytes_max)})
    value = random.Random(0).randbytes(batch_bytes_max - 80)  # less the batch's own bytes
    options = {"bootstrap.servers": topics.address, "log_level": 0}
    client = Producer({**options, "message.max.bytes": 2 * batch_bytes_max})
    client.produce(name, value)
    client.flush()
    zipped = Producer({**options, "message.max.bytes": 64 << 20, "compression.type": "gzip"})
    zipped.produce(name, bytes(2 * batch_bytes_max))
    zipped.flush()
    Lander(topics.spark, Landing(name, tmp_path / "lake", topics.address)).run(schema=SCHEMA)
    letters = [letter for _, letter in topics.client.read(f"{name}.dlq", count=2)]
    assert [letter.value for letter in letters] == [value, bytes(2 * batch_bytes_max)]


def test_rows_lie_by_date(topics: Topics, lander: Lander) -> None:
    days = {"2026-01-31": 1_769_903_999_999, "2026-02-01": 1_769_904_000_000}
    client = Producer({"bootstrap.servers": topics.address, "log_level": 0})
    for timestamp in days.values():
        client.produce(lander.landing.topic, b"value", partition=0, timestamp=timestamp)
    client.flush()
    lander.run(by_date=True)
    landed = topics.spark.read.parquet(f"file://{lander.landing.directory / 'data'}")
    assert sorted((str(row["date"]), row["offset"]) for row in landed.collect()) == list(zip(days, (0, 1), strict=True))
    places = (lander.landing.directory / "data" / "batch=0").glob("date=*")
    assert sorted(place.name for place in places) == [f"date={day}" for day in days]


def test_files_come_near_the_size_asked_for(topics: Topics, lander: Lander) -> None:
    for round_ in range(2):
        produce(topics, lander, 2000 * round_, 2000 * round_ + 2000)
        lander.run(file_bytes=1 << 20)
    produce(topics, lander, 4000, 6000)
    row_bytes = Lake(lander.landing.directory, LANDED).row_bytes()
    assert row_bytes is not None
    lander.run(file_bytes=math.ceil(500 * row_bytes))
    data = lander.landing.directory / "data"
    counts = [len(list((data / f"batch={number}").glob("*.parquet"))) for number in range(3)]
    assert counts == [1, 1, 4]
    assert lander.rows() == expected(6000)


def reason(why: bytes, topic: str, offset: int) -> tuple[tuple[str, bytes], ...]:
    """The headers a dead letter gets."""
    place = (("error.topic", topic.encode()), ("error.partition", b"0"), ("error.offset", b"%d" % offset))
    return (("error.reason", why), *place)


def test_a_group_shows_how_far_the_lake_is(topics: Topics, lander: Lander) -> None:
    topic = lander.landing.topic
    produce(topics, lander, 0, 9)
    lander.run(group="one")
    assert committed(topics.address, "one") == {(topic, 0): 5, (topic, 1): 4}
    lander.run(group="another")  # as after a kill between the batch and the group: nothing new, and yet it is set
    assert committed(topics.address, "another") == {(topic, 0): 5, (topic, 1): 4}


def test_each_batch_has_a_line_and_figures(topics: Topics, lander: Lander, tmp_path: Path) -> None:
    produce(topics, lander, 0, 40)
    figures = tmp_path / "land.prom"
    lines = lander.run(batch_rows_max=10, figures=figures)
    assert [line.split()[:4] for line in lines] == [["batch", str(number), "10", "rows"] for number in range(4)]
    assert [line.split()[7] for line in lines] == ["30", "20", "10", "0"]
    topic = lander.landing.topic
    found = dict(line.rsplit(" ", 1) for line in figures.read_text().splitlines() if not line.startswith("#"))
    assert found == {
        f'pqbroker_land_rows_total{{topic="{topic}"}}': "40",
        f'pqbroker_land_dead_letters_total{{topic="{topic}"}}': "0",
        f'pqbroker_land_batch{{topic="{topic}"}}': "3",
        **{f'pqbroker_land_offset{{topic="{topic}",partition="{number}"}}': "20" for number in range(2)},
        **{f'pqbroker_land_lag{{topic="{topic}",partition="{number}"}}': "0" for number in range(2)},
    }


def test_figures_that_cannot_be_written_are_told_and_no_more(topics: Topics, lander: Lander, tmp_path: Path) -> None:
    produce(topics, lander, 0, 4)
    figures = tmp_path / "missing" / "land.prom"
    (line,) = lander.run(figures=figures)
    assert line.startswith("batch 0  4 rows")
    assert line.endswith(f"  ({figures} not written: No such file or directory)")


def test_a_directory_has_one_job_at_a_time(topics: Topics, lander: Lander, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.pipeline.ownership._WAIT_S", 0.0)
    being_written = lander.landing.directory / "temporary" / "0-a"
    being_written.mkdir(parents=True)
    with owned(topics.spark, lander.landing.directory), pytest.raises(JobError, match="another job"):
        lander.run()
    assert being_written.exists()


def test_a_missing_topic_is_named_with_those_there(lander: Lander) -> None:
    with pytest.raises(JobError, match=r"no topic missing at .*; there are .*spark-\d"):
        lander.run(topic="missing")


@pytest.mark.parametrize("schema", ["id BIG INT", "INT", "", "id DECIMAL(50, 2)"])
def test_a_schema_that_is_none_is_shown_right(lander: Lander, schema: str) -> None:
    with pytest.raises(JobError, match=f"'{re.escape(schema)}' is not a schema; it is written NAME TYPE"):
        lander.run(schema=schema)


def test_a_job_that_is_stopped_ends_the_batch_in_work(topics: Topics, lander: Lander) -> None:
    produce(topics, lander, 0, 10)
    temporary = lander.landing.directory / "temporary"
    temporary.mkdir(parents=True)
    lander.run_until(lambda: wait_until(lambda: list(temporary.glob("0-*")), "a batch in work"), batch_rows_max=5)
    assert "batch=0" in batches(lander.landing.directory)
    assert list(temporary.iterdir()) == []
    lander.run()
    assert lander.rows() == expected(10)


def test_growth_is_seen_by_a_running_job(topics: Topics, lander: Lander, broker: Served) -> None:
    produce(topics, lander, 0, 10)
    grown = threading.Event()

    def grow() -> None:
        grow_by_http(broker, lander.landing.topic, 3)
        topics.client.produce(lander.landing.topic, [Message(b"added")], partition=2)
        grown.set()

    lander.run_until(grow)
    lander.run()
    assert lander.rows() == [*expected(10), (2, 0, b"added")]


def test_fields_are_columns_where_that_is_asked_for(topics: Topics, lander: Lander) -> None:
    topics.client.produce(lander.landing.topic, [Message(b'{"id": 1, "name": "one"}'), Message(b'{"id": 2}')])
    lander.run(schema=SCHEMA, is_flat=True)
    rows = topics.spark.read.parquet(f"file://{lander.landing.directory / 'data'}")
    assert set(rows.columns) == {"partition", "offset", "timestamp", "key", "headers", "id", "name", "batch"}
    assert sorted(tuple(row) for row in rows.select("id", "name").collect()) == [(1, "one"), (2, None)]
