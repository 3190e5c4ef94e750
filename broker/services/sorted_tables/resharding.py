"""Resharding of sorted tables: other pivots for a range of unmounted tablets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.change_feeds import check_no_feed
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.making import SORTED_TABLETS_MAX
from pqbroker.broker.services.sorted_tables.resharding_away import FillingAway, plan_away, resharding_nodes
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.cells_here import with_cells_here
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.kv.commands import KeyValueError
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.resharding import ReshardPlan, check_unmounted, pivots_for_count, plan_reshard
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.chunks import ChunkDamaged
from pqbroker.tables.sorted.pivots import encode_pivots_of_range


@dataclass(frozen=True, slots=True)
class SortedReshard:
    """`tablets` get other pivots: those that are given, or as many as `tablet_count` by samples of the keys."""

    tablets: TabletRange = ALL_TABLETS
    pivot_keys: Sequence[Any] | None = None
    tablet_count: int | None = None
    is_dry_run: bool = False
    """True: no more is done than to tell the cost."""


class SortedResharded(NamedTuple):
    """The outcome: the table, and what was copied, or would be."""

    table: SortedTable
    copied_bytes: int
    rewritten_bytes: int
    seconds: float
    """Time that this takes by the rate of background work."""


async def reshard_sorted(caller: TablesCaller, name: str, wanted: SortedReshard) -> SortedResharded:
    """Reshard a table. Durable with one commit of the scheme; the new tablets are unmounted.

    KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE, NO_TABLET, INVALID_PIVOTS, INVALID_RESHARD, WRONG_STATE,
    RESHARD_FAILED, TABLET_NOT_OPEN, TRANSACTION_UNDER_WAY, HAS_CHANGE_FEED, NODE_SILENT.
    """
    table = find_sorted(caller, AclOperation.ALTER, name)
    check_no_feed(table.record)
    indexes = wanted.tablets.among(table.record.name, len(table.tablets))
    match resharding_nodes(caller, table, indexes):
        case [None]:
            return await _reshard_here(caller, table, wanted)
        case [int(node)]:
            return await _reshard_away(caller, table, node, indexes, wanted)
    for index in indexes:
        check_unmounted(table, index)
    async with with_cells_here(caller, {table.record.cell_of(index) for index in indexes}):
        return await _reshard_here(caller, table, wanted)


async def _reshard_here(caller: TablesCaller, table: SortedTable, wanted: SortedReshard) -> SortedResharded:
    """Reshard tablets that this node runs."""
    indexes = wanted.tablets.among(table.record.name, len(table.tablets))
    first, last = indexes[0], indexes[-1]
    sorted_tables = caller.node.cell.current.sorted_tables
    if not wanted.is_dry_run:
        for tablet in [table.tablets[index] for index in indexes]:
            await tablet.transactions.ended(with_decisions=True)
    try:
        plan = plan_reshard(table, first, last, await _pivots(table, first, last, wanted))
        outcome = _outcome(caller, table, plan)
        if not wanted.is_dry_run and not _is_same(table, plan):
            await sorted_tables.reshard(table, plan, caller.node.cell.current.others.unchanged())
    except (BlobCorrupt, BlobMissing, ChunkDamaged, KeyValueError) as damage:
        text = f"chunks of {table.record.name} cannot be read: {damage}"
        raise TableError("RESHARD_FAILED", text, "`pqbroker doctor` says what is damaged.") from None
    return outcome


async def _reshard_away(
    caller: TablesCaller, table: SortedTable, node: int, indexes: Sequence[int], wanted: SortedReshard
) -> SortedResharded:
    """Reshard tablets that another node runs."""
    plan = await plan_away(caller, table, node, indexes, _wanted_pivots(table, wanted))
    outcome = _outcome(caller, table, plan)
    if not wanted.is_dry_run and not _is_same(table, plan):
        opened = caller.node.cell.current
        filling = FillingAway(caller, table, node, plan)
        await opened.sorted_tables.reshard(table, plan, opened.others.unchanged(), filling)
    return outcome


def _outcome(caller: TablesCaller, table: SortedTable, plan: ReshardPlan) -> SortedResharded:
    """Return what a plan costs. TableError INVALID_RESHARD: the table would have too many tablets."""
    _check_count(len(table.tablets) - (plan.last - plan.first + 1) + len(plan.pivots))
    moved = plan.copied_bytes + plan.rewritten_bytes
    rate = caller.node.cell.current.sorted_tables.share.settings.merge_rate
    return SortedResharded(table, plan.copied_bytes, plan.rewritten_bytes, moved / rate)


async def _pivots(table: SortedTable, first: int, last: int, wanted: SortedReshard) -> Sequence[bytes]:
    asked = _wanted_pivots(table, wanted)
    return await pivots_for_count(table, first, last, asked) if isinstance(asked, int) else asked


def _wanted_pivots(table: SortedTable, wanted: SortedReshard) -> Sequence[bytes] | int:
    """Return the pivots that are asked for, or the count of tablets. TableError INVALID_RESHARD, INVALID_PIVOTS."""
    if (wanted.pivot_keys is None) == (wanted.tablet_count is None):
        raise TableError("INVALID_RESHARD", "pivot_keys and tablet_count are both given, or neither", "Give one.")
    if wanted.pivot_keys is not None:
        return encode_pivots_of_range(table.schema, wanted.pivot_keys)
    return wanted.tablet_count or 1


def _is_same(table: SortedTable, plan: ReshardPlan) -> bool:
    return tuple(plan.pivots) == table.record.pivots[plan.first : plan.last + 1]


def _check_count(count: int) -> None:
    if count > SORTED_TABLETS_MAX:
        text = f"the table would have {count} tablets; it may have at most {SORTED_TABLETS_MAX}"
        raise TableError("INVALID_RESHARD", text, "Give fewer pivots.")
