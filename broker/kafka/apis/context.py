"""Context of a handler: the node, as its APIs need it, and the caller."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pqbroker.broker.ground.access import ANONYMOUS, Principal
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.configs.callers import ConfigsNode
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.broker.services.producer_ids import ProducerIds
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas, ClientUse
from pqbroker.broker.services.topics.record_checks import RecordChecks
from pqbroker.conf.addresses import Address

if TYPE_CHECKING:
    from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
    from pqbroker.broker.kafka.apis.lane import Lane
    from pqbroker.broker.kafka.apis.login import Login


class KafkaNode(ConfigsNode, Protocol):
    """A node that serves Kafka's APIs. What belongs to one opening of the cell is reached by `cell.current`, and not
    kept over an await: the cell may be opened again."""

    @property
    def cell(self) -> CellOwner: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def leaders(self) -> Leaders: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def answers(self) -> AnswerBudget: ...
    @property
    def sessions(self) -> "FetchSessions": ...
    @property
    def producer_ids(self) -> ProducerIds: ...
    @property
    def record_checks(self) -> RecordChecks: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def quotas(self) -> ClientQuotas: ...
    @property
    def rules(self) -> RuleAccess | None:
        """Return the access rules; None: there are none, and requests for them are refused."""

    @property
    def api_ranges(self) -> tuple[tuple[int, int, int], ...]:
        """Return what ApiVersions lists: key, least and greatest version."""


@dataclass(slots=True)
class Peer:
    """The other end of a connection. The connection sets its fields, and says when it closes."""

    node: KafkaNode
    address: Address
    """Address at which clients reach this listener; of several nodes, that of any of them."""
    host: str = ""
    """Client's host; empty if it disconnected before it was asked for."""
    port: int = 0
    holder: str = ""
    """The key under which its shares of the node's limits count (`holder_of`)."""
    principal: Principal = ANONYMOUS
    takes_files: bool = False
    """True if answers may hold parts of files (`FileRegion`)."""
    lanes: "dict[int, list[Lane]]" = field(default_factory=dict)
    """Lanes by API key, for requests that repeat the words of the last one. The dispatcher changes them."""
    client_id: str | None = None
    """Client id of the last request. The dispatcher sets it, and `apis`."""
    apis: int = 0
    """API keys that it has used, each a bit."""
    use: "ClientUse | None" = None
    """Use of the quotas that the client is under; None: it is under none. The dispatcher sets it."""
    owed_ms: int = 0
    """Milliseconds that the answer to the request which began last has to say as its throttle time."""
    fetch_session_id: int = 0
    """Id of the fetch session that the client opened last; set by `FetchSessions`."""
    login: "Login | None" = None
    """The client's login; None: its listener has none."""
    is_gone: bool = False
    """True once the connection has closed."""

    def leave(self) -> None:
        """The connection has closed."""
        self.is_gone = True
        self.lanes.clear()  # they hold it: garbage for the collector
        if self.login is not None:
            self.login.leave()
        if self.fetch_session_id:
            self.node.sessions.leave(self)


class Context:
    """One request's surroundings."""

    __slots__ = (
        "client_id", "correlation_id", "frame_bytes", "host", "is_charged", "is_long", "node", "peer", "principal",
        "version",
    )  # fmt: skip

    def __init__(self, node: KafkaNode, peer: Peer, version: int, client_id: str | None) -> None:
        self.node = node
        self.peer = peer
        self.principal = peer.principal
        self.host = peer.host
        self.version = version
        self.client_id = client_id
        self.frame_bytes = 0
        """Bytes of the request. The dispatcher sets it."""
        self.correlation_id = 0
        """Id of an answer that is framed where it is made. The dispatcher sets it."""
        self.is_long = False
        """True for a request of many elements: its handler must let other requests run in between."""
        self.is_charged = False
        """True while the node's budget of answers holds bytes for the request."""

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

    def nodes(self) -> list[tuple[int, str, int]]:
        """Each node of the cluster, with host and port that this client is to connect to."""
        return [(node_id, *self.address_of(node_id)) for node_id in self.node.leaders.nodes]

    def address_of(self, node_id: int) -> tuple[str, int]:
        """Host and port that this client is to connect to for a node: the host is the one it has reached, or that which
        is advertised, with the node's id in place of {node}."""
        address = self.peer.address
        return address.host.replace("{node}", str(node_id)), self.node.leaders.port(node_id, address.port)
