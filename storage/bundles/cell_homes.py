"""Homes of cells among several nodes, as the hive stores them, and their choice; pure.

A cell is given to a node. While that node is gone or restarted another one runs the cell, which then comes back: so the
load is as it was chosen to be, and nothing is moved that nobody asked for.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pqbroker.storage.ids import SYSTEM_CELL, CellId
from pqbroker.storage.tablets.row_sets import Row

HOME_COLUMNS = ("node", "given")


@dataclass(frozen=True, slots=True)
class CellHome:
    """The home of one cell; nodes by their numbers, from 1."""

    cell: CellId
    node: int
    """Node that opens the cell."""
    given: int
    """Node that the cell was given to, and comes back to."""

    def row(self) -> Row:
        return {"node": self.node, "given": self.given}

    @classmethod
    def read(cls, cell: CellId, row: Row) -> "CellHome":
        """Read what `row` returned. ValueError, LookupError, TypeError."""
        fields: Any = row
        return cls(cell, int(fields["node"]), int(fields["given"]))


def spread(
    cells: Iterable[CellId], homes: Mapping[CellId, int], weights: Mapping[CellId, int], nodes: Collection[int]
) -> dict[CellId, int]:
    """Return a node for each of `cells`: always the one with the fewest cells, of several the one whose cells weigh
    least, then the lowest.

    `homes`: nodes of the other cells; `weights`: tablets by cell.
    """
    loads = dict.fromkeys(sorted(nodes), (0, 0))
    for cell, node in homes.items():
        if node in loads:
            loads[node] = _with(loads[node], weights.get(cell, 0))
    found = {}
    for cell in sorted(cells):
        node = min(loads, key=lambda node: (*loads[node], node))
        loads[node] = _with(loads[node], weights.get(cell, 0))
        found[cell] = node
    return found


def node_of(homes: Mapping[CellId, CellHome], cell: CellId, count: int) -> int | None:
    """Return the number of the node, among `count`, that opens a cell; None: no node does. The first one has the system
    cell."""
    if cell == SYSTEM_CELL or count == 1:
        return 1
    home = homes.get(cell)
    return None if home is None or not 1 <= home.node <= count else home.node


def _with(load: tuple[int, int], weight: int) -> tuple[int, int]:
    count, weighed = load
    return count + 1, weighed + weight
