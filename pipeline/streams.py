"""A streaming query over one topic, as the jobs run it: each batch goes to a function.

Spark's checkpoint fixes the offsets of a batch before it runs, and runs the same batch again after a crash.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.causes import FAILURES, failure
from pqbroker.pipeline.connection_security import spark_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.progress import Watch
from pqbroker.pipeline.topics_shown import shown_topics

_LOOK_EVERY_S = 1
_STOP_TIMEOUT_S = 5
_LAST_REPORT_TIMEOUT_S = 15


class Reading(Protocol):
    """The source that a job reads, and until when."""

    @property
    def topic(self) -> str: ...
    @property
    def broker(self) -> str: ...
    @property
    def once(self) -> bool: ...
    @property
    def interval_s(self) -> float: ...
    @property
    def starting_offsets(self) -> str: ...
    @property
    def batch_rows_max(self) -> int: ...
    @property
    def fail_on_data_loss(self) -> bool: ...


class Batches:
    """A callback of Spark with the records and the number of each batch: one at a time, none once it is closed."""

    def __init__(self, write: Callable[[DataFrame, int], None], reading: Reading) -> None:
        self._write = write
        self._reading = reading
        self._writing = threading.Lock()
        self.failure: JobError | None = None
        """Error of a batch; Spark passes on only its text, wrapped."""

    def __call__(self, records: DataFrame, number: int) -> None:
        if not self._writing.acquire(blocking=False):
            raise JobError("stopping")
        try:
            self._write(records, number)
        except JobError as error:
            self.failure = error
            raise
        except FAILURES as error:
            self.failure = failure(error, self._reading.topic, self._reading.broker)
            raise self.failure from None
        finally:
            self._writing.release()

    def close(self) -> None:
        """Wait for the batch in work, and refuse all others from now on.

        Before a query is stopped. Stopped within a batch, Spark 4.2 looks for an interrupt in the text of the Python
        error by a regular expression that overflows the thread's stack, and may never end.
        """
        self._writing.acquire()


def run_stream(
    spark: SparkSession, reading: Reading, checkpoint: Path, batches: Batches, watch: Watch, stopping: threading.Event
) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set. Raises JobError."""
    spark.streams.addListener(watch)
    try:
        query = _start(spark, reading, checkpoint, batches, watch.query)
        if _run(query, reading, batches, stopping):
            watch.over.wait(_LAST_REPORT_TIMEOUT_S)
    finally:
        spark.streams.removeListener(watch)


def find_topic(admin: Admin, topic: str, broker: str) -> str:
    """The id of a topic that must exist. JobError without it, with those that do."""
    try:
        topic_id = admin.topic_id(topic)
        if topic_id is None:
            raise JobError(f"no topic {topic} at {broker}; {shown_topics(admin.topics())}")
    except AdminError as error:
        raise JobError(f"the broker at {broker}: {error}") from error
    return topic_id


def check_topic(admin: Admin, topic: str, topic_id: str, broker: str) -> None:
    """JobError when the topic under this name is not the one of this id any more."""
    try:
        found = admin.topic_id(topic)
    except AdminError as error:
        raise JobError(f"the broker at {broker}: {error}") from error
    if found != topic_id:
        raise JobError(f"topic {topic} was deleted, or deleted and made again, under the job")


def local(path: Path) -> str:
    """A local path as Spark takes it, whatever its default file system."""
    return f"file://{path}"


def _start(
    spark: SparkSession, reading: Reading, checkpoint: Path, batches: Batches, name: str
) -> StreamingQuery:
    source = {
        "kafka.bootstrap.servers": reading.broker,
        "kafka.isolation.level": "read_committed",
        "subscribe": reading.topic,
        "includeHeaders": "true",
        "startingOffsets": reading.starting_offsets,
        "maxOffsetsPerTrigger": str(reading.batch_rows_max),
        "failOnDataLoss": str(reading.fail_on_data_loss).lower(),
        **spark_options(),
    }
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{_STOP_TIMEOUT_S}s")
    records = spark.readStream.format("kafka").options(**source).load()
    writer = records.writeStream.queryName(name).option("checkpointLocation", local(checkpoint))
    writer = writer.foreachBatch(batches)
    if reading.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(reading.interval_s * 1000)} milliseconds").start()


def _run(query: StreamingQuery, reading: Reading, batches: Batches, stopping: threading.Event) -> bool:
    """Until the query ends or shall end; whether it did. Looks now and then: a signal must not break into a call to
    the JVM."""
    try:
        while not query.awaitTermination(_LOOK_EVERY_S) and not stopping.is_set():
            pass
    except StreamingQueryException as error:
        raise batches.failure or failure(error, reading.topic, reading.broker) from error
    finally:
        batches.close()
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
