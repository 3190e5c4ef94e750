"""A materialization's topic and table as they are served now, and what keeps the one from feeding the other."""

from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.services.tables.callers import TablesOpening
from pqbroker.broker.services.topics.topic_schemas import schema_of, typed_schema_of
from pqbroker.pq.reading.query import READ_COMMITTED, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.mount import MountState, closed
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.column_origins import resolve_origins

RESUME: Final = "`pqbroker table resume-materialization TABLE`"
FROM_START: Final = "`pqbroker table resume-materialization TABLE --from-start` reads the topic from its start"


@dataclass(frozen=True, slots=True)
class FedTable:
    """The topic and the table of a record."""

    record: MaterializationRecord
    topic: Topic
    table: SortedTable

    def next_offset(self, partition: PartitionServer) -> int:
        """Return the offset of a partition that is read next. TableError TRIMMED, TOPIC_SHORTER."""
        start, end = partition.start_offset, visible_end(partition.state, READ_COMMITTED)
        stands = self.table.tablets[0].progress.offset_of(self.record.run, partition.index)
        if stands is None:
            return start
        if stands < start:
            text = f"partition {partition.index} was read up to {stands}, and begins with {start} now: records are lost"
            raise TableError("TRIMMED", text, f"{FROM_START}; rows whose deletes are lost stay.")
        if stands > end:
            text = f"partition {partition.index} was read up to {stands}, and ends with {end} now"
            raise TableError("TOPIC_SHORTER", text, f"{FROM_START}.")
        return stands

    def document(self) -> dict[str, Any]:
        """Return what a worker is given of both."""
        columns, formats = schema_of(self.topic) or (None, {})
        table = self.table.record
        return {
            "table": table.columns, "columns": columns, "formats": formats, "origins": self.record.origins,
            "topic": self.record.topic, "pivots": [pivot.hex() for pivot in table.pivots],
        }  # fmt: skip


def find_fed(opened: TablesOpening, record: MaterializationRecord) -> FedTable:
    """Return a record's topic and table. TableError says what keeps it from feeding now."""
    table = opened.sorted_tables.by_id(record.table_id)
    if table is None:
        raise TableError("NO_TABLE", "the table was deleted", "Nothing is left to do.")
    topic = opened.topics.by_id(record.topic_id)
    if topic is None:
        raise _no_topic(opened, record)
    _check_table(table, record)
    try:
        resolve_origins(table.schema, typed_schema_of(topic), record.origins)
    except TableError as wrong:
        cure = f"{wrong.cure} Or {RESUME} finds the origins again."
        raise TableError("TOPIC_ALTERED", wrong.message, cure) from None
    return FedTable(record, topic, table)


def _check_table(table: SortedTable, record: MaterializationRecord) -> None:
    if table.record.columns != record.columns:
        text = "the table was altered since its origins were found"
        raise TableError("TABLE_ALTERED", text, f"{RESUME} finds the origins again.")
    for index in range(len(table.tablets)):
        state = table.state_of(index)
        if state is not MountState.MOUNTED:
            raise closed(table_path(table.record.name), index, state)
    table.tablets[0].check_writable()


def _no_topic(opened: TablesOpening, record: MaterializationRecord) -> TableError:
    if opened.topics.get(record.topic) is None:
        text = f"the topic {record.topic!r} was deleted"
        cure = "Drop the materialization; or create the topic, and resume from its start."
        return TableError("TOPIC_DELETED", text, cure)
    text = f"the topic {record.topic!r} was deleted and created again, or resharded"
    return TableError("TOPIC_REPLACED", text, f"{FROM_START}.")
