"""What a handler may use: the node's parts, and who asks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pqbroker.broker.key_checks import KeyChecks
from pqbroker.conf.broker import BrokerSettings

if TYPE_CHECKING:
    from pqbroker.broker.answer_budget import AnswerBudget
    from pqbroker.broker.coordinators import Coordinators
    from pqbroker.broker.listeners import Listener
    from pqbroker.broker.metrics import Metrics
    from pqbroker.broker.node_settings import NodeSettings
    from pqbroker.broker.producer_ids import ProducerIds
    from pqbroker.broker.sessions import FetchSessions
    from pqbroker.broker.turns import Turns
    from pqbroker.pq.group import Group, PersQueueGroups
    from pqbroker.storage.engine import PoolStats
    from pqbroker.storage.faults import FaultyEngine


@dataclass(slots=True)
class Node:
    """This node's parts. Those of the cell (`configured`, `groups`, `coordinators`, `cluster_id`) change when it is
    opened again."""

    configured: "NodeSettings"
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], int]
    metrics: "Metrics"
    sessions: "FetchSessions"
    producer_ids: "ProducerIds"
    groups: "PersQueueGroups"
    coordinators: "Coordinators"
    cluster_id: str
    turns: "Turns"
    answers: "AnswerBudget"
    pools: "Callable[[], tuple[PoolStats, ...]]" = tuple
    """Space of the pools of the cell."""
    listeners: "tuple[Listener, ...]" = ()
    """Where clients come to, with the ports that are listened on."""
    api_ranges: tuple[tuple[int, int, int], ...] = ()
    """What ApiVersions lists: key, least and greatest version."""
    key_checks: KeyChecks = field(default_factory=KeyChecks)
    faulty: "FaultyEngine | None" = None
    """The store of a broker for tests, which meets faults on cue."""
    creations: "dict[str, asyncio.Task[Group]]" = field(default_factory=dict)
    """Topics being created because Metadata named them."""

    @property
    def settings(self) -> BrokerSettings:
        """Those in force now."""
        return self.configured.layers.in_force


@dataclass(slots=True)
class Peer:
    """The other end of a connection, and the address it reached us at."""

    node: Node
    local_host: str
    local_port: int
    advertised: tuple[str, int] | None = None
    """Host and port that its listener tells clients; None: those it reached us at."""
    host: str = ""
    """Where the other end is; empty when it has gone already."""
    pause_ms: int = 0
    """For how long nothing more is to be read from it; set by handlers, taken by the connection (KIP-219)."""
    fetch_session_id: int = 0
    """Of the fetch session that it opened last."""
    is_gone: bool = False
    """Whether the connection has closed."""
    takes_files: bool = False
    """Whether answers may hold parts of files (`FileRegion`)."""

    def leave(self) -> None:
        """The connection has closed."""
        self.is_gone = True
        if self.fetch_session_id:
            self.node.sessions.leave(self)


class Context:
    """One request's surroundings."""

    __slots__ = ("client_id", "holds_files", "is_charged", "is_long", "node", "peer", "version")

    def __init__(self, node: Node, peer: Peer, version: int, client_id: str | None) -> None:
        self.node = node
        self.peer = peer
        self.version = version
        self.client_id = client_id
        self.holds_files = False
        """Whether the answer holds a `FileRegion`."""
        self.is_long = False
        """Whether the request has so many elements that a handler must let others have their turn between them."""
        self.is_charged = False
        """Whether the node's budget of answers holds something for the request."""

    def charge(self, size: int) -> None:
        """Charge `size` bytes more to the node's budget of answers, until the request is answered."""
        self.is_charged = True
        self.node.answers.grow(self, size)

    async def breathe(self) -> None:
        """Let others have their turn, if it is time; for handlers, between the entries of a request."""
        await self.node.turns.breathe()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that this client is to connect to."""
        return self.peer.advertised or (self.peer.local_host, self.peer.local_port)
