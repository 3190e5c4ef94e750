"""The job `land`: a topic into Parquet, each row once, however often the broker or the job is killed.

Spark's checkpoint fixes which offsets a batch holds, `batches.py` writes them, `lake.py` lets each batch in once.
"""

import threading
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.batches import BatchWriter, letter_bytes_max, local
from pqbroker.pipeline.causes import failure
from pqbroker.pipeline.lake import Lake
from pqbroker.pipeline.landing import LandError, Landing
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.progress import Watch
from pqbroker.pipeline.reports import Reports

_LOOK_EVERY_S = 1
_STOP_TIMEOUT_S = 5
_LAST_REPORT_TIMEOUT_S = 15
_NAMED_TOPICS_MAX = 10


def land(spark: SparkSession, landing: Landing, say: Callable[[str], None], stopping: threading.Event) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set; `say` gets a line a batch.

    Raises LandError, LakeError.
    """
    schema = None if landing.schema is None else _schema(landing.schema)
    lake = Lake(landing.directory)
    with owned(spark, lake.directory), Admin(spark, landing.broker) as admin:
        lake.clear()
        topic_id = _find_topic(admin, landing)
        lake.claim(landing.topic, topic_id)
        reports = Reports(admin, landing, say)
        reports.resume(lake.last())
        watch = Watch(f"land {landing.topic} to {lake.directory}", landing.topic, reports.batch)
        spark.streams.addListener(watch)
        try:
            writer = BatchWriter(admin, landing, lake, schema, topic_id)
            query = _start(spark, landing, lake, writer, watch.query)
            if _run(query, landing, writer, stopping):
                watch.over.wait(_LAST_REPORT_TIMEOUT_S)
        finally:
            spark.streams.removeListener(watch)


def _start(spark: SparkSession, landing: Landing, lake: Lake, write: BatchWriter, name: str) -> StreamingQuery:
    source = {
        "kafka.bootstrap.servers": landing.broker,
        "subscribe": landing.topic,
        "includeHeaders": "true",
        "startingOffsets": landing.starting_offsets,
        "maxOffsetsPerTrigger": str(landing.batch_rows_max),
        "failOnDataLoss": str(landing.fail_on_data_loss).lower(),
    }
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{_STOP_TIMEOUT_S}s")
    records = spark.readStream.format("kafka").options(**source).load()
    writer = records.writeStream.queryName(name).option("checkpointLocation", local(lake.checkpoint))
    writer = writer.foreachBatch(write)
    if landing.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(landing.interval_s * 1000)} milliseconds").start()


def _run(query: StreamingQuery, landing: Landing, writer: BatchWriter, stopping: threading.Event) -> bool:
    """Until the query ends or shall end; whether it did. Looks now and then: a signal must not break into a call to
    the JVM."""
    try:
        while not query.awaitTermination(_LOOK_EVERY_S) and not stopping.is_set():
            pass
    except StreamingQueryException as error:
        raise writer.failure or failure(error, landing) from error
    finally:
        writer.close()
        has_ended = _stop(query)
    return has_ended


def _stop(query: StreamingQuery) -> bool:
    """Stop a query between batches. One that waits for a broker that is away is left to itself: it writes no more."""
    try:
        query.stop()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "TimeoutException":
            raise
        return False
    return True


def _find_topic(admin: Admin, landing: Landing) -> str:
    """The topic's id. Makes the topic for dead letters when there can be some."""
    try:
        topic_id = admin.topic_id(landing.topic)
        if topic_id is None:
            raise LandError(f"no topic {landing.topic} at {landing.broker}; {_there(admin.topics())}")
        if landing.schema is not None:
            admin.ensure_topic(landing.dead_letters, letter_bytes_max(admin.batch_bytes_max(landing.topic)))
    except AdminError as error:
        raise LandError(f"the broker at {landing.broker}: {error}") from error
    return topic_id


def _there(topics: list[str]) -> str:
    if not topics:
        return "there are no topics yet"
    more = ", …" if len(topics) > _NAMED_TOPICS_MAX else ""
    return f"there are {', '.join(topics[:_NAMED_TOPICS_MAX])}{more}"


def _schema(text: str) -> StructType:
    wrong = LandError(
        f"--schema {text!r} is not a schema; it is written NAME TYPE, …, such as: "
        "id BIGINT NOT NULL, name STRING, prices ARRAY<DOUBLE>"
    )
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise wrong from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise wrong
    return schema
