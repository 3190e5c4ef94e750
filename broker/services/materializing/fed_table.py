"""A materialization's topic and table as they are served now, and what keeps the one from feeding the other."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.services.materializing.fed_partitions import FedSpan
from pqbroker.broker.services.tables.callers import TablesNode, TablesOpening
from pqbroker.broker.services.topics.topic_schemas import schema_of, typed_schema_of
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.mount import MountState, closed
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedProgress
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

    def next_offset(self, progress: FeedProgress, span: FedSpan) -> int:
        """Return the offset of a partition that is read next. TableError TRIMMED, TOPIC_SHORTER."""
        partition, start, end = span
        stands = progress.offset_of(self.record.run, partition)
        if stands is None:
            return start
        if stands < start:
            text = f"partition {partition} was read up to {stands}, and begins with {start} now: records are lost"
            raise TableError("TRIMMED", text, f"{FROM_START}; rows whose deletes are lost stay.")
        if stands > end:
            text = f"partition {partition} was read up to {stands}, and ends with {end} now"
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


def home_elsewhere(node: TablesNode, table: SortedTable) -> int | None:
    """Return the number of the other node that runs the first tablet of a table, which keeps the progress; None: this
    one does, or none does now."""
    return node.leaders.other_node(table.record.cell_of(0))


def find_fed(node: TablesNode, opened: TablesOpening, record: MaterializationRecord) -> FedTable:
    """Return a record's topic and table. TableError says what keeps it from feeding now."""
    table = opened.sorted_tables.by_id(record.table_id)
    if table is None:
        raise TableError("NO_TABLE", "the table was deleted", "Nothing is left to do.")
    topic = opened.topics.by_id(record.topic_id)
    if topic is None:
        raise _no_topic(opened, record)
    _check_table(node, table, record)
    try:
        resolve_origins(table.schema, typed_schema_of(topic), record.origins)
    except TableError as wrong:
        cure = f"{wrong.cure} Or {RESUME} finds the origins again."
        raise TableError("TOPIC_ALTERED", wrong.message, cure) from None
    return FedTable(record, topic, table)


def check_writable(node: TablesNode, table: SortedTable, indexes: Collection[int]) -> None:
    """TableError as `SortedTablet.check_writable` of those of some tablets that this node runs; others check theirs."""
    for index in indexes:
        if node.leaders.other_node(table.record.cell_of(index)) is None:
            table.tablets[index].check_writable()


def _check_table(node: TablesNode, table: SortedTable, record: MaterializationRecord) -> None:
    if table.record.columns != record.columns:
        text = "the table was altered since its origins were found"
        raise TableError("TABLE_ALTERED", text, f"{RESUME} finds the origins again.")
    for index in range(len(table.tablets)):
        state = table.state_of(index)
        if state is not MountState.MOUNTED:
            raise closed(table_path(table.record.name), index, state)
    check_writable(node, table, (0,))
    home = home_elsewhere(node, table)
    if home is None:
        return
    cells = {table.record.cell_of(index) for index in range(len(table.tablets))}
    if {node.leaders.other_node(cell) for cell in cells} != {home}:
        text = f"node {home} runs the first tablet, which keeps the progress, and other nodes run other tablets"
        cell = table.record.cell_of(0)
        raise TableError("OTHER_NODE", text, f"Move the first tablet's cell: `pqbroker cell move {cell} --node 1`.")


def _no_topic(opened: TablesOpening, record: MaterializationRecord) -> TableError:
    if opened.topics.get(record.topic) is None:
        text = f"the topic {record.topic!r} was deleted"
        cure = "Drop the materialization; or create the topic, and resume from its start."
        return TableError("TOPIC_DELETED", text, cure)
    text = f"the topic {record.topic!r} was deleted and created again, or resharded"
    return TableError("TOPIC_REPLACED", text, f"{FROM_START}.")
