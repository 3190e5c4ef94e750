"""Place of a node among the several of its broker; a broker of one node has none."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.storage.engine import Engine
from pqbroker.storage.ids import CellId, TabletId

if TYPE_CHECKING:
    from pqbroker.broker.node.commit_ways import CommitWays
    from pqbroker.broker.node.member_link import MemberLink
    from pqbroker.broker.peers.link_rules import LinkTerms

FIRST: Final = 1
"""Number of the node that opens the system cell."""
AskParent = Callable[[PeerMethod], Awaitable[Any]]
"""Returns what the parent process answers. PeerRefused, LinkBusy, LinkBroken."""


async def no_parent(method: PeerMethod) -> Any:
    """Refuse what a parent process would answer."""
    raise PeerRefused("this node has no parent process")


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
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when tablets begin to run at this node or another one, or cease to."""
    ask_parent: AskParent = no_parent

    @property
    def cells(self) -> CellPlace:
        """Return the place as the node's cells need it."""
        alone = CellPlace(
            self.engine, self.number, self.count, self.elsewhere, present=self.present, changed=self.changed,
            ways=self.ways,
        )  # fmt: skip
        member = self.member
        if member is None:
            return alone
        return replace(
            alone, mirrored=member.rows, admission=member.admissions, ask_timestamps=member.ask_timestamps
        )
