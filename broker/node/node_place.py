"""Place of a node among the several of its broker; a broker of one node has none."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.storage.engine import Engine
from pqbroker.storage.ids import CellId, TabletId

if TYPE_CHECKING:
    from pqbroker.broker.node.commit_ways import CommitWays
    from pqbroker.broker.node.member_link import MemberLink
    from pqbroker.broker.peers.link_rules import LinkTerms

FIRST: Final = 1
"""Number of the node that opens the system cell."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The number of a node, from 1, the count of all, its listeners, the engine of its data cells, and the link: the
    door of the first node, or what leads there."""

    number: int
    count: int
    listeners: tuple[Listener, ...]
    engine: Engine
    door: str
    terms: "LinkTerms"
    ways: "CommitWays"
    """The ways to parts of commits at other nodes."""
    member: "MemberLink | None" = None
    """None: the node is the first one."""
    elsewhere: dict[CellId, dict[TabletId, int]] = field(default_factory=dict)
    """Tablets that other nodes run, as the first node knows them, and says to the others."""

    def ids(self, own: int) -> tuple[int, ...]:
        """Return the ids of all nodes; `own`: that of this one."""
        first = own - self.number + FIRST
        return tuple(range(first, first + self.count))

    present: set[int] = field(default_factory=set)
    """Numbers of the nodes that serve, as the first node knows them."""

    @property
    def cells(self) -> CellPlace:
        """Return the place as the node's cells need it."""
        alone = CellPlace(
            self.engine, self.number, self.count, self.elsewhere, present=self.present, ways=self.ways
        )
        member = self.member
        if member is None:
            return alone
        return replace(
            alone, mirrored=member.rows, admission=member.admissions, ask_timestamps=member.ask_timestamps
        )
