"""Writing one batch: rows into the lake, and what does not parse to the topic's dead letters.

Dead letters go before their batch lands, so that a crash between the two can repeat one but not lose one:
`error.partition` and `error.offset` in its headers tell a repeated one.
"""

from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin
from pqbroker.pipeline.lakes.file_sizes import plan_files
from pqbroker.pipeline.lakes.lake import Batch, Lake
from pqbroker.pipeline.lakes.landing import DATE, Landing
from pqbroker.pipeline.lakes.letters import DeadLetters
from pqbroker.pipeline.lakes.rows import bad, flattened, good, judged, raw, with_date
from pqbroker.pipeline.progress import Counts
from pqbroker.pipeline.streams import check_topic, local


class BatchWriter:
    """Writes the records of each batch, of which a crash may repeat one."""

    def __init__(self, admin: Admin, landing: Landing, lake: Lake, schema: StructType | None, topic_id: str) -> None:
        """Create the topic for dead letters if `schema` is given. Raises JobError when that fails."""
        self._admin = admin
        self._landing = landing
        self._lake = lake
        self._schema = schema
        self._topic_id = topic_id
        self._letters = None if schema is None else DeadLetters(admin, landing.topic, landing.broker)
        self._counts: dict[int, Counts] = {}

    def write_batch(self, records: DataFrame, number: int) -> None:
        """Write a batch, unless it exists."""
        batch = self._lake.batch(number)
        if self._lake.has(batch):
            return
        if self._schema is None or self._letters is None:
            self._land(batch, raw(records))
            return
        told_apart = self._judged(records, self._schema).persist()  # else both writes would read and parse the topic
        try:
            self._counts[number] = Counts(letters=self._letters.send(bad(told_apart)))
            rows = good(told_apart, self._schema)
            self._land(batch, flattened(rows) if self._landing.is_flat else rows)
        finally:
            told_apart.unpersist()

    def counts(self, number: int) -> Counts:
        """Return the counts of a batch that is done; asked once."""
        return self._counts.pop(number, Counts())

    def _judged(self, records: DataFrame, schema: StructType) -> DataFrame:
        if self._landing.registry is None:
            return judged(records, schema)
        from pqbroker.pipeline.lakes.registry import judged_by_registry

        return judged_by_registry(records, self._landing.registry, schema)

    def _land(self, batch: Batch, rows: DataFrame) -> None:
        if self._landing.by_date:
            rows = with_date(rows)
        writer = rows.write
        if self._landing.file_bytes is not None:
            files = plan_files(self._lake.rows(batch), self._lake.row_bytes(), self._landing.file_bytes)
            writer = rows.coalesce(files.count).write.option("maxRecordsPerFile", files.rows_max)
        if self._landing.by_date:
            writer = writer.partitionBy(DATE)
        self._lake.land(batch, lambda place: self._write(writer, place))

    def _write(self, writer: DataFrameWriter, place: Path) -> None:
        """Spark goes by the topic's name and would read on in another topic of it: looked at after the rows were."""
        writer.parquet(local(place))
        check_topic(self._admin, self._landing.topic, self._topic_id, self._landing.broker)
