"""Cells that move from node to node, as the first node has them do so, while clients are served.

    own       a node has the cell, and keeps it                      give
    away      another one runs it, until its node serves again       take_over, empty; fill, give_back
    borrowed  the first node runs it for a request, then its own     here

The hive says whose a cell is and who runs it, so whatever is killed, each goes to its own node in the end.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from pqbroker.broker.services.cells.cell_homing import CellHoming
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.cell_homes import CellHome
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import CellId
from pqbroker.storage.uninterrupted import uninterrupted

log = logging.getLogger(__name__)

GIVEN_S: Final = 10.0
"""Seconds that a node has to open a cell that it was given, before the caller learns that it is not open."""
_GIVEN_LOOK_S: Final = 0.02


class RunCells(Protocol):
    """The cells as this node runs them, and knows others to."""

    async def follow_homes(self) -> None:
        """Open and close cells of this node as their homes say now."""

    def is_serving(self, cell: CellId, /) -> bool:
        """Return True if a cell's tablets run, here or at another node."""

    def failure(self, cell: CellId, /) -> str:
        """Return why a cell is not open."""


class CellsBetweenNodes:
    """Moves of cells. `changes`: held while no cell may get another home."""

    def __init__(self, place: CellPlace, homing: CellHoming, cells: RunCells, changes: asyncio.Lock) -> None:
        self._place = place
        self._homing = homing
        self._cells = cells
        self._changes = changes

    async def take_over(self, node: int) -> None:
        """Have the other nodes run the cells of one that is gone. CommitRefused, ShardLost."""
        if await self._homing.leave(node):
            await self._cells.follow_homes()

    async def empty(self, node: int) -> None:
        """Have the other nodes run the cells of one that is to stop; return when they have them open. CommitRefused,
        ShardLost, EngineError."""
        async with self._changes:  # no cell gets another home while it is removed
            left = await self._homing.leave(node)
        await self._cells.follow_homes()
        for cell in left:
            await self._until_open(cell)

    async def give(self, cell: CellId, node: int) -> None:
        """Have another node run a cell from now on; return when it has it open.

        BundleRefused, CommitRefused, ShardLost; EngineError where that takes too long: it is tried by itself then.
        """
        async with self._changes:  # as in `empty`
            await self._homing.give(cell, node)
        await self._cells.follow_homes()
        await self._until_open(cell)

    @asynccontextmanager
    async def here(self, cells: Iterable[CellId]) -> AsyncIterator[None]:
        """Have this node run cells for the block, those of others too: these go back behind it. BundleRefused where a
        cell does not open in time; CommitRefused, ShardLost."""
        if self._place.count == 1 or self._place.mirrored is not None:
            yield
            return
        wanted = set(cells)
        self._homing.want(wanted)
        try:
            await self._borrow(wanted)
            yield
        finally:
            if homes := self._homing.done_with(wanted):
                await uninterrupted(self._return(homes))

    async def _borrow(self, wanted: Collection[CellId]) -> None:
        """Run cells here that are wanted. Raises as `here`."""
        async with self._changes:  # as in `give`
            taken = await self._homing.borrow(wanted)
        if not taken:
            return
        await self._cells.follow_homes()
        try:
            for cell in taken:
                await self._until_open(cell)
        except EngineError as late:
            raise BundleRefused(f"{late}; try again") from late

    async def _return(self, homes: Iterable[CellHome]) -> None:
        """Give cells back; one that cannot go now does so by itself later."""
        for home in homes:
            try:
                await self.give(home.cell, home.given)
            except (BundleRefused, CommitRefused, EngineError, ShardLost) as refusal:
                log.warning("cell %d goes back to node %d later: %s", home.cell, home.given, refusal)

    async def fill(self, node: int) -> None:
        """Have a node that is back run all cells again that are its own; return when it has them open. Raises as
        `give`."""
        while await self.give_back({node}):
            pass
        for cell in self._homing.given_to(node):  # others may have given it some meanwhile
            await self._until_open(cell)

    async def give_back(self, nodes: set[int]) -> bool:
        """Have one of these nodes, which was gone, run a cell again that is its own. False: there is none. Raises as
        `give`."""
        home = self._homing.away(nodes)
        if home is None:
            return False
        await self.give(home.cell, home.given)
        return True

    async def _until_open(self, cell: CellId) -> None:
        for _ in range(round(GIVEN_S / _GIVEN_LOOK_S)):
            if self._cells.is_serving(cell):
                return
            await asyncio.sleep(_GIVEN_LOOK_S)
        cause = self._cells.failure(cell) or "its node says nothing of it"
        raise EngineError(f"cell {cell} was given away and is not open yet after {GIVEN_S:g} s: {cause}")
