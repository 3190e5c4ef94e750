"""The job `snapshot`: the latest value of each key of a topic as a table, in versions of which each is whole.

A batch of records changes the version before into the next one. Spark's checkpoint fixes which offsets a batch holds,
`latest.py` makes its rows, `lake.py` lets each version in once, `versions.py` shows it to readers.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pqbroker.pipeline.admin import Admin
from pqbroker.pipeline.lakes.lake import VERSIONS, Batch, Lake
from pqbroker.pipeline.lakes.latest import changed, keyless, latest
from pqbroker.pipeline.lakes.letters import DeadLetters
from pqbroker.pipeline.lakes.rows import bad, good_or_deleted, judged, raw
from pqbroker.pipeline.lakes.schemas import parse_schema
from pqbroker.pipeline.lakes.snapshotting import Snapshotting
from pqbroker.pipeline.lakes.versions import show, version_before
from pqbroker.pipeline.ownership import owned
from pqbroker.pipeline.progress import Counts, Figures, Watch
from pqbroker.pipeline.reports import Reports
from pqbroker.pipeline.streams import Batches, check_topic, find_topic, local, run_stream


def snapshot(
    spark: SparkSession, snapshotting: Snapshotting, say: Callable[[str], None], stopping: threading.Event
) -> None:
    """Run until the topic's present end (`once`) or until `stopping` is set; `say` gets a line a version. JobError."""
    schema = _schema(snapshotting)
    lake = Lake(snapshotting.directory, VERSIONS)
    with owned(spark, lake.directory), Admin(spark, snapshotting.broker) as admin:
        lake.clear()
        topic_id = find_topic(admin, snapshotting.topic, snapshotting.broker)
        lake.claim(snapshotting.topic, topic_id)
        writer = _VersionWriter(admin, snapshotting, lake, schema, topic_id)
        figures = None
        if snapshotting.figures is not None:
            figures = Figures("snapshot", snapshotting.figures, snapshotting.topic)
        reports = Reports(admin, snapshotting, figures, writer.counts, say)
        if (last := lake.last()) is not None:
            show(lake, last.number, snapshotting.keep)  # a kill may have come between the version and its link
            ends = last.until[snapshotting.topic]
            reports.resume(last.number, {int(number): offset for number, offset in ends.items()})
        watch = Watch(f"snapshot {snapshotting.topic} to {lake.directory}", snapshotting.topic, reports.batch)
        run_stream(spark, snapshotting, lake.checkpoint, Batches(writer.write, snapshotting), watch, stopping)


def _schema(snapshotting: Snapshotting) -> StructType | None:
    if snapshotting.registry is not None:
        from pqbroker.pipeline.lakes.registry import latest_schema

        return latest_schema(snapshotting.registry, snapshotting.topic)
    return None if snapshotting.schema is None else parse_schema(snapshotting.schema)


class _VersionWriter:
    """Writes a version for each batch, of which a crash may repeat one."""

    def __init__(
        self, admin: Admin, snapshotting: Snapshotting, lake: Lake, schema: StructType | None, topic_id: str
    ) -> None:
        self._admin = admin
        self._snapshotting = snapshotting
        self._lake = lake
        self._schema = schema
        self._topic_id = topic_id
        self._letters = None
        if schema is not None:
            self._letters = DeadLetters(admin, snapshotting.topic, snapshotting.broker)
        self._counts: dict[int, Counts] = {}

    def write(self, records: DataFrame, number: int) -> None:
        """Write the version of a batch, unless it exists, and show it."""
        batch = self._lake.batch(number)
        if not self._lake.has(batch):
            if self._schema is None or self._letters is None:
                self._land(batch, raw(records), 0)
            else:
                # kept, or else all writes would read and parse the topic
                told_apart = self._judged(records, self._schema).persist()
                try:
                    letters = self._letters.send(bad(told_apart.where("value IS NOT NULL")))
                    self._land(batch, good_or_deleted(told_apart, self._schema), letters)
                finally:
                    told_apart.unpersist()
        show(self._lake, number, self._snapshotting.keep)

    def counts(self, number: int) -> Counts:
        """Return the counts of a batch that is done; asked once."""
        return self._counts.pop(number, Counts())

    def _judged(self, records: DataFrame, schema: StructType) -> DataFrame:
        if self._snapshotting.registry is None:
            return judged(records, schema)
        from pqbroker.pipeline.lakes.registry import judged_by_registry

        return judged_by_registry(records, self._snapshotting.registry, schema)

    def _land(self, batch: Batch, rows: DataFrame, letters: int) -> None:
        place = version_before(self._lake, batch.number)
        table = None if place is None else _read(rows, place)
        found = latest(rows).persist()
        try:
            self._lake.land(batch, lambda place: self._write(changed(table, found), place))
            keys = _read(rows, self._lake.place(batch.number)).count()
            self._counts[batch.number] = Counts(letters, keyless(found), keys)
        finally:
            found.unpersist()

    def _write(self, table: DataFrame, place: Path) -> None:
        """Spark goes by the topic's name and would read on in another topic of it: looked at after the rows were."""
        table.write.parquet(local(place))
        check_topic(self._admin, self._snapshotting.topic, self._topic_id, self._snapshotting.broker)


def _read(rows: DataFrame, version: Path) -> DataFrame:
    """A version with the columns of the rows."""
    return rows.sparkSession.read.schema(rows.schema).parquet(local(version))
