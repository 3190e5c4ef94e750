"""Mounting, unmounting, freezing and unfreezing tablets of sorted tables.

    the matrix of D.2 allows it -> on the way -> in the cell that was asked for -> written out, or its log read
        -> stored -> there

A state on its way is in memory alone: after a crash the tablet is in the state before.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.services.sorted_tables.change_feeds import ready_for_mount
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.tablets_away import leave_away, settle_away, tablets_away
from pqbroker.broker.services.sorted_tables.tablets_here import leave_state
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.mounting import MountChange, cell_wanted
from pqbroker.pq.serving.topic import Moving
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import ENDS, FLUSHING, MountState, next_state
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable

_log = logging.getLogger(__name__)
_REFUSED: tuple[type[Exception], ...] = (*REFUSED, TableError)
_MOUNTS = frozenset({MountState.MOUNTING, MountState.FROZEN_MOUNTING})


async def change_sorted_state(
    caller: TablesCaller, name: str, change: MountChange, *, is_awaited: bool = True
) -> SortedTable:
    """Mount, unmount, freeze or unfreeze tablets; return when they are in their state, or with `is_awaited` false as
    soon as they are on their way. A mount makes the set attributes act in these tablets.

    KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE, NO_TABLET, NO_CELL, WRONG_STATE, CANNOT_MOVE,
    TRANSACTION_UNDER_WAY.
    """
    table = find_sorted(caller, AclOperation.ALTER, name)
    record = table.record
    indexes = change.tablets.among(record.name, len(record.tablets))
    cell = cell_wanted(caller.node.cell.current.hive, record.bundle, change.cell)
    if table.is_renumbered:
        text = f"{table_path(record.name)} is being resharded: its tablets get other numbers"
        raise TableError("WRONG_STATE", text, "List its tablets, and give the command again.")
    present = table.states
    targets = {index: next_state(index, present[index], change.command) for index in indexes}
    begun = {index: state for index, state in targets.items() if state is not present[index]}
    under_way = [table.moving[index].end for index in indexes if index in table.moving and index not in begun]
    end = asyncio.get_running_loop().create_future()
    table.moving.update({index: Moving(state.value, end) for index, state in begun.items()})
    way = _StateChange(begun, end, indexes if cell is not None else (), cell, change.is_forced)
    reaching = uninterrupted(_reach(caller, table, way))
    if not is_awaited:
        return table
    await reaching
    for other in under_way:
        await asyncio.shield(other)
    return table


@dataclass(frozen=True, slots=True)
class _StateChange:
    """Tablets on their way: their states meanwhile, what resolves at the end, and the cell that some go to."""

    begun: Mapping[int, MountState]
    end: asyncio.Future[None]
    to_cell: Sequence[int]
    cell: CellId | None
    is_forced: bool


async def _reach(caller: TablesCaller, table: SortedTable, way: _StateChange) -> None:
    begun, tables = way.begun, caller.node.cell.current.sorted_tables
    tablets = [table.tablets[index] for index in begun]
    away: Mapping[int, Sequence[int]] = {}
    try:
        for tablet_id in [table.record.tablets[index] for index in way.to_cell]:  # a reshard may renumber them
            await _live_in(caller, table, tablet_id, way.cell)
        away = tablets_away(caller, table, begun)
        if not _MOUNTS.isdisjoint(begun.values()):
            await ready_for_mount(caller, table.record)
        await _leave_states(caller, table, way, away)
        if begun:
            await tables.change(table, lambda record: _arrived(record, table, begun))
    except _REFUSED as refusal:
        _log.warning("tablets of %s stay as they were: %s", table.record.name, refusal)
        raise
    finally:
        for index, state in begun.items():
            if _is_still(table, index, state):
                del table.moving[index]
            _follow(table, index)
        await settle_away(caller, table, away)
        way.end.set_result(None)
    for tablet in tablets:
        await tablet.mounted()
    caller.node.cell.current.sorted_tables.background.look_soon()


async def _leave_states(
    caller: TablesCaller, table: SortedTable, way: _StateChange, away: Mapping[int, Sequence[int]]
) -> None:
    """Bring tablets to the ends of their states on the way, those of other nodes there."""
    leaving = {index for indexes in away.values() for index in indexes if way.begun[index] in FLUSHING}
    there = {node: [index for index in indexes if index in leaving] for node, indexes in away.items()}
    await leave_away(
        caller, table, {node: some for node, some in there.items() if some}, way.begun, is_forced=way.is_forced
    )
    tables = caller.node.cell.current.sorted_tables
    for index, state in way.begun.items():
        await leave_state(tables, table, index, state, is_forced=way.is_forced)


def _follow(table: SortedTable, index: int) -> None:
    """Have a tablet serve rows if its state says so: also where an unmount was refused by the scheme."""
    if table.state_of(index) is not MountState.UNMOUNTED:
        table.tablets[index].mount()


async def _live_in(caller: TablesCaller, table: SortedTable, tablet_id: TabletId, cell: CellId | None) -> None:
    assert cell is not None
    try:
        opened = caller.node.cell.current
        owner = opened.sorted_tables.owner_of(table)
        await opened.others.move_tablet(owner, tablet_id, cell)
    except BundleRefused as refusal:
        raise TableError("CANNOT_MOVE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _arrived(record: SortedTableRecord, table: SortedTable, begun: Mapping[int, MountState]) -> SortedTableRecord:
    """Return the record with the states that its tablets have reached; a later command may have overtaken some."""
    arrived = {index: state for index, state in begun.items() if _is_still(table, index, state)}
    ends = {index: ENDS[state].value for index, state in arrived.items()}
    reached = tuple(ends.get(index, state) for index, state in enumerate(record.states))
    mounted = {index for index, state in arrived.items() if state in _MOUNTS}
    taken = record.mounted.taken(mounted, record.attributes) if mounted else record.mounted
    return replace(record, states=reached, mounted=taken)


def _is_still(table: SortedTable, index: int, state: MountState) -> bool:
    moving = table.moving.get(index)
    return moving is not None and moving.state == state.value
