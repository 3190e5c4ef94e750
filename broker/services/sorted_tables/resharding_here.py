"""Reshards of sorted tablets of this node that the first one decides: planned, filled and compared here."""

from collections.abc import Mapping, Sequence
from typing import Any

from pqbroker.broker.services.sorted_tables.tablets_away import TabletWork
from pqbroker.broker.services.tables.work_away import indexes_of
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.kv.commands import KeyValueError
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.resharding import (
    ReshardPlan,
    check_rows,
    pivots_for_count,
    plan_reshard,
)
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tables import SortedTables
from pqbroker.tables.sorted.chunks import ChunkDamaged


async def reshard_here(tables: SortedTables, table: SortedTable, work: TabletWork, asked: Mapping[str, Any]) -> Any:
    """Do a step of a reshard. Raises as `work_here`."""
    try:
        if work is TabletWork.DROP:
            await _drop(tables, table, asked)
            return None
        if work is TabletWork.CHECK:
            _check(tables, table, asked)
            return None
        plan = await _plan(table, asked)
        if work is TabletWork.PLAN:
            pivots = [pivot.hex() for pivot in plan.pivots]
            return {"pivots": pivots, "copied": plan.copied_bytes, "rewritten": plan.rewritten_bytes}
        filling = tables.filling(table, plan)
        await filling.fill(*_new(asked))
        return [[tablet, sorted(chunks)] for tablet, chunks in filling.rows]
    except (BlobCorrupt, BlobMissing, ChunkDamaged, KeyValueError) as damage:
        text = f"chunks of {table.record.name} cannot be read: {damage}"
        raise TableError("RESHARD_FAILED", text, "`pqbroker doctor` says what is damaged.") from None


async def _drop(tables: SortedTables, table: SortedTable, asked: Mapping[str, Any]) -> None:
    unnamed = [one for one in zip(*_new(asked), strict=True) if one[0] not in table.record.tablets]
    filling = tables.filling(table, ReshardPlan(0, 0, (), 0, 0))
    await filling.drop([tablet for tablet, _ in unnamed], [home for _, home in unnamed])


def _check(tables: SortedTables, table: SortedTable, asked: Mapping[str, Any]) -> None:
    """TableError WRONG_STATE: rows changed; RESHARD_FAILED: a cell with new tablets is not open here any more."""
    first, last = indexes_of(table.record, (int(asked[name]) for name in ("first", "last")))
    rows = [(TabletId(int(tablet)), frozenset(map(int, chunks))) for tablet, chunks in asked["rows"]]
    check_rows(table, ReshardPlan(first, last, (), 0, 0), rows)
    if not tables.have(*_new(asked)):
        text = f"cells with new tablets of {table.record.name} are not open any more"
        raise TableError("RESHARD_FAILED", text, "GET /v1/cells, or `pqbroker cell list`, shows the cause. Try again.")


async def _plan(table: SortedTable, asked: Mapping[str, Any]) -> ReshardPlan:
    first, last = indexes_of(table.record, (int(asked[name]) for name in ("first", "last")))
    for tablet in table.tablets[first : last + 1]:
        await tablet.transactions.ended(with_decisions=True)
    given = asked.get("pivots")
    if given is None:
        pivots: Sequence[bytes] = await pivots_for_count(table, first, last, int(asked["count"]))
    else:
        pivots = [bytes.fromhex(pivot) for pivot in given]
    return plan_reshard(table, first, last, pivots)


def _new(asked: Mapping[str, Any]) -> tuple[Sequence[TabletId], Sequence[CellId]]:
    """Return the new tablets and their cells."""
    tablets, homes = asked["tablets"], asked["homes"]
    if len(tablets) != len(homes):
        raise ValueError(f"{len(tablets)} tablets have {len(homes)} cells")
    return [TabletId(int(one)) for one in tablets], [CellId(int(one)) for one in homes]
