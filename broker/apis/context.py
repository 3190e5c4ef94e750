"""What a handler may use: the node's parts, and the caller."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pqbroker.broker.apis.access import ANONYMOUS, Access, Principal
from pqbroker.broker.apis.record_checks import RecordChecks
from pqbroker.broker.sql.workers import Workers
from pqbroker.conf.broker import BrokerSettings

if TYPE_CHECKING:
    from pqbroker.broker.apis.fetch_sessions import FetchSessions
    from pqbroker.broker.apis.producer_ids import ProducerIds
    from pqbroker.broker.cells.cell_owner import CellOwner
    from pqbroker.broker.cues.cues import Cues
    from pqbroker.broker.lanes.lane import Lane
    from pqbroker.broker.net.answer_budget import AnswerBudget
    from pqbroker.broker.net.listeners import Address, Connections, Listener
    from pqbroker.broker.net.turns import Turns
    from pqbroker.broker.node.log_tail import LogTail
    from pqbroker.broker.node.metrics import Metrics
    from pqbroker.broker.node.series import Series
    from pqbroker.pq.serving.topic import Topic
    from pqbroker.storage.engine import PoolStats


@dataclass(frozen=True, slots=True)
class Node:
    """This node's parts. What belongs to one opening of the cell is reached by `cell.current`, and not kept over an
    await: the cell may be opened again."""

    cell: "CellOwner"
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], int]
    metrics: "Metrics"
    sessions: "FetchSessions"
    producer_ids: "ProducerIds"
    cluster_id: str
    turns: "Turns"
    answers: "AnswerBudget"
    connections: "Connections"
    pools: "Callable[[], tuple[PoolStats, ...]]" = tuple
    """Space of the pools of the cell."""
    listeners: "tuple[Listener, ...]" = ()
    """Where clients come to, with the ports that are listened on."""
    log_tail: "LogTail | None" = None
    series: "Series | None" = None
    """The main figures of the last minutes."""
    started_ms: int = 0
    """When the node opened its cell, in ms since 1970."""
    api_ranges: tuple[tuple[int, int, int], ...] = ()
    """What ApiVersions lists: key, least and greatest version."""
    record_checks: RecordChecks = field(default_factory=RecordChecks)
    workers: Workers = field(default_factory=Workers)
    """Where SQL runs."""
    access: Access | None = None
    """Decides who may do what with a topic; None: everybody everything."""
    cues: "Cues | None" = None
    """What tests make happen on cue; None: the broker is not for tests."""
    creations: "dict[str, asyncio.Task[Topic]]" = field(default_factory=dict)
    """Topics being created because Metadata named them."""

    @property
    def settings(self) -> BrokerSettings:
        """Those in force now."""
        return self.cell.current.settings.layers.in_force


@dataclass(slots=True)
class Peer:
    """The other end of a connection. The connection sets its fields, and says when it closes."""

    node: Node
    address: "Address"
    """Where this client is to connect to."""
    host: str = ""
    """Where the other end is; empty when it has gone already."""
    port: int = 0
    holder: str = ""
    """The key under which its shares of the node's limits count (`holder_of`)."""
    principal: Principal = ANONYMOUS
    takes_files: bool = False
    """Whether answers may hold parts of files (`FileRegion`)."""
    lanes: "dict[int, list[Lane]]" = field(default_factory=dict)
    """By API key: for requests that say what its last request said. The dispatcher changes it."""
    client_id: str | None = None
    """What it called itself last. The dispatcher sets it, and `apis`."""
    apis: int = 0
    """API keys that it has used, each a bit."""
    fetch_session_id: int = 0
    """Of the fetch session that it opened last; set by `FetchSessions`."""
    is_gone: bool = False
    """Whether the connection has closed."""

    def leave(self) -> None:
        """The connection has closed."""
        self.is_gone = True
        self.lanes.clear()  # they hold it: garbage for the collector
        if self.fetch_session_id:
            self.node.sessions.leave(self)


class Context:
    """One request's surroundings."""

    __slots__ = ("client_id", "correlation_id", "is_charged", "is_long", "node", "peer", "principal", "version")

    def __init__(self, node: Node, peer: Peer, version: int, client_id: str | None) -> None:
        self.node = node
        self.peer = peer
        self.principal = peer.principal
        self.version = version
        self.client_id = client_id
        self.correlation_id = 0
        """For an answer that is framed where it is made. The dispatcher sets it."""
        self.is_long = False
        """Whether the request has so many elements that a handler must let others have their turn between them."""
        self.is_charged = False
        """Whether the node's budget of answers holds something for the request."""

    def charge(self, size: int) -> None:
        """Charge `size` bytes more to the node's budget of answers, until the request is answered."""
        self.is_charged = True
        self.node.answers.grow(self, self.peer.holder, size)

    async def room(self) -> None:
        """Return when the budget of answers has room for the client's share."""
        await self.node.answers.room(self, self.peer.holder)

    @property
    def has_room(self) -> bool:
        """Return True if the budget of answers has room for the client's share."""
        return self.node.answers.left_to(self.peer.holder) > 0

    async def breathe(self) -> None:
        """Let others have their turn, if it is time; for handlers, between the entries of a request."""
        await self.node.turns.breathe()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that this client is to connect to."""
        return self.peer.address.host, self.peer.address.port
