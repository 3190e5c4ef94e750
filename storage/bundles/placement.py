"""Placement of tablets, and choice of the cells that a node opens; pure."""

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heapreplace

from pqbroker.storage.bundles.bundle import Bundle
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId

Elsewhere = Mapping[CellId, Mapping[TabletId, int]]
"""Tablets that other nodes run, by cell, each with its generation."""


class NoHealthyCell(Exception):
    """The bundle has no open cell for a tablet, or does not exist."""

    def __init__(self, bundle: str, *, exists: bool = True) -> None:
        without_cell = "add one, or wait until one is open again; `pqbroker cell list` shows why one is not open"
        without_bundle = "there is no such bundle, and `pqbroker bundle list` lists them"
        super().__init__(
            f"No healthy tablet cells in bundle {bundle!r}: {without_cell if exists else without_bundle}"
        )
        self.bundle = bundle


def place(count: int, bundle: str, tablets: Mapping[CellId, int]) -> list[CellId]:
    """A cell for each of `count` new tablets of a bundle: always the one with the fewest, the lowest id of several.

    `tablets`: how many each open cell of the bundle has. NoHealthyCell where there is none.
    """
    if count and not tablets:
        raise NoHealthyCell(bundle)
    cells = [(held, cell) for cell, held in tablets.items()]
    heapify(cells)
    found = []
    for _ in range(count):
        held, cell = cells[0]
        found.append(cell)
        heapreplace(cells, (held + 1, cell))
    return found


def cells_to_open(cells: Mapping[CellId, str], bundles: Iterable[Bundle], tags: Collection[str]) -> set[CellId]:
    """Return which cells, by id with their bundles' names, a node with these tags opens: the system cell always."""
    matching = {bundle.name for bundle in bundles if bundle.filter.matches(tags)}
    return {SYSTEM_CELL, *(cell for cell, bundle in cells.items() if bundle in matching)}
