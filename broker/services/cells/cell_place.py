"""Place of a node among several, as its cells need it: its number, and where the directories of cells are. Which cells
it opens, the hive says (`cell_homing.py`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pqbroker.broker.services.commits.away import AwayNodes
from pqbroker.broker.services.transactional_producers.admission import BatchAdmission
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.engine import Engine
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme import AskTimestamps, Scheme


class CopiedRows(Protocol):
    """Rows of scheme and hive from the node that has them."""

    async def fill(self, hive: Hive, scheme: Scheme) -> None:
        """Return when both have the rows of the other node."""

    async def note_ready(self, cell: CellId) -> None:
        """Have the hive note that a cell of this node is ready. CommitRefused."""


@dataclass(frozen=True, slots=True)
class CellPlace:
    """The place of the node of this number, from 1, among `count`. `engine`: its siblings are the data cells."""

    engine: Engine
    number: int = 1
    count: int = 1
    elsewhere: dict[CellId, dict[TabletId, int]] = field(default_factory=dict)
    mirrored: CopiedRows | None = None
    """None: the node has the system cell itself."""
    present: set[int] = field(default_factory=set)
    """Numbers of the nodes that serve now, as the first one knows them."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when tablets begin to run at this node or another one, or cease to."""
    admission: BatchAdmission | None = None
    """The way to the coordinators of transactions; None: they are here."""
    ways: AwayNodes | None = None
    """The ways to parts of commits at other nodes; None: there is no other node."""
    ask_timestamps: AskTimestamps | None = None
    """The way to the commit timestamps of the node with the scheme; None: it is this one."""

    def ids(self, own: int) -> range:
        """Return the ids of all nodes; `own`: that of this one."""
        first = own - self.number + 1
        return range(first, first + self.count)

    def missing_cells(self, known: Sequence[CellId]) -> int:
        """Return how many data cells a start makes beside the known ones: one for each node. More would make its rounds
        smaller: each cell has rounds of its own, with a sync for each."""
        makes = self.count > 1 and self.mirrored is None
        return max(self.count - len(known), 0) if makes else 0
