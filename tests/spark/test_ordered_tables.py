"""The format `ordered_table`: every type, ranges, streams that resume; compared with the Kafka source."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StringType, StructType

from pqbroker.client import Client, Column
from pqbroker.pipeline.ordered_tables.columns import SPARK_TYPES
from pqbroker.tables.types import TIMESTAMP_END, TYPES
from tests.spark.topics import SLOW_START, STARTS, Topics, by_place, complete
from tests.support.drivers.driver import Message
from tests.support.serving import Served, is_ours

pytestmark = pytest.mark.skipif(not is_ours(), reason="tables are ours alone")

LAST = datetime(2105, 12, 31, 23, 59, 59, 999_999, UTC)
EVERY: dict[str, tuple[Any, Any]] = {
    **{name: (kind.bounds[1], kind.bounds[1]) for name, kind in TYPES.items() if kind.bounds},
    "double": (0.1, 0.1), "boolean": (True, True), "string": (b"\xff\x00", b"\xff\x00"), "utf8": ("ä", "ä"),
    "any": ({"a": [1, "ä"]}, '{"a":[1,"ä"]}'), "timestamp": (TIMESTAMP_END - 1, LAST),
}  # fmt: skip
"""By type: a value as it is inserted, and as Spark reads it."""
EVERY["uint64"] = (2**64 - 1, Decimal(2**64 - 1))


@pytest.fixture
def client(broker: Served) -> Iterator[Client]:
    assert broker.http is not None
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def read(spark: SparkSession, broker: Served) -> Callable[..., DataFrame]:
    def load(name: str, schema: StructType | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("ordered_table").options(http=broker.http, **options)
        return (reader if schema is None else reader.schema(schema)).load(name)

    return load


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return sorted((row["$tablet_index"], row["$row_index"]) for row in rows)


def test_every_type_is_read(client: Client, read: Callable[..., DataFrame], fresh_name: Callable[[], str]) -> None:
    assert EVERY.keys() == TYPES.keys() == SPARK_TYPES.keys()
    table = client.table(fresh_name())
    table.create([Column(name, name, part="key" if name == "utf8" else "value") for name in TYPES])
    table.insert([{name: given for name, (given, _) in EVERY.items()}, {}])
    frame = read(table.name)
    assert {field.name: field.dataType for field in frame.schema if field.name in TYPES} == SPARK_TYPES
    one, empty = sorted(frame.collect(), key=lambda row: int(row["$row_index"]))
    found = one.asDict()
    found["string"] = bytes(found["string"])
    found["timestamp"] = found["timestamp"].astimezone(UTC)
    expected = {name: wanted for name, (_, wanted) in EVERY.items()}
    assert found == {"$tablet_index": 0, "$row_index": 0, **expected, "$error": None}
    assert empty.asDict() == {"$tablet_index": 0, "$row_index": 1, **dict.fromkeys([*TYPES, "$error"])}


def test_records_of_kafka_clients_are_rows_and_those_that_do_not_fit_say_why(
    client: Client, topics: Topics, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    table = client.table(fresh_name())
    table.create([Column("id", "int64")])
    topics.client.alter_topic(table.name, {"value.invalid": "keep"})
    topics.client.produce(table.name, [Message(b'{"id":1}'), Message(b"no json")])
    rows = sorted(read(table.name).collect(), key=lambda row: int(row["$row_index"]))
    assert [(row["id"], row["$error"]) for row in rows] == [(1, None), (None, "the value is no JSON")]


def test_a_topic_without_a_schema_is_read_as_the_kafka_source_reads_it(
    topics: Topics, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    for partition in range(2):
        messages = [Message(b"\xff%d" % n, key=b"k", headers=(("h", b"x"),) * (n % 3)) for n in range(20)]
        topics.client.produce(name, messages, partition=partition)
    kafka = by_place(topics.read(name, includeHeaders="true").collect())
    found = {(row["$tablet_index"], row["$row_index"]): row for row in read(name).collect()}
    assert found.keys() == kafka.keys()
    for place, row in found.items():
        same = kafka[place]
        assert (row["key"], row["value"]) == (same["key"], same["value"])
        assert row["timestamp_ms"] == same["timestamp"].timestamp() * 1000
        assert (row["headers"] or []) == (same["headers"] or [])


def test_the_kafka_source_reads_the_rows_of_a_table_and_ours_what_the_table_fills(
    client: Client, topics: Topics, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    table = client.table(fresh_name())
    table.create([Column("id", "int64"), Column("$timestamp", "uint64"), Column("$cumulative_data_weight", "int64")])
    for number in range(3):
        table.insert([{"id": number}])
    kafka = by_place(topics.read(table.name).collect())
    assert [json.loads(kafka[0, number]["value"]) for number in range(3)] == [{"id": number} for number in range(3)]
    rows = sorted(read(table.name).collect(), key=lambda row: int(row["$row_index"]))
    assert [(row["id"], row["$cumulative_data_weight"]) for row in rows] == [(0, 25), (1, 50), (2, 75)]
    assert [row["$timestamp"] for row in rows] == sorted({row["$timestamp"] for row in rows})


def test_ranges_and_columns_that_are_asked_for_are_read(
    client: Client, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    table = client.table(fresh_name())
    table.create([Column("n", "int64"), Column("text", "utf8")], tablet_count=2)
    for tablet in range(2):
        table.insert([{"n": n, "text": f"{n}"} for n in range(10)], tablet_index=tablet)
    table.trim(2, tablet_index=1)
    assert places(read(table.name).collect()) == [(0, n) for n in range(10)] + [(1, n) for n in range(2, 10)]
    ranges = {"startingOffsets": json.dumps({"0": 3}), "endingOffsets": json.dumps({"0": 5, "1": 4})}
    frame = read(f"//{table.name}", **ranges, rowsPerPartition="2")
    assert places(frame.collect()) == [(0, 3), (0, 4), (1, 2), (1, 3)]
    assert frame.rdd.getNumPartitions() == 2
    wanted = StructType().add("text", StringType()).add("$row_index", LongType())
    assert sorted(row["text"] for row in read(table.name, wanted, **ranges).collect()) == ["2", "3", "3", "4"]
    assert read(table.name, startingOffsets="latest").collect() == []


def test_rows_that_are_gone_are_left_out_where_that_is_wanted(
    client: Client, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    table = client.table(fresh_name())
    table.create([Column("n", "int64")])
    table.insert([{"n": n} for n in range(5)])
    table.trim(3)
    assert places(read(table.name, startingOffsets='{"0": 0}', failOnDataLoss="false").collect()) == [(0, 3), (0, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "first"}, "give earliest, latest"), ({"startingOffsets": '{"7": 0}'}, "no tablet 7"),
        ({"rowsPerPartition": "0"}, "give a number from 1 on"), ({"offset": "1"}, "has no option 'offset'"),
        ({"startingOffsets": '{"0": 0}'}, "rows 0 to 1 of tablet 0 .* are gone"),
        ({"failOnDataLoss": "no"}, "give true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    client: Client, read: Callable[..., DataFrame], fresh_name: Callable[[], str], options: dict[str, str], message: str
) -> None:
    table = client.table(fresh_name())
    table.create([Column("n", "int64")])
    table.insert([{"n": n} for n in range(3)])
    table.trim(2)
    with pytest.raises(Exception, match=message):
        read(table.name, **options).collect()


def test_a_schema_that_is_not_the_tables_is_refused(
    client: Client, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    table = client.table(fresh_name())
    table.create([Column("n", "int64")])
    with pytest.raises(Exception, match="the table has no column 'm'"):
        read(table.name, StructType().add("m", LongType())).collect()
    with pytest.raises(Exception, match="column 'n' is bigint in Spark, not string"):
        read(table.name, StructType().add("n", StringType())).collect()


def test_a_stream_reads_each_row_once_and_resumes(
    client: Client, spark: SparkSession, broker: Served, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    table = client.table(fresh_name())
    table.create([Column("n", "int64")], tablet_count=2)

    def run() -> list[int]:
        source = spark.readStream.format("ordered_table").options(http=broker.http, maxRowsPerTrigger="7")
        options = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "rows")}
        sink = source.load(table.name).writeStream.format("parquet").options(**options)
        complete(sink.trigger(availableNow=True).start)
        return sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    for tablet in range(2):
        table.insert([{"n": 10 * tablet + n} for n in range(10)], tablet_index=tablet)
    assert run() == list(range(20))
    assert run() == list(range(20)), "nothing new"
    table.insert([{"n": n} for n in range(20, 30)], tablet_index=1)
    assert run() == list(range(30))


def test_a_stream_stops_at_a_table_that_was_created_again(
    client: Client, spark: SparkSession, broker: Served, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    table = client.table(fresh_name())
    schema = [Column("n", "int64")]
    table.create(schema)
    table.insert([{"n": 1}])

    def run() -> None:
        source = spark.readStream.format("ordered_table").options(http=broker.http).load(table.name)
        sink = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        complete(sink.trigger(availableNow=True).start)

    run()
    table.delete()
    table.create(schema)
    with pytest.raises(Exception, match="was deleted and created again"):
        run()


def test_what_was_read_is_written_into_another_table(
    client: Client, read: Callable[..., DataFrame], broker: Served, fresh_name: Callable[[], str]
) -> None:
    schema = [Column(name, name) for name in TYPES]
    table, copy = client.table(fresh_name()), client.table(fresh_name())
    for each in (table, copy):
        each.create(schema)
    table.insert([{name: given for name, (given, _) in EVERY.items()}, {}])
    rows = read(table.name).select(*TYPES).coalesce(1)
    rows.write.format("ordered_table").mode("append").option("http", broker.http).save(copy.name)
    assert copy.select() == table.select()



class Copying:
    """A stream from a table of two tablets, of 3 000 and 1 000 rows, into another one; each run tries batch 0 again."""

    def __init__(self, client: Client, spark: SparkSession, http: str, names: tuple[str, str], place: Path) -> None:
        self._spark, self._http, self._checkpoint = spark, http, place / "checkpoint"
        self.table, self.copy = map(client.table, names)
        for each in (self.table, self.copy):
            each.create([Column("n", "int64", is_required=each is self.copy), Column("text", "utf8")], tablet_count=2)
        self.table.insert([{"n": n, "text": "short"} for n in range(3000)], tablet_index=0)
        self.table.insert([{"n": -n, "text": "x" * 4000} for n in range(1, 1001)], tablet_index=1)  # over a batch

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda rows: rows, **options: str) -> None:
        sinks = {name: options.pop(name) for name in ("onChangedBatch",) if name in options}
        rows = self._spark.readStream.format("ordered_table").options(http=self._http, **options).load(self.table.name)
        self.write(change(rows.select("n", "text")), **sinks)

    def write(self, rows: DataFrame, **options: str) -> None:
        sink = rows.writeStream.format("ordered_table").options(http=self._http, **options)
        sink = sink.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)

        def start() -> StreamingQuery:
            self._try_again()
            return sink.start(self.copy.name)

        complete(start)

    def run_in_another_spark(self, master: str) -> None:
        program = [sys.executable, "-m", "tests.spark.other_cores"]
        places = [self._http, self.table.name, self.copy.name, str(self._checkpoint), master]
        for tries in range(1, STARTS + 1):
            self._try_again()
            done = subprocess.run([*program, *places], capture_output=True, text=True, check=False)
            if SLOW_START not in done.stderr or tries == STARTS:
                break
        assert done.returncode == 0, done.stderr

    def _try_again(self) -> None:
        for name in ("0", ".0.crc"):
            (self._checkpoint / "commits" / name).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for tablet in range(2) for row in self.copy.rows(tablet))


@pytest.fixture
def without_adaptive_plans(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(ADAPTIVE, "false")
    yield
    spark.conf.unset(ADAPTIVE)


@pytest.fixture
def copying(
    client: Client, spark: SparkSession, broker: Served, fresh_name: Callable[[], str], tmp_path: Path
) -> Copying:
    assert broker.http is not None
    return Copying(client, spark, broker.http, (fresh_name(), fresh_name()), tmp_path)


EXPECTED = [*range(-1000, 0), *range(3000)]
ADAPTIVE = "spark.sql.adaptive.enabled"


def test_a_micro_batch_that_comes_again_is_written_once_whatever_the_split(copying: Copying) -> None:
    """Smaller tasks, other ones behind a shuffle, which adaptive plans put together, a Spark of other cores. Another
    micro-batch behind one that came again is new."""
    copying.run()
    assert copying.numbers() == EXPECTED
    one_tablet = [row["n"] for tablet in range(2) for row in copying.copy.rows(tablet) if row["n"] >= 0]
    assert one_tablet == list(range(3000)), "rows of a task keep their order"
    copying.run(rowsPerPartition="700")
    assert copying.numbers() == EXPECTED, "smaller tasks"
    copying.run(lambda rows: rows.repartition(3, "text"))
    assert copying.numbers() == EXPECTED, "a shuffle"
    copying.run_in_another_spark("local[5]")
    assert copying.numbers() == EXPECTED, "other cores"
    copying.table.insert([{"n": 1_000_000}], tablet_index=0)
    copying.run()
    assert copying.numbers() == [*EXPECTED, 1_000_000]


@pytest.mark.usefixtures("without_adaptive_plans")
def test_a_micro_batch_that_comes_again_without_adaptive_plans_is_written_once(
    copying: Copying, spark: SparkSession
) -> None:
    copying.run(lambda rows: rows.repartition(5, "text"))
    spark.conf.set(ADAPTIVE, "true")
    copying.run(lambda rows: rows.repartition("n"))
    assert copying.numbers() == EXPECTED


def test_a_micro_batch_of_the_kafka_source_that_comes_again_with_min_partitions_is_written_once(
    copying: Copying, topics: Topics, fresh_name: Callable[[], str]
) -> None:
    topic = fresh_name()
    topics.client.create_topic(topic)
    topics.client.produce(topic, [Message(str(n).encode()) for n in range(1000)])
    for min_partitions in ("1", "7", "3"):
        rows = topics.stream(topic, minPartitions=min_partitions)
        copying.write(rows.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS n", "'short' AS text"))
        assert copying.numbers() == [*range(1000)]


def test_a_micro_batch_that_fails_leaves_nothing_and_is_written_by_the_mended_query(copying: Copying) -> None:
    with pytest.raises(Exception, match="broken"):
        copying.run(lambda rows: rows.selectExpr("IF(n = 2999, CAST(raise_error('broken') AS BIGINT), n) AS n", "text"))
    assert copying.numbers() == []
    with pytest.raises(Exception, match="null"):
        copying.run(lambda rows: rows.selectExpr("nullif(n, 2999) AS n", "text"))
    assert copying.numbers() == []
    copying.run(lambda rows: rows.repartition(3))
    assert copying.numbers() == EXPECTED


def test_a_micro_batch_that_comes_again_with_other_rows_says_what_continues(copying: Copying) -> None:
    copying.run()
    told = r"micro-batch 0 of .* comes again with other rows .*4000 rows.* 3999.*onChangedBatch.*keep.*append"
    with pytest.raises(Exception, match=told):
        copying.run(lambda rows: rows.where("n != 5"))
    assert copying.numbers() == EXPECTED
    copying.run(lambda rows: rows.where("n != 5"), onChangedBatch="keep")
    assert copying.numbers() == EXPECTED
    copying.run(lambda rows: rows.where("n < 3").where("n >= 0"), onChangedBatch="append")
    assert copying.numbers() == sorted([*EXPECTED, 0, 1, 2])


def test_what_is_no_table_to_append_to_is_refused(
    client: Client, topics: Topics, read: Callable[..., DataFrame], broker: Served, fresh_name: Callable[[], str]
) -> None:
    table, topic = client.table(fresh_name()), fresh_name()
    table.create([Column("n", "int64")])
    table.insert([{"n": 1}])
    topics.client.create_topic(topic)
    rows = read(table.name).select("n")
    for name, mode, message in ((topic, "append", "without a schema"), (table.name, "overwrite", "not overwritten")):
        with pytest.raises(Exception, match=message):
            rows.write.format("ordered_table").mode(mode).option("http", broker.http).save(name)
    renamed = rows.withColumnRenamed("n", "m").write.format("ordered_table").mode("append")
    with pytest.raises(Exception, match="unknown column 'm'"):
        renamed.option("http", broker.http).save(table.name)
    assert len(table.select()) == 1


def test_the_own_line_of_an_error_comes_first(
    client: Client, read: Callable[..., DataFrame], broker: Served, fresh_name: Callable[[], str]
) -> None:
    table, required = client.table(fresh_name()), client.table(fresh_name())
    table.create([Column("n", "int64")])
    required.create([Column("n", "int64", is_required=True)])
    table.insert([{"n": 1}, {"n": None}])
    rows = read(table.name).select("n")
    for given, told in (
        (rows.withColumnRenamed("n", "m"), "unknown column 'm'"),
        (rows.selectExpr("NULL AS n"), "column 'n' of .* is required, and in all rows it is null"),
        (rows, "n is missing, or null"),
    ):
        with pytest.raises(Exception, match=told) as raised:
            given.write.format("ordered_table").mode("append").option("http", broker.http).save(required.name)
        text = str(raised.value)
        assert re.search(told, " ".join(text.splitlines()[:2])), text
        assert "Traceback" not in text
    assert required.select() == []
