"""The format of tables with a sorted one: every type, one timestamp for all tasks, rows written by key."""

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pqbroker.client import Client, Column, Table
from pqbroker.pipeline.ordered_tables.columns import SPARK_TYPES
from pqbroker.tables.types import TYPES
from tests.spark.test_ordered_tables import EVERY
from tests.spark.topics import SLOW_START, STARTS
from tests.support.serving import Served, is_ours

pytestmark = pytest.mark.skipif(not is_ours(), reason="tables are ours alone")

COLUMNS = [
    Column("shop", "utf8", sort_order="ascending"), Column("id", "int64", sort_order="ascending"),
    Column("note", "utf8"), Column("count", "int64"),
]  # fmt: skip


@pytest.fixture
def client(broker: Served) -> Iterator[Client]:
    assert broker.http is not None
    with Client(broker.http) as client:
        yield client


@pytest.fixture
def table(client: Client, fresh_name: Callable[[], str]) -> Table:
    table = client.table(fresh_name())
    table.create(COLUMNS, pivot_keys=[[], ["m"]])
    return table


@pytest.fixture
def read(spark: SparkSession, broker: Served) -> Callable[..., DataFrame]:
    def load(name: str, schema: StructType | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("ordered_table").options(http=broker.http, **options)
        return (reader if schema is None else reader.schema(schema)).load(name)

    return load


def shown(frame: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


def test_rows_of_all_tablets_are_read_at_one_timestamp(table: Table, read: Callable[..., DataFrame]) -> None:
    first = table.insert([{"shop": shop, "id": 1, "count": 1} for shop in ("a", "z")])
    table.insert([{"shop": "a", "id": 1, "count": 2}, {"shop": "b", "id": 5}])
    assert shown(read(table.name).select("shop", "count", "id")) == [("a", 2, 1), ("b", None, 5), ("z", 1, 1)]
    assert read(table.name).rdd.getNumPartitions() == 2
    past = read(table.name, timestamp=str(first.timestamp))
    assert shown(past.select("shop", "id", "count")) == [("a", 1, 1), ("z", 1, 1)]
    assert past.count() == 2
    assert shown(read(table.name, StructType().add("id", SPARK_TYPES["int64"]))) == [(1,), (1,), (5,)]


def test_every_type_is_read_and_written(
    client: Client, spark: SparkSession, broker: Served, read: Callable[..., DataFrame], fresh_name: Callable[[], str]
) -> None:
    columns = [Column("key", "int64", sort_order="ascending"), *(Column(name, name) for name in TYPES)]
    table, other = (client.table(fresh_name()) for _ in range(2))
    for each in (table, other):
        each.create(columns)
    table.insert([{"key": 1, **{name: given for name, (given, _) in EVERY.items()}}, {"key": 2}])
    read(table.name).write.format("ordered_table").mode("append").options(http=broker.http).save(other.name)
    one, empty = sorted(read(other.name).collect(), key=lambda row: int(row["key"]))
    found = one.asDict()
    found["string"] = bytes(found["string"])
    found["timestamp"] = found["timestamp"].astimezone(UTC)
    assert found == {"key": 1, **{name: wanted for name, (_, wanted) in EVERY.items()}}
    assert empty.asDict() == {"key": 2, **dict.fromkeys(TYPES)}


def test_rows_are_written_by_key_again_and_in_part(
    spark: SparkSession, broker: Served, table: Table, read: Callable[..., DataFrame]
) -> None:
    rows = spark.createDataFrame([("a", 1, "x", 1), ("z", 2, "y", 2)], "shop string, id long, note string, count long")
    for _ in range(2):
        rows.write.format("ordered_table").mode("append").options(http=broker.http).save(table.name)
    part = spark.createDataFrame([("a", 1, 9)], "shop string, id long, count long")
    part.write.format("ordered_table").mode("append").options(http=broker.http, update="true").save(table.name)
    assert shown(read(table.name)) == [("a", 1, "x", 9), ("z", 2, "y", 2)]


def end_of(stream: DataFrame) -> str:
    """Return the error that ends a stream at its start, but for one of a Python process that started too slowly."""
    for _ in range(STARTS):
        with pytest.raises(StreamingQueryException) as refusal:
            stream.writeStream.format("noop").start().awaitTermination()
        if SLOW_START not in str(refusal.value):
            break
    return str(refusal.value)


def test_what_cannot_be_says_why(
    spark: SparkSession, broker: Served, table: Table, read: Callable[..., DataFrame]
) -> None:
    rows = spark.createDataFrame([("a", 1), ("a", 1)], "shop string, id long")
    writer = rows.coalesce(1).write.format("ordered_table").options(http=broker.http)
    with pytest.raises(Exception, match="has the key of"):
        writer.mode("append").save(table.name)
    with pytest.raises(Exception, match="is not overwritten"):
        writer.mode("overwrite").save(table.name)
    stream = spark.readStream.format("ordered_table").options(http=broker.http).load(table.name)
    assert "no order in time to follow" in end_of(stream)
    with pytest.raises(Exception, match="give a number from 1 on"):
        read(table.name, timestamp="now").collect()
