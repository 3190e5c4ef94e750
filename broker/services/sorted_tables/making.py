"""Creating, deleting and altering sorted tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.commits.elsewhere import WantedParts, parts_elsewhere
from pqbroker.broker.services.commits.in_doubt import IN_DOUBT_CURE
from pqbroker.broker.services.sorted_tables.change_feeds import (
    check_partitions,
    keep_creator,
    ready_feed,
    reserved_feed,
    with_feed_name,
)
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.tablets_away import end_away, resume_away, settle_away, tablets_away
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.making import bundle_wanted
from pqbroker.broker.services.topics.finding import check_creation, topic_resource
from pqbroker.broker.services.topics.topics import check_new_name
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.attribute_checks import check_sorted_attributes, with_next_revision
from pqbroker.tables.sorted.pivots import read_pivots
from pqbroker.tables.sorted.schema import check_sorted_alteration, check_sorted_names, read_sorted_schema
from pqbroker.tables.work.libraries import check_libraries

SORTED_TABLETS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NewSortedTable:
    """A table as it is asked for. What is None was left out."""

    path: str
    columns: Sequence[Mapping[str, Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bundle: str | None = None
    """None: that of the directory, or the default one."""
    pivot_keys: Sequence[Any] | None = None
    """The first key of each tablet, as lists of key values; the first one is empty."""
    is_mounted: bool = True


async def create_sorted(caller: TablesCaller, new: NewSortedTable) -> SortedTable:
    """Create a sorted table.

    KafkaError as `check_new_name` and TOPIC_AUTHORIZATION_FAILED; TableError NO_BUNDLE, INVALID_PIVOTS,
    INVALID_ATTRIBUTE, INVALID_PATH and those of schemas.
    """
    name = topic_name(new.path)
    check_creation(caller, name)
    check_libraries()
    await caller.node.cell.current.sorted_tables.drop_left()
    check_new_name(caller.node, name)
    schema = read_sorted_schema(new.columns, caller.node.settings.table_columns_max)
    check_sorted_names(schema)
    pivots = read_pivots(schema, new.pivot_keys)
    if len(pivots) > SORTED_TABLETS_MAX:
        text = f"pivot_keys has {len(pivots)} keys; a table has at most {SORTED_TABLETS_MAX} tablets"
        raise TableError("INVALID_PIVOTS", text, "Give fewer pivots.")
    given = with_feed_name(new.attributes)
    check_sorted_attributes(given, {})
    attributes = with_next_revision(given, 1)
    bundle, _ = bundle_wanted(caller, name, new.bundle)
    state = MountState.MOUNTED if new.is_mounted else MountState.UNMOUNTED
    count = len(pivots)
    wanted = SortedTableRecord(
        name, b"", schema.documents(), attributes, MountedAttributes.collect([attributes] * count),
        tuple(pivots), (state.value,) * count, (), bundle, caller.node.clock(),
    )  # fmt: skip
    with reserved_feed(caller, attributes, name) as feed:
        table = await uninterrupted(_create(caller, wanted, feed))
    await settle_away(caller, table, tablets_away(caller, table, range(count)))
    return table


async def _create(caller: TablesCaller, wanted: SortedTableRecord, feed: str | None) -> SortedTable:
    """Create a table, and the topic of its change feed, if it has one: both, or none unless a crash comes between."""
    sorted_tables = caller.node.cell.current.sorted_tables
    if feed is None:
        return await sorted_tables.create(wanted)
    check_access(caller, AclOperation.READ, topic_resource(wanted.name))  # readers of the feed see the rows
    topic = caller.node.cell.current.topics.get(feed, or_static=True)
    if topic is not None:
        check_partitions(topic, len(wanted.pivots))
    table = await sorted_tables.create(wanted)
    try:
        await ready_feed(caller, table.record, feed)
        await keep_creator(caller, table.record, feed)
    except BaseException:
        await sorted_tables.delete(table)
        raise
    return table


async def delete_sorted(caller: TablesCaller, name: str) -> None:
    """Delete a table. KafkaError TOPIC_AUTHORIZATION_FAILED, TOPIC_DELETION_DISABLED; TableError NO_TABLE,
    TRANSACTION_UNDER_WAY, NODE_SILENT."""
    table = find_sorted(caller, AclOperation.DELETE, name)
    if not caller.node.settings.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false: no table is deleted")
    opened = caller.node.cell.current
    if told := await _why_needed(caller, table):
        text = f"table {name} is not deleted while a transaction needs it: {told}"
        raise TableError("TRANSACTION_UNDER_WAY", text, IN_DOUBT_CURE)
    nodes = sorted(tablets_away(caller, table, range(len(table.tablets))))
    await end_away(caller, table, nodes)
    try:
        await opened.sorted_tables.delete(table)
    except BaseException:
        uninterrupted(resume_away(caller, table, nodes))
        raise


async def _why_needed(caller: TablesCaller, table: SortedTable) -> str:
    """Return which rows in doubt, at any node, wait for tablets that are not open; empty: none. TableError."""
    commits, others = caller.node.cell.current.commits, caller.node.others()
    told, closed = commits.why_needed(table.record.tablets), commits.not_open(table.record.tablets)
    if told or others is None or not closed:
        return told
    try:
        found = await parts_elsewhere(others, caller.node.leaders.others, WantedParts(1, homes=closed))
    except NodeSilent as silent:
        cure = "Try again when the cells of the table, or all nodes, are open: `pqbroker cell list` shows them."
        raise TableError("NODE_SILENT", str(silent), cure) from None
    return commits.why_waiting(found[0]) if found else ""


async def alter_sorted(caller: TablesCaller, name: str, columns: Sequence[Mapping[str, Any]]) -> SortedTable:
    """Give a table that is unmounted as a whole other columns. TableError NO_TABLE, WRONG_STATE, INCOMPATIBLE_SCHEMA
    and those of schemas."""
    table = find_sorted(caller, AclOperation.ALTER, name)
    schema = read_sorted_schema(columns, caller.node.settings.table_columns_max)

    def altered(record: SortedTableRecord) -> SortedTableRecord:
        check_all_unmounted(table)
        old = read_sorted_schema(record.columns, len(record.columns))
        check_sorted_alteration(old, schema)
        check_sorted_names(schema, old)
        return replace(record, columns=schema.documents())

    return await caller.node.cell.current.sorted_tables.change(table, altered)


def check_all_unmounted(table: SortedTable) -> None:
    """TableError WRONG_STATE unless all tablets are unmounted."""
    for index, state in enumerate(table.states):
        if state is not MountState.UNMOUNTED:
            raise TableError("WRONG_STATE", f"tablet {index} is {state.value}", "Unmount the whole table first.")
