"""The last opening of a cell as the hive knows it: by which node, in which generation, and the epoch of each tablet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.row_sets import Row
from pqbroker.storage.tablets.tablet import TabletRecord
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS

OPENING_COLUMNS = ("node", "generation", "epochs")
_EPOCH = Struct(">QI")


@dataclass(frozen=True, slots=True)
class CellOpening:
    """One opening. Nodes that do not run the cell answer with its epochs, and with none for a tablet that it lacks."""

    cell: CellId
    node: int
    generation: int
    """The cell's: an opening of a lower one is of the past."""
    epochs: Mapping[TabletId, int]
    """Generations of the tablets of objects."""

    @classmethod
    def of(cls, cell: CellId, node: int, generation: int, tablets: Iterable[TabletRecord]) -> "CellOpening":
        """Describe a cell that is open, by its tablets."""
        known = {one.tablet_id: one.generation for one in tablets if TABLET_KINDS[one.type].belongs_to_object}
        return cls(cell, node, generation, known)

    def row(self) -> Row:
        """Return what is stored: epochs as pairs of tablet and generation end to end, since cells have thousands."""
        epochs = b"".join(_EPOCH.pack(*pair) for pair in sorted(self.epochs.items()))
        return {"node": self.node, "generation": self.generation, "epochs": epochs}

    @classmethod
    def read(cls, cell: CellId, row: Row) -> "CellOpening":
        """Read what `row` returned. ValueError, LookupError, TypeError, struct.error."""
        fields: Any = row
        epochs = {TabletId(tablet): generation for tablet, generation in _EPOCH.iter_unpack(fields["epochs"])}
        return cls(cell, int(fields["node"]), int(fields["generation"]), epochs)
