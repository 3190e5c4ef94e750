"""Writing one batch: rows into the lake, and what does not parse to the topic's dead letters.

Dead letters go before their batch lands, so that a crash between the two can repeat one but not lose one:
`error.partition` and `error.offset` in its headers tell a repeated one.
"""

import threading
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.causes import FAILURES, failure, innermost
from pqbroker.pipeline.lake import Batch, Lake, LakeError
from pqbroker.pipeline.landing import LandError, Landing
from pqbroker.pipeline.rows import parsed, raw

_ANY_SIZE = {
    "kafka.max.request.size": str(2**31 - 1),
    "kafka.buffer.memory": str(128 << 20),
    "kafka.compression.type": "zstd",
}
"""Producer settings for what was in the topic, however large: a record that is refused would stop the job for good.

A producer's own limits are for records before compression, the topic's for batches behind it.
"""
_REASON_BYTES_MAX = 64 << 10
_BATCH_BYTES_LIMIT = 120 << 20


def letter_bytes_max(batch_bytes_max: int) -> int:
    """Batch bytes for the dead letters of a topic with so many: the reason comes on top, if a topic may have more."""
    return max(batch_bytes_max, min(batch_bytes_max + _REASON_BYTES_MAX, _BATCH_BYTES_LIMIT))


class BatchWriter:
    """What Spark calls with the records and the number of each batch, and again after a crash."""

    def __init__(self, admin: Admin, landing: Landing, lake: Lake, schema: StructType | None, topic_id: str) -> None:
        self._admin = admin
        self._landing = landing
        self._lake = lake
        self._schema = schema
        self._topic_id = topic_id
        self._writing = threading.Lock()
        self.failure: LandError | LakeError | None = None
        """What a batch failed with; Spark passes on only its text, wrapped."""

    def __call__(self, records: DataFrame, number: int) -> None:
        if not self._writing.acquire(blocking=False):
            raise LandError("stopping")
        try:
            self._write_batch(records, number)
        except (LandError, LakeError) as error:
            self.failure = error
            raise
        except FAILURES as error:
            self.failure = failure(error, self._landing)
            raise self.failure from None
        finally:
            self._writing.release()

    def close(self) -> None:
        """Wait for the batch in work, and refuse all others from now on.

        Before a query is stopped. Stopped within a batch, Spark 4.2 looks for an interrupt in the text of the Python
        error by a regular expression that overflows the thread's stack, and may never end.
        """
        self._writing.acquire()

    def _write_batch(self, records: DataFrame, number: int) -> None:
        batch = self._lake.batch(number)
        if self._lake.has(batch):
            return
        if self._schema is None:
            self._land(batch, raw(records))
            return
        records.persist()  # else both writes would read the topic
        try:
            good, bad = parsed(records, self._schema)
            self._send_letters(bad)
            self._land(batch, good)
        finally:
            records.unpersist()

    def _send_letters(self, bad: DataFrame) -> None:
        topic = self._landing.dead_letters
        sink = {"kafka.bootstrap.servers": self._landing.broker, "topic": topic, "includeHeaders": "true"}
        try:
            bad.write.format("kafka").options(**sink, **_ANY_SIZE).save()
        except FAILURES as error:
            raise LandError(f"dead letters to {topic}: {innermost(error)}") from None

    def _land(self, batch: Batch, rows: DataFrame) -> None:
        self._lake.land(batch, lambda place: self._write(rows, place))

    def _write(self, rows: DataFrame, place: Path) -> None:
        """Spark goes by the topic's name and would read on in another topic of it: looked at after the rows were."""
        rows.write.parquet(local(place))
        try:
            topic_id = self._admin.topic_id(self._landing.topic)
        except AdminError as error:
            raise LandError(f"the broker at {self._landing.broker}: {error}") from error
        if topic_id != self._topic_id:
            raise LandError(f"topic {self._landing.topic} was deleted, or deleted and made again, under the job")


def local(path: Path) -> str:
    """A local path as Spark takes it, whatever its default file system."""
    return f"file://{path}"
