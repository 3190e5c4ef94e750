"""Work on sorted tablets of this node that the first one asks for; `tablets_away.py` says when.

A tablet that leaves its state stays so until the first node has it settled, or is gone: then it follows the scheme.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from pqbroker.broker.services.sorted_tables.resharding_here import reshard_here
from pqbroker.broker.services.sorted_tables.tablets_away import TabletWork, sizes_of
from pqbroker.broker.services.tables.work_away import indexes_of
from pqbroker.pq.serving.topic import Moving
from pqbroker.tables.mount import FLUSHING, MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tables import SortedTables

_RESHARDS = frozenset({TabletWork.PLAN, TabletWork.FILL, TabletWork.CHECK, TabletWork.DROP})


async def work_here(tables: SortedTables, asked: Mapping[str, Any]) -> Any:
    """Do what the first node asks for; return its answer. TableError, CommitRefused, ShardLost; LookupError,
    TypeError, ValueError for what is no work of this version."""
    work, table = TabletWork(asked["work"]), tables.by_id(bytes.fromhex(asked["table"]))
    if table is None:
        raise TableError("NO_TABLE", "the table was deleted meanwhile", "GET /v1/tables lists the tables.")
    if work is TabletWork.LEAVE:
        given = asked["states"]
        states = dict(zip(indexes_of(table.record, map(int, given)), map(MountState, given.values()), strict=True))
        await _leave(tables, table, states, is_forced=bool(asked["is_forced"]))
        return None
    if work is TabletWork.END:
        await table.end_transactions()
        table.awaits_deletion = True
        return None
    if work is TabletWork.RESUME:
        _resume(table)
        return None
    if work in _RESHARDS:
        return await reshard_here(tables, table, work, asked)
    indexes = indexes_of(table.record, map(int, asked["tablets"]))
    if work is TabletWork.SIZES:
        return sizes_of(table.tablets[index] for index in indexes)
    for index in indexes:
        table.moving.pop(index, None)
    await tables.follow_states(table, indexes)
    for index in indexes:
        await table.tablets[index].mounted()
    tables.background.look_soon()
    return None


async def follow_scheme_again(tables: SortedTables) -> None:
    """Have tablets on their way to a state serve rows as the scheme says: the first node is gone. CommitRefused."""
    for table in list(tables.tables.values()):
        _resume(table)
        left = list(table.moving)
        table.moving.clear()
        await tables.follow_states(table, left)


def _resume(table: SortedTable) -> None:
    """Begin writes again where they had ended, since the table was about to be deleted."""
    if table.awaits_deletion:
        table.awaits_deletion = False
        table.resume_writes()


async def leave_state(
    tables: SortedTables, table: SortedTable, index: int, state: MountState, *, is_forced: bool
) -> None:
    """Write out what a tablet has in memory, and have it serve no more, where its state on the way says so.
    TableError."""
    tablet = table.tablets[index]
    if state in FLUSHING and not is_forced:
        await tablet.mounted()
        await tables.background.flush(tablet)
    if state is MountState.UNMOUNTING:
        await tablet.unmount()


async def _leave(
    tables: SortedTables, table: SortedTable, states: Mapping[int, MountState], *, is_forced: bool
) -> None:
    end = asyncio.get_running_loop().create_future()
    table.moving.update({index: Moving(state.value, end) for index, state in states.items()})
    for index, state in states.items():
        await leave_state(tables, table, index, state, is_forced=is_forced)
