"""Attributes of sorted tables: what is set is the table's; each tablet takes it at its mount or remount."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.change_feeds import (
    keep_creator,
    ready_feed,
    ready_for_mount,
    reserved_feed,
    with_feed_name,
)
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.tablets_away import chunk_sizes, settle_away, tablets_away
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange
from pqbroker.conf.sorted_attributes import CHANGES_ATTRIBUTE, FORCED_REVISION
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.attribute_checks import check_sorted_attributes, with_next_revision
from pqbroker.tables.sorted.picking.estimates import check_wave, forced_estimate, periodic_estimate

PERIOD: Final = "auto_compaction_period"


async def set_sorted_attributes(
    caller: TablesCaller, name: str, given: Mapping[str, Any], *, is_agreed: bool = False
) -> tuple[SortedTable, str]:
    """Set some attributes; they act in a tablet from its next mount or remount on. A forced compaction of 1 becomes the
    table's next revision. Return the table, and what a compaction of all of it will cost, empty where none is asked
    for. `is_agreed`: an administrator agrees to a large one. TableError NO_TABLE, INVALID_ATTRIBUTE, NEEDS_AGREEMENT.
    A change feed's topic is created, if it does not exist: raises as `ready_feed` too.
    """
    table = find_sorted(caller, AclOperation.ALTER_CONFIGS, name)
    given = with_feed_name(given)
    check_sorted_attributes(given, table.record.attributes)
    cost = await _cost(caller, table, given, is_agreed=is_agreed)

    def changed(record: SortedTableRecord) -> SortedTableRecord:
        check_sorted_attributes(given, record.attributes)
        next_revision = record.revision + 1
        stored = with_next_revision(given, next_revision)
        revision = next_revision if stored.get(FORCED_REVISION) == next_revision else record.revision
        return replace(record, attributes={**record.attributes, **stored}, revision=revision)

    with reserved_feed(caller, given, name) as feed:
        if feed is not None:
            find_sorted(caller, AclOperation.READ, name)  # readers of the feed see the rows
            await ready_feed(caller, table.record, feed)
            await keep_creator(caller, table.record, feed)
        return await caller.node.cell.current.sorted_tables.change(table, changed), cost


async def _cost(caller: TablesCaller, table: SortedTable, given: Mapping[str, Any], *, is_agreed: bool) -> str:
    period: Any = given.get(PERIOD)
    is_forced = given.get(FORCED_REVISION) is not None
    is_periodic = type(period) is int and period > 0
    if not is_forced and not is_periodic:
        return ""
    count, size, nodes = await chunk_sizes(caller, table)
    if is_forced:
        check_wave(size, count, is_agreed=is_agreed)
        return forced_estimate(size, nodes).text
    return periodic_estimate(size, nodes, int(period)).text


async def remount_sorted(caller: TablesCaller, name: str, tablets: TabletRange = ALL_TABLETS) -> SortedTable:
    """Make the set attributes act now in a range of tablets, or in all of them. TableError NO_TABLE, NO_TABLET,
    INVALID_ATTRIBUTE; TRANSACTION_UNDER_WAY where a change feed begins."""
    table = find_sorted(caller, AclOperation.ALTER, name)
    await ready_for_mount(caller, table.record)

    def changed(record: SortedTableRecord) -> SortedTableRecord:
        indexes = tablets.among(record.name, len(record.tablets))
        return replace(record, mounted=record.mounted.taken(indexes, record.attributes))

    sorted_tables = caller.node.cell.current.sorted_tables
    beginning = _beginning(table, tablets.among(table.record.name, len(table.tablets)))
    try:
        for tablet in beginning:
            await tablet.end_transactions(with_decisions=False)
        await sorted_tables.change(table, changed)
    finally:
        for tablet in beginning:
            tablet.resume_writes()
    await settle_away(caller, table, tablets_away(caller, table, range(len(table.tablets))))
    sorted_tables.background.look_soon()
    return table


def _beginning(table: SortedTable, indexes: Sequence[int]) -> Sequence[SortedTablet]:
    """Return the tablets that get another change feed: rows that are prepared there go first, since the feed has
    changes in the order of their timestamps."""
    topic = table.record.attributes.get(CHANGES_ATTRIBUTE)
    tablets = [table.tablets[index] for index in indexes]
    return [one for one in tablets if topic is not None and one.config.attributes.changes != topic and one.is_serving]
