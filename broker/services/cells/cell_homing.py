"""Homes of the cells of several nodes: read by all of them in the hive, decided by the first one.

A cell is run by one node. When its home changes, the node before closes it and the new one opens it; the lock of the
cell's directory, and under it the fencing of its engine, see that they do so in this order.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.cell_homes import CellHome, node_of, spread
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.ids import SYSTEM_CELL, CellId

log = logging.getLogger(__name__)


class CellHoming:
    """The homes as the hive has them. `weights`: returns the number of tablets of each cell. Changes raise
    CommitRefused and ShardLost."""

    def __init__(self, place: CellPlace, hive: Hive, weights: Callable[[], Mapping[CellId, int]]) -> None:
        self._place = place
        self._hive = hive
        self._weights = weights
        self._borrowed: Counter[CellId] = Counter()
        """Requests that need cells at this node, by cell."""

    def runs(self, cell: CellId) -> bool:
        """Return True if this node opens a cell."""
        return self._place.count == 1 or self.node_of(cell) == self._place.number

    def node_of(self, cell: CellId) -> int | None:
        """Return the number of the node that opens a cell; None: no node does yet."""
        return node_of(self._hive.homes, cell, self._place.count)

    async def settle(self) -> None:
        """Give each cell that has no home to a node, and each whose node does not exist in this start."""
        if self._place.count == 1 or self._place.mirrored is not None:
            return
        count = self._place.count
        kept = {cell: home for cell, home in self._hive.homes.items() if max(home.node, home.given) <= count}
        homeless = [cell for cell in self._hive.cells if cell not in kept]
        if not homeless:
            return
        nodes = {cell: home.given for cell, home in kept.items()}
        chosen = spread(homeless, nodes, self._weights(), range(1, count + 1))
        await self._hive.set_homes([CellHome(cell, node, node) for cell, node in chosen.items()])

    async def leave(self, node: int) -> list[CellId]:
        """Have the other nodes run the cells of a node; return these: none where no other node serves."""
        homes = self._hive.homes
        left = [cell for cell, home in homes.items() if home.node == node]
        others = self._place.present - {node}
        if not left or not others:
            return []
        chosen = spread(
            left, {cell: home.node for cell, home in homes.items() if home.node != node}, self._weights(), others
        )
        await self._put([CellHome(cell, chosen[cell], homes[cell].given) for cell in left])
        for cell, successor in sorted(chosen.items()):
            log.warning("cell %d leaves node %d for node %d", cell, node, successor)
        return left

    async def give(self, cell: CellId, node: int) -> None:
        """Give a cell to a node, which may have it already. BundleRefused."""
        if cell != SYSTEM_CELL and cell not in self._hive.cells:
            raise BundleRefused(f"there is no cell {cell}")
        if self._place.count == 1 or cell == SYSTEM_CELL:
            if node == 1:
                return
            if cell == SYSTEM_CELL:
                raise BundleRefused("cell 0 is the system cell, which stays at the first node: move another cell")
            raise BundleRefused("this broker has one node, which runs all cells: cells move where --nodes is 2 or more")
        if node not in self._place.present:
            present = ", ".join(map(str, sorted(self._place.present)))
            raise BundleRefused(f"node {node} does not serve now; the nodes {present} do: give the cell to one of them")
        await self._put([CellHome(cell, node, node)])
        log.info("cell %d is given to node %d", cell, node)

    def want(self, cells: Collection[CellId]) -> None:
        """Have cells stay once they are at this node, until `done_with` is called for them."""
        self._borrowed.update(cells)

    async def borrow(self, cells: Collection[CellId]) -> list[CellId]:
        """Have this node run cells that it wants; return those that it did not run."""
        homes = self._hive.homes
        taken = [cell for cell in sorted(cells) if cell in homes and not self.runs(cell)]
        if taken:
            await self._put([CellHome(cell, self._place.number, homes[cell].given) for cell in taken])
            log.info("this node runs cells %s for a request that needs them here", ", ".join(map(str, taken)))
        return taken

    def done_with(self, cells: Collection[CellId]) -> list[CellHome]:
        """Return the homes of those that nobody borrows any more, and that can go back to their nodes."""
        self._borrowed.subtract(cells)
        self._borrowed += Counter()  # without those at 0
        homes = (home for home in map(self._hive.homes.get, sorted(cells)) if home is not None)
        return [home for home in homes if self._is_away(home) and home.given in self._place.present]

    def _is_away(self, home: CellHome) -> bool:
        return home.node != home.given and home.cell not in self._borrowed

    async def _put(self, homes: Sequence[CellHome]) -> None:
        moved = [home.cell for home in homes if self._hive.homes[home.cell].node != home.node]
        await self._hive.set_homes(homes)
        for cell in moved:  # what the node before has named counts no more
            self._place.elsewhere.pop(cell, None)
        self._place.changed.set()

    def given_to(self, node: int) -> list[CellId]:
        """Return the cells that are a node's own, wherever they are open now."""
        return [cell for cell, home in sorted(self._hive.homes.items()) if home.given == node]

    def away(self, nodes: set[int]) -> CellHome | None:
        """Return the home of a cell that should come back to one of these nodes; None: there is none."""
        for _, home in sorted(self._hive.homes.items()):
            if self._is_away(home) and home.given in nodes:
                return home
        return None
