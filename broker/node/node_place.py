"""Place of a node among the several of its broker; a broker of one node has none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pqbroker.broker.ground.listeners import Listener

if TYPE_CHECKING:
    from pqbroker.broker.peers.link_rules import LinkTerms

FIRST: Final = 1
"""Number of the node that opens the system cell."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The number of a node, from 1, the count of all, its listeners, and the door of the first one."""

    number: int
    count: int
    listeners: tuple[Listener, ...]
    door: str
    terms: "LinkTerms"

    def ids(self, own: int) -> tuple[int, ...]:
        """Return the ids of all nodes; `own`: that of this one."""
        first = own - self.number + FIRST
        return tuple(range(first, first + self.count))
