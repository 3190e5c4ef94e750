"""A restart of all nodes, one after the other, as their parent performs it: after SIGHUP, or where the first node asks.

    idle      a restart is asked for         running
    running   a node cannot be restarted     failed: the nodes after it stay as they are
    running   all nodes were restarted       done
    failed    a restart is asked for         running
    done      a restart is asked for         running

Each node stops once others have its cells open, and has them again before the next one stops. The first node, which
has the system cell, is the last.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod

log = logging.getLogger(__name__)

EMPTYING_S: Final = 60.0
"""Seconds that the cells of a node have to be open at others before its restart is given up."""
FILLING_S: Final = 60.0
"""Seconds that a node has to have its cells open again."""


class RestartedNode(Protocol):
    """The process of one node, over all its lives."""

    @property
    def number(self) -> int: ...

    async def ask(self, method: PeerMethod, head: Any, timeout_s: float) -> None:
        """Ask the process for something that has no answer. PeerRefused."""

    async def restart(self, allowed_s: float) -> bool:
        """Stop the process and start it again; return True when it serves."""


class RollingRestart:
    """The restart that runs, or ran last. `stop_s`: seconds that a node has to stop."""

    def __init__(self, stop_s: float) -> None:
        self._stop_s = stop_s
        self._nodes: Sequence[RestartedNode] = ()
        """Nodes that may be restarted; none before all have served, and while they stop."""
        self._running: asyncio.Task[None] | None = None
        self._state = "idle"
        self._failure = ""
        self._restarted: list[int] = []

    def allow(self, nodes: Sequence[RestartedNode]) -> None:
        """Have these nodes, the first one first, be restarted from now on, when that is asked for."""
        self._nodes = nodes

    def close(self) -> None:
        """Restart nothing any more."""
        self._nodes = ()
        if self._running is not None:
            self._running.cancel()

    def begin(self) -> None:
        """Restart the nodes from now on. PeerRefused."""
        if not self._nodes:
            raise PeerRefused("the nodes are not restarted: they start for the first time, or stop")
        if self._running is not None and not self._running.done():
            raise PeerRefused("the nodes are being restarted already")
        self._state, self._failure, self._restarted = "running", "", []
        self._running = asyncio.get_running_loop().create_task(self._run(self._nodes))

    async def ended(self) -> None:
        """Return once the restart that was begun has ended."""
        if self._running is not None:
            await asyncio.wait([self._running])

    def document(self) -> dict[str, Any]:
        """Return how far it is, as JSON has it."""
        return {"state": self._state, "restarted": list(self._restarted), "failure": self._failure}

    async def _run(self, nodes: Sequence[RestartedNode]) -> None:
        first = nodes[0]
        for node in reversed(nodes):
            try:
                await self._restart(node, first)
            except PeerRefused as refused:
                self._state, self._failure = "failed", str(refused)
                log.error("the other nodes are not restarted: %s", refused)
                return
            self._restarted.append(node.number)
        self._state = "done"
        log.info("all nodes were restarted")

    async def _restart(self, node: RestartedNode, first: RestartedNode) -> None:
        """Restart a node; return when it has its cells again. PeerRefused."""
        try:
            await first.ask(PeerMethod.EMPTY_NODE, node.number, EMPTYING_S)
        except PeerRefused as refused:
            raise PeerRefused(f"node {node.number} is not restarted: {refused}") from refused
        log.info("node %d is restarted", node.number)
        if not await node.restart(self._stop_s):
            raise PeerRefused(f"node {node.number} does not serve again; its own lines in the log say why")
        try:
            await first.ask(PeerMethod.FILL_NODE, node.number, FILLING_S)
        except PeerRefused as refused:
            raise PeerRefused(f"node {node.number} serves again, but has not all its cells: {refused}") from refused
