"""The job `land`: a topic into Parquet, each row once, however often the broker or the job is killed.

Spark's checkpoint fixes which offsets a batch holds; `lake.py` lets each batch in once. What does not parse goes to the
topic's dead letters before its batch lands, so that a crash between the two can repeat a dead letter but not lose one:
`error.partition` and `error.offset` in its headers tell a repeated one.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import ParseException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.lake import Lake
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.progress import Figures, Progress, Watch
from pqbroker.pipeline.rows import parsed, raw

_LOOK_EVERY_S = 0.5
_LAST_REPORT_TIMEOUT_S = 10
_NAMED_TOPICS_MAX = 10


class LandError(RuntimeError):
    """The topic cannot be landed; the text names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What to land and how."""

    topic: str
    directory: Path
    broker: str = "127.0.0.1:9092"
    group: str | None = None
    """Consumer group that shows the offsets; None is `land-TOPIC`."""
    schema: str | None = None
    """The value is JSON of this schema, in SQL: `id BIGINT NOT NULL, name STRING`; None takes it as it is."""
    once: bool = False
    interval_s: float = 10.0
    starting_offsets: str = "earliest"
    batch_rows_max: int = 1_000_000
    fail_on_data_loss: bool = True
    figures: Path | None = None
    """File for figures in Prometheus' text form."""

    @property
    def dead_letters(self) -> str:
        """The topic for what does not parse."""
        return f"{self.topic}.dlq"


def land(spark: SparkSession, landing: Landing, say: Callable[[str], None], stopping: threading.Event) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set; `say` gets a line a batch.

    Raises LandError, LakeError.
    """
    schema = None if landing.schema is None else _schema(landing.schema)
    lake = Lake(landing.directory)
    with owned(spark, lake.directory), Admin(spark, landing.broker) as admin:
        _check_topic(admin, landing)
        name = f"land {landing.topic} to {lake.directory}"
        watch = Watch(name, landing.topic, _reporter(admin, landing, say))
        spark.streams.addListener(watch)
        try:
            _run(_start(spark, landing, lake, schema, name), stopping)
            watch.over.wait(_LAST_REPORT_TIMEOUT_S)
        finally:
            spark.streams.removeListener(watch)


def _start(spark: SparkSession, landing: Landing, lake: Lake, schema: StructType | None, name: str) -> StreamingQuery:
    source = {
        "kafka.bootstrap.servers": landing.broker,
        "subscribe": landing.topic,
        "includeHeaders": "true",
        "startingOffsets": landing.starting_offsets,
        "maxOffsetsPerTrigger": str(landing.batch_rows_max),
        "failOnDataLoss": str(landing.fail_on_data_loss).lower(),
    }
    records = spark.readStream.format("kafka").options(**source).load()
    writer = records.writeStream.queryName(name).option("checkpointLocation", _path(lake.checkpoint))
    writer = writer.foreachBatch(batch_writer(landing, lake, schema))
    if landing.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(landing.interval_s * 1000)} milliseconds").start()


def batch_writer(landing: Landing, lake: Lake, schema: StructType | None) -> Callable[[DataFrame, int], None]:
    """What Spark calls with the records and the number of each batch, and again after a crash."""

    def write(records: DataFrame, number: int) -> None:
        batch = lake.batch(number)
        if schema is None:
            lake.land(batch, lambda path: raw(records).write.parquet(_path(path)))
        elif not lake.has(batch):
            records.persist()  # else both writes would read the topic
            good, bad = parsed(records, schema)
            options = {"kafka.bootstrap.servers": landing.broker, "topic": landing.dead_letters}
            bad.write.format("kafka").options(**options, includeHeaders="true").save()
            lake.land(batch, lambda path: good.write.parquet(_path(path)))
            records.unpersist()

    return write


def _run(query: StreamingQuery, stopping: threading.Event) -> None:
    """Until the query ends or shall end. Looks now and then: a signal must not break into a call to the JVM."""
    try:
        while not query.awaitTermination(_LOOK_EVERY_S) and not stopping.is_set():
            pass
    except StreamingQueryException as error:
        raise LandError(_cause(error)) from error
    finally:
        query.stop()


def _reporter(admin: Admin, landing: Landing, say: Callable[[str], None]) -> Callable[[Progress], None]:
    figures = None if landing.figures is None else Figures(landing.figures, landing.topic)
    group = landing.group or f"land-{landing.topic}"

    def report(progress: Progress) -> None:
        line = progress.line()
        try:
            admin.set_group_offsets(group, landing.topic, progress.offsets, f"batch {progress.batch}")
        except AdminError as error:  # the group only shows what landed: the next batch sets it right
            line += f"  (group {group} not set: {error})"
        if figures is not None:
            figures.write(progress)
        say(line)

    return report


def _check_topic(admin: Admin, landing: Landing) -> None:
    try:
        if not admin.has_topic(landing.topic):
            raise LandError(f"no topic {landing.topic} at {landing.broker}; {_there(admin.topics())}")
        if landing.schema is not None:
            admin.ensure_topic(landing.dead_letters)
    except AdminError as error:
        raise LandError(f"the broker at {landing.broker}: {error}") from error


def _there(topics: list[str]) -> str:
    if not topics:
        return "there are no topics yet"
    more = ", …" if len(topics) > _NAMED_TOPICS_MAX else ""
    return f"there are {', '.join(topics[:_NAMED_TOPICS_MAX])}{more}"


def _schema(text: str) -> StructType:
    try:
        schema = StructType.fromDDL(text)
    except ParseException as error:
        right = "NAME TYPE, …, such as: id BIGINT NOT NULL, name STRING, prices ARRAY<DOUBLE>"
        raise LandError(f"--schema {text!r} is not a schema; it is written {right}") from error
    assert isinstance(schema, StructType)
    return schema


def _cause(error: StreamingQueryException) -> str:
    """The innermost message: what is round it names threads and classes of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0]


def _path(path: Path) -> str:
    """A local path as Spark takes it, whatever its default file system."""
    return f"file://{path}"
