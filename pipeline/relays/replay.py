"""The job `replay`: files of Parquet or JSON lines into a topic, each record once; a file is a batch."""

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import array, col, lit, monotonically_increasing_id, struct, to_json, udf, unix_millis
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.relays.files import LINES, check_files, find_files
from pqbroker.pipeline.relays.journal import Journal
from pqbroker.pipeline.relays.lines import read_line
from pqbroker.pipeline.relays.once import OnceWriter
from pqbroker.pipeline.relays.replaying import Replaying
from pqbroker.pipeline.relays.sending import Sender
from pqbroker.pipeline.streams import find_topic, local

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_RECORD = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("timestamp_ms", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def replay(spark: SparkSession, replaying: Replaying, say: Callable[[str], None], stopping: threading.Event) -> None:
    """Write all files, or until `stopping` is set; `say` gets a line a file. JobError."""
    journal = Journal(replaying.state)
    with owned(spark, journal.directory), Admin(spark, replaying.broker) as admin:
        target_id = find_topic(admin, replaying.target, replaying.broker)
        facts = {"topic": str(replaying.source.resolve()), "target": replaying.target, "target id": target_id}
        span = {"since": str(replaying.since_ms), "until": str(replaying.until_ms)}
        job = journal.claim({"job of": "replay", **facts, **span})
        files = journal.files(lambda: find_files(replaying.source))
        check_files(files)
        try:
            count = admin.partition_count(replaying.target)
        except AdminError as error:
            raise JobError(f"the broker at {replaying.broker}: {error}") from error
        sender = Sender(replaying.broker, replaying.target, count, journal.lock, replaying.records_per_s)
        writer = OnceWriter(admin, journal, job, sender)
        done = -1 if (last := journal.last()) is None else last.number - (not last.is_done)
        for number, name in enumerate(files):
            if stopping.is_set():
                return
            if number > done:
                rows = _within(_read(spark, Path(name), number), replaying)
                writer.write(rows if replaying.records_per_s is None else rows.coalesce(1), number)
                say(f"batch {number}  {name}  {len(files) - number - 1:,} files left")


def _within(rows: DataFrame, replaying: Replaying) -> DataFrame:
    if replaying.since_ms is not None:
        rows = rows.where(col("timestamp_ms") >= replaying.since_ms)
    if replaying.until_ms is not None:
        rows = rows.where(col("timestamp_ms") < replaying.until_ms)
    return rows


def _read(spark: SparkSession, file: Path, number: int) -> DataFrame:
    """Rows of a file as a relay writes them; a row's number in the file is its offset."""
    if file.suffix in LINES:
        lines = spark.read.text(local(file)).coalesce(1)  # one task: its rows are numbered in the file's order
        read = udf(read_line, _RECORD, useArrow=False)("value")  # Arrow would need a package that PySpark does not
        numbered = lines.select(read.alias("record"), monotonically_increasing_id().alias("at"))
        return numbered.select("record.*", *_from(file, number, col("at")))
    rows = spark.read.parquet(local(file))
    record = _columns(rows)
    return rows.select(*record, *_from(file, number, col("_metadata.row_index")))


def _from(file: Path, number: int, at: Column) -> tuple[Column, ...]:
    name, partition = lit(file.name).alias("from_name"), lit(number).alias("from_partition")
    return name, partition, at.cast("long").alias("from_offset")


def _columns(rows: DataFrame) -> list[Column]:
    """The record in a row of Parquet, as `land` and `topic export` write it; a row without a value is one as JSON."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    given: dict[str, Column] = {}
    if "value" not in kinds:
        given["value"] = to_json(struct(*(col(f"`{name}`") for name in kinds))).cast("binary")
    else:
        is_nested = isinstance(kinds["value"], StructType)
        given = {name: col(name) for name in ("partition", "key", "value", "headers") if name in kinds}
        given["value"] = (to_json(col("value")) if is_nested else col("value")).cast("binary")
        if "timestamp" in kinds:
            is_time = isinstance(kinds["timestamp"], TimestampType | TimestampNTZType)
            time = col("timestamp").cast("timestamp") if is_time else col("timestamp")
            given["timestamp_ms"] = unix_millis(time) if is_time else time
    empty = {"headers": array().cast(_RECORD["headers"].dataType)}
    return [
        given.get(field.name, empty.get(field.name, lit(None))).cast(field.dataType).alias(field.name)
        for field in _RECORD.fields
    ]
