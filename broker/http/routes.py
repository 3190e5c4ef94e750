"""What a resource file declares: routes with their parameters, bodies and answers; and what a route gets to serve.

Resources know nothing of the HTTP library: `endpoints` puts them onto it, `openapi` describes them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pqbroker.broker.cell_owner import CellOwner
from pqbroker.broker.context import Node
from pqbroker.broker.http.problems import bad_request
from pqbroker.broker.http.schemas import COUNT, TEXT, Schema
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group
from pqbroker.pq.group import Group
from pqbroker.storage.cells.cell import Cell

T = TypeVar("T")

ITEMS_DEFAULT = 100
NUMBERS_IN_PATHS = frozenset(("channel", "partition", "tablet"))
"""What is a number where a path names it; all else is text."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter."""

    name: str
    schema: Schema
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the node, its cell's owner; names in its path, its query and body, all checked against the route."""

    node: Node
    owner: CellOwner
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any
    looks: asyncio.Semaphore
    """Held by what decodes records: so many at once."""

    @property
    def cell(self) -> Cell:
        """The cell as it is open now."""
        return self.owner.current.cell

    def group(self) -> Group:
        """The topic the path names; KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        return find_group(self.node.groups, self.path["name"], NO_TOPIC_ID, by_id=False)

    def limit(self) -> int:
        """How many items the answer may list."""
        most = self.node.settings.http_items_max
        limit: int = self.query.get("limit", min(ITEMS_DEFAULT, most))
        if limit > most:
            raise bad_request(f"limit is {limit}; the most allowed is {most} (pqbroker.http.items.max)")
        return limit

    def page(self, items: Sequence[T]) -> tuple[Sequence[T], bool]:
        """The items of this answer out of those that follow, and whether there are more."""
        limit = self.limit()
        return items[:limit], len(items) > limit


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


def path_schema(name: str) -> Schema:
    """What may stand for a name in a path."""
    return COUNT if name in NUMBERS_IN_PATHS else TEXT


LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1},
    f"How many are listed at most; {ITEMS_DEFAULT} unless given, never more than pqbroker.http.items.max.",
)  # fmt: skip
AFTER_NAME = Parameter("after", TEXT, "List those behind this name: `next` of the answer before.")
