"""Changes of tablets that look at all of them at once: the first node runs the cells of other nodes meanwhile."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import CellId
from pqbroker.tables.refusals import TableError


@asynccontextmanager
async def with_cells_here(caller: TablesCaller, cells: Iterable[CellId]) -> AsyncIterator[None]:
    """Have the first node run cells for the block, which clients notice as they notice any move of a cell.

    TableError TABLET_NOT_OPEN where that takes too long; CommitRefused, ShardLost.
    """
    others = caller.node.cell.current.others
    is_here = False
    try:
        async with others.between.here(cells):
            is_here = True
            yield
    except BundleRefused as refusal:
        if is_here:
            raise
        cure = "Try again; `pqbroker cell list` shows the cells, and the log says why one is not open."
        raise TableError("TABLET_NOT_OPEN", str(refusal), cure) from None
