"""Other nodes of a broker with several, as the doors of the first one need them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from pqbroker.broker.ground.metrics import Sample
from pqbroker.storage.copy_steps import CellElsewhere
from pqbroker.storage.ids import CellId


class NodeSilent(Exception):
    """A node does not answer now; the text names it."""


CONDITION_TEXTS: Final = ("kind", "severity", "place", "affects", "cause", "cure")
"""Fields of a condition that are texts; `since` is the other one."""


class NodeState(NamedTuple):
    """State of a node, as it reports it again and again: conditions as JSON shows them, and the figures of a series."""

    conditions: Sequence[Mapping[str, Any]] = ()
    figures: Mapping[str, float] = MappingProxyType({})

    def encode(self) -> Any:
        return [list(self.conditions), dict(self.figures)]

    @classmethod
    def decode(cls, told: Any) -> "NodeState":
        """ValueError for what is no state."""
        try:
            conditions, figures = told
            found = [
                {**{name: str(one[name]) for name in CONDITION_TEXTS}, "since": int(one["since"])} for one in conditions
            ]
            return cls(found, {str(name): float(figure) for name, figure in figures.items()})
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as bad:
            raise ValueError(f"the state of a node was expected: {bad!r}") from None


class AskedNodes(Protocol):
    """Nodes by their numbers, as calls of HTTP need them."""

    async def ask_web(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Have a node answer a call of HTTP, or a question about a stream of one. NodeSilent."""

    def tell_web(self, node: int, told: Any) -> None:
        """Have a node, if it is reached, take a note about a stream."""

    async def work_on_tablets(self, node: int, asked: Any) -> Any:
        """Have a node do some work on tablets of tables that it runs; return what it says at the end. NodeSilent."""

    async def ask_sessions(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Have a node do some work on sessions of tables and their staged rows; return what it says. NodeSilent."""


class OtherNodes(AskedNodes, Protocol):
    """All nodes but the first one, by their numbers."""

    def cell_elsewhere(self, cell: CellId) -> CellElsewhere:
        """Return a cell that another node has open, as a backup needs it."""

    def commits_paused(self) -> AbstractAsyncContextManager[None]:
        """Hold commits of several cells back at all these nodes. BackupRefused."""

    def states(self) -> Mapping[int, NodeState]:
        """Return what each node that serves has reported last."""

    def away(self) -> Mapping[int, str]:
        """Return why each node that does not serve does not."""

    async def restart_all(self) -> Mapping[str, Any]:
        """Have all nodes, this one too, be restarted one by one; return how far that is. NodeSilent, with the reason
        where it is refused."""

    async def restart_state(self) -> Mapping[str, Any]:
        """Return how far the last restart of all nodes is. NodeSilent."""

    async def samples(self) -> Mapping[int, Sequence[Sample]]:
        """Return the samples of each. NodeSilent: all are needed."""
