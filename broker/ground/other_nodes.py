"""Other nodes of a broker with several, as the doors of the first one need them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pqbroker.broker.ground.metrics import Sample


class NodeSilent(Exception):
    """A node does not answer now; the text names it."""


class OtherNodes(Protocol):
    """All nodes but the first one, by their numbers."""

    async def samples(self) -> Mapping[int, Sequence[Sample]]:
        """Return the samples of each. NodeSilent: all are needed."""

    async def ask_web(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Have a node answer a call of HTTP, or a question about a stream of one. NodeSilent."""

    def tell_web(self, node: int, told: Any) -> None:
        """Have a node, if it is reached, take a note about a stream."""

    async def work_on_tablets(self, node: int, asked: Any) -> Any:
        """Have a node do some work on sorted tablets that it runs; return what it says at the end. NodeSilent."""
