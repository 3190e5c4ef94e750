"""Sorted tablets that other nodes run, at the first one: what is asked of these nodes when a table is changed.

    unmount, freeze  LEAVE (written out, serves no more) -> the scheme has the state -> SETTLE
    mount, and what else changes a table  the scheme has it -> SETTLE (the log is read)

A node that is not reached keeps a table from a change before the scheme has it; what the scheme has, a node follows by
itself as soon as it can.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.work_away import ask_for_work, at_other_nodes
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable

log = logging.getLogger(__name__)


class TabletWork(StrEnum):
    """Work on sorted tablets that the node does which runs them."""

    LEAVE = "leave"
    """Write out what is in memory where the state on the way says so; serve no rows where it says that."""
    SETTLE = "settle"
    """Serve rows as the scheme says; end when the logs are read."""
    SIZES = "sizes"
    """Return the count of chunks and their bytes."""
    PLAN = "plan"
    """Return what a reshard would do."""
    FILL = "fill"
    """Make and fill the new tablets of a reshard; return the tablets that they replace, with their chunks."""
    CHECK = "check"
    """Check that the tablets which are replaced are as they were, and the new ones exist."""
    END = "end"
    """Begin no write any more once no transaction is under way in the table: it is about to be deleted."""
    RESUME = "resume"
    """Begin writes again: it is not."""
    DROP = "drop"
    """Begin to remove new tablets that nothing names."""


def tablets_away(caller: TablesCaller, table: SortedTable, indexes: Iterable[int]) -> Mapping[int, Sequence[int]]:
    """Return those of a table's tablets that other nodes run, by the numbers of their nodes; none at a node that is not
    the first one."""
    found: dict[int, list[int]] = {}
    for node, index in at_other_nodes(caller, table.record, indexes):
        found.setdefault(node, []).append(index)
    return found


async def leave_away(
    caller: TablesCaller,
    table: SortedTable,
    away: Mapping[int, Sequence[int]],
    states: Mapping[int, MountState],
    *,
    is_forced: bool,
) -> None:
    """Have other nodes bring tablets to the ends of their states on the way. TableError, CommitRefused: some may serve
    no rows, until they are settled."""
    for node, indexes in sorted(away.items()):
        given = {str(table.record.tablets[index]): states[index].value for index in indexes}
        await work_away(caller, node, table, TabletWork.LEAVE, states=given, is_forced=is_forced)


async def settle_away(caller: TablesCaller, table: SortedTable, away: Mapping[int, Sequence[int]]) -> None:
    """Have other nodes serve tablets as the scheme says now; one that does not answer does so when it can."""

    async def settle(node: int, indexes: Sequence[int]) -> None:
        tablets = [table.record.tablets[index] for index in indexes]
        try:
            await work_away(caller, node, table, TabletWork.SETTLE, tablets=tablets)
        except (TableError, CommitRefused) as refusal:
            log.warning("tablets of %s follow later at node %d: %s", table.record.name, node, refusal)

    await asyncio.gather(*(settle(node, indexes) for node, indexes in away.items()))


async def end_away(caller: TablesCaller, table: SortedTable, nodes: Sequence[int]) -> None:
    """Have other nodes begin no write to a table any more once no transaction is under way in their tablets. TableError
    TRANSACTION_UNDER_WAY, NODE_SILENT: writes begin as before."""
    asked = list[int]()
    try:
        for node in nodes:
            asked.append(node)
            await work_away(caller, node, table, TabletWork.END)
    except BaseException:
        uninterrupted(resume_away(caller, table, asked))
        raise


async def resume_away(caller: TablesCaller, table: SortedTable, nodes: Sequence[int]) -> None:
    """Have other nodes begin writes again after `end_away`; one that does not answer does so when its link to this one
    closes."""

    async def resume(node: int) -> None:
        try:
            await work_away(caller, node, table, TabletWork.RESUME)
        except (TableError, CommitRefused) as refusal:
            log.warning("writes to %s begin later at node %d: %s", table.record.name, node, refusal)

    await asyncio.gather(*map(resume, nodes))


async def chunk_sizes(caller: TablesCaller, table: SortedTable) -> tuple[int, int, int]:
    """Return the count of a table's chunks, their bytes, and the count of nodes that have them. TableError NODE_SILENT;
    CommitRefused."""
    away = tablets_away(caller, table, range(len(table.tablets)))
    there = {index for indexes in away.values() for index in indexes}
    here = [tablet for index, tablet in enumerate(table.tablets) if index not in there]
    count, size = sizes_of(here)
    for node, indexes in away.items():
        tablets = [table.record.tablets[index] for index in indexes]
        more = await work_away(caller, node, table, TabletWork.SIZES, tablets=tablets)
        count, size = count + int(more[0]), size + int(more[1])
    return count, size, len(away) + bool(here)


def sizes_of(tablets: Iterable[Any]) -> tuple[int, int]:
    """Return the count of the chunks of tablets, and their bytes."""
    sizes = [chunk.record.size for tablet in tablets for chunk in tablet.structure.chunks.values()]
    return len(sizes), sum(sizes)


async def work_away(caller: TablesCaller, node: int, table: SortedTable, work: TabletWork, **asked: Any) -> Any:
    """Have a node do some work on tablets of a table that it runs; return what it says. TableError as there, and
    NODE_SILENT; CommitRefused."""
    return await ask_for_work(caller, node, {"work": work.value, "table": table.record.table_id.hex(), **asked})
