"""Rows as relays write them, and how a record in the target is known again: by its last `source.*` headers.

A row has `partition` (null: by the key), `timestamp_ms`, `key`, `value`, `headers`, and where it came from:
`from_name`, `from_partition`, `from_offset`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, coalesce, col, concat, element_at, expr, lit, struct, unix_millis, when
from pyspark.sql.functions import max as max_of

FROM = ("from_partition", "from_offset")
"""Columns that tell the rows of a job apart."""

_HEADERS = "array<struct<key:string,value:binary>>"
_LETTER_HEADERS = ("error.reason", "error.topic", "error.partition", "error.offset")


def copied(records: DataFrame, *, same_partitions: bool) -> DataFrame:
    """Records of Spark's Kafka source: each in its partition, or by its key where the target has not as many."""
    partition = col("partition")
    if not same_partitions:
        partition = when(col("key").isNull(), partition)
    return _rows(records, partition, col("headers"))


def redriven(letters: DataFrame) -> DataFrame:
    """Dead letters as the records that they were, to the partition they came from."""
    names = ", ".join(f"'{name}'" for name in _LETTER_HEADERS)
    own = expr(f"filter(headers, header -> header.key NOT IN ({names}))")
    return _rows(letters, _header("error.partition").cast("int"), own)


def marked(rows: DataFrame, job: str) -> DataFrame:
    """Rows with the headers that they are known again by."""
    marks = {"source.job": lit(job), "source.name": col("from_name")}
    marks |= {"source.partition": col("from_partition"), "source.offset": col("from_offset")}
    added = array(
        *(
            struct(lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in marks.items()
        )
    )
    own = coalesce(col("headers"), array().cast(_HEADERS))
    return rows.withColumn("headers", concat(own, added.cast(_HEADERS)))


def marks(records: DataFrame, job: str) -> DataFrame:
    """Return the places that the records of a job came from, of records of the Kafka source."""
    mine = records.where(_header("source.job") == lit(job))
    return mine.select(
        _header("source.partition").cast("int").alias(FROM[0]), _header("source.offset").cast("long").alias(FROM[1])
    )


def without_superseded(left: DataFrame, written: DataFrame) -> DataFrame:
    """Return the rows of `left` without those whose key has a later row among the `written` ones, of the same partition
    and to the same one: a compacted topic may have removed them, and written now they would be its latest."""
    last = written.groupBy(FROM[0], "partition", "key").agg(max_of(FROM[1]).alias("written_last"))
    last = last.select(
        col(FROM[0]).alias("written_from"), col("partition").alias("written_to"), col("key").alias("written_key"),
        "written_last",
    )  # fmt: skip
    is_superseded = (
        (col(FROM[0]) == col("written_from"))
        & col("partition").eqNullSafe(col("written_to"))
        & (col("key") == col("written_key"))
        & (col(FROM[1]) < col("written_last"))
    )
    return left.join(last, is_superseded, "left_anti")


def _rows(records: DataFrame, partition: Column, headers: Column) -> DataFrame:
    return records.select(
        partition.cast("int").alias("partition"),
        unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        "value",
        headers.alias("headers"),
        col("topic").alias("from_name"),
        col("partition").cast("int").alias(FROM[0]),
        col("offset").alias(FROM[1]),
    )


def _header(name: str) -> Column:
    """The last header of this name as text; null without one."""
    named = expr(f"filter(headers, header -> header.key = '{name}')")
    is_named = expr(f"exists(headers, header -> header.key = '{name}')")
    return when(is_named, element_at(named, -1)["value"].cast("string"))
