"""Declarations of a resource file: routes with their parameters, bodies and answers; and what a route gets to serve.

Resources know nothing of the HTTP library: `endpoints` puts them onto it, `openapi` describes them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pqbroker.broker.ground.access import ANONYMOUS, AclOperation, Principal
from pqbroker.broker.ground.looks import Look
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem, bad_request
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema
from pqbroker.broker.web.routing.stream_forms import EVENTS, LINES, StreamForm
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.cell import Cell

T = TypeVar("T")

ITEMS_DEFAULT = 100
NUMBERS_IN_PATHS = frozenset(("cell", "channel", "fault", "partition", "tablet"))
"""Parameters in paths that are numbers; all others are text."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter."""

    name: str
    schema: Schema
    doc: str
    required: bool = False
    example: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the node; names in its path, its query and body, all checked against the route."""

    node: WebNode
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any
    looks: Look
    """Held by what decodes records, to limit how many do at once."""
    headers: Mapping[str, str] = field(default_factory=dict)
    holder: str = ""
    """The key under which its client has its shares of the node's limits (`holder_of`)."""
    principal: Principal = ANONYMOUS
    host: str = ""
    """Address of the client."""

    @property
    def cell(self) -> Cell:
        """The system cell as it is open now."""
        return self.node.cell.current.cell

    @property
    def cells(self) -> list[Cell]:
        """All open cells, the system cell first."""
        return [host.cell for _, host in self.node.cell.current.cells.hosts()]

    def topic(self, operation: AclOperation = AclOperation.DESCRIBE, partitions: Iterable[int] | None = None) -> Topic:
        """The topic the path names; KafkaError as `find_topic`. Of one whose records are read or written, these
        partitions or all must be here: Problem as `check_served`."""
        topic = find_topic(self, operation, self.path["name"])
        if operation in (AclOperation.READ, AclOperation.WRITE):
            self.check_served(topic, partitions)
        return topic

    def check_served(self, topic: Topic, partitions: Iterable[int] | None = None) -> None:
        """Problem where another node of a broker with several runs some of these partitions, or of all: what this node
        has of them would be answered as all that there is. KafkaError NOT_LEADER_OR_FOLLOWER while their cell opens."""
        leaders = self.node.leaders
        if len(leaders.nodes) == 1:
            return
        cell = leaders.foreign_cell(topic, partitions)
        if cell is not None:
            text = f"topic {topic.record.name} has partitions in cell {cell}, which another node runs"
            cure = (
                "Name a partition, use a Kafka client, or move all its cells to one node: "
                f"`pqbroker cell move {cell} --node 1`."
            )
            raise Problem(503, "OTHER_NODE", text, cure)
        known = topic.partitions
        asked = known if partitions is None else [known[index] for index in partitions if index < len(known)]
        if not all(partition.is_loaded or partition.is_unmounted for partition in asked):
            raise not_leader()

    def node_of(self, operation: AclOperation, partitions: Iterable[int] | None = None) -> int | None:
        """Return the number of the one other node that runs these partitions, or all, of the topic that the path names;
        None: this one or several do. KafkaError as `find_topic`."""
        topic = find_topic(self, operation, self.path["name"], or_static=True)
        return self.node.leaders.only_node(topic, partitions)

    def check_test_broker(self, what: str) -> None:
        """Problem unless the node is one for tests."""
        if self.node.cues is None:
            cure = "Start one with --set pqbroker.test.door=true."
            raise Problem(403, "NO_TEST_BROKER", f"{what} are for test brokers", cure)

    def limit(self) -> int:
        """Return the most items that the answer may list."""
        most = self.node.settings.http_items_max
        limit: int = self.query.get("limit", min(ITEMS_DEFAULT, most))
        if limit > most:
            raise bad_request(f"limit is {limit}; the most allowed is {most} (pqbroker.http.items.max)")
        return limit

    def page(self, items: Sequence[T]) -> tuple[Sequence[T], bool]:
        """The items of this answer out of those that follow, and whether there are more."""
        limit = self.limit()
        return items[:limit], len(items) > limit


class StreamCut(Exception):
    """A stream that has an end breaks off before it: its client must see that it has not got all."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that a route may serve instead of a document: of unknown length, in pieces of its content type."""

    content_type: str
    pieces: AsyncGenerator[bytes, None]
    has_end: bool = False
    """Nothing is sent before the first piece is made, so that an error may come instead of it; and where not all pieces
    are sent, the connection is cut."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An answer that a route may serve for work that it has begun and not waited for: status 202."""

    document: Any


@dataclass(frozen=True, slots=True)
class Written:
    """An answer whose JSON is written already."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path. `answer` None: the status says all."""

    method: str
    path: str
    summary: str
    serve: Callable[[Call], Awaitable[Any]]
    answer: Schema | None
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    status: int = 200
    cluster: AclOperation | None = None
    """Operation on the cluster that the caller must be allowed; None: access is checked where a resource is found."""
    example: Any = None
    """An answer, for the document."""
    body_example: Any = None
    lines: str = ""
    """The field of the body whose items may come as JSON lines, one each, instead of the whole."""
    raw_types: tuple[str, ...] = ()
    """Content types of bodies that are not parsed here: `Call.body` is bytes."""
    streams: tuple[Schema, Any] | None = None
    """Schema and example of an item, in an answer of unknown length."""
    forms: tuple[StreamForm, ...] = (LINES, EVENTS)
    """Forms in which those items may be written."""
    other_types: tuple[str, ...] = ()
    """Content types that have no items for JSON to describe."""
    place: Callable[[Call], int | None] | None = None
    """Return the number of the other node that serves a call, of a caller who may ask for it; None: this one does.
    Nodes forward only calls of routes that have it."""


def path_schema(name: str) -> Schema:
    """Return the schema of what may stand for a name in a path."""
    return COUNT if name in NUMBERS_IN_PATHS else TEXT


LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1},
    f"How many are listed at most; {ITEMS_DEFAULT} unless given, never more than pqbroker.http.items.max.",
)  # fmt: skip
AFTER_NAME = Parameter("after", TEXT, "List those behind this name: `next` of the answer before.")
