"""Parts of commits that other nodes of the broker run, and what this node asks those nodes.

    asked     prepare: durable there                          prepared
    asked     prepare: refused, no answer, the link closes    the commit is given up; what is prepared late is dropped
    prepared  finish(timestamp): durable there                visible
    prepared  finish(None)                                    gone
    prepared  nobody says anything                            its node asks the home's node (`finishing.py`)

Nodes prepare one after the other, by their numbers, and each enters its parts in one turn of the loop: so no two
commits wait for each other in a circle.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from pqbroker.pq.transactions.participants import CommitPart, SentPart, SentRows
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.refusals import TableError


class HomeState(StrEnum):
    """The knowledge of a home about one transaction."""

    UNKNOWN = "unknown"
    """A cell is not open anywhere, so nobody knows."""
    UNDECIDED = "undecided"
    """The commit is under way."""
    COMMITTED = "committed"
    NEVER = "never"
    """The transaction is not committed, and never will be."""


class HomeWord(NamedTuple):
    """The answer of a home. `decision`: there is one where it is committed."""

    state: HomeState
    decision: CommitDecision | None = None

    def with_another(self, word: "HomeWord") -> "HomeWord":
        """Return what two participants say together, of which one may be the home."""
        return min(self, word, key=lambda one: _MOST_TELLING.index(one.state))


_MOST_TELLING: Final = (HomeState.COMMITTED, HomeState.UNDECIDED, HomeState.UNKNOWN, HomeState.NEVER)
NEVER: Final = HomeWord(HomeState.NEVER)


class PreparedEnds(NamedTuple):
    """An end of prepared rows. `timestamp` None: they are dropped, if they were prepared with this `least_timestamp`,
    so that no late word drops rows of another try of the same commit."""

    transaction: TransactionId
    timestamp: int | None
    least_timestamp: int
    participants: Sequence[ParticipantId]


class AwayNodes(Protocol):
    """The other nodes of the broker, for commits."""

    @property
    def is_first(self) -> bool:
        """Return True at the node that has the scheme: it knows what exists, and all nodes."""

    def node_of(self, tablet_id: TabletId) -> int | None:
        """Return the number of the node that runs a tablet and is linked to this one; None: there is none."""

    async def prepare(self, node: int, head: PreparedHead, parts: Sequence[SentRows], limit_s: float) -> Sequence[int]:
        """Have a node prepare parts; return the position of each. KafkaError, TableError, CommitRefused: what is
        prepared of them is to be dropped."""

    async def finish(self, ends: PreparedEnds) -> Mapping[ParticipantId, str]:
        """End prepared rows wherever they are; return why some were not ended."""

    async def word_of(self, homes: Sequence[ParticipantId], transaction: TransactionId) -> HomeWord:
        """Return what participants that do not run here say, of which one may be the home. CommitRefused: nobody
        answers."""


class AwayParts:
    """The parts of one commit that other nodes run."""

    def __init__(self, nodes: AwayNodes, by_node: Mapping[int, Sequence[SentPart]]) -> None:
        self._nodes = nodes
        self._by_node = sorted(by_node.items())
        self.participants = tuple(part.participant.participant_id for _, parts in self._by_node for part in parts)
        self._head: PreparedHead | None = None
        self._asked: list[ParticipantId] = []
        """Participants in which something may be prepared."""

    def without(self, parts: Sequence[CommitPart]) -> Sequence[CommitPart]:
        """Return those of the parts that this node runs."""
        away = set(self.participants)
        return [part for part in parts if part.participant.participant_id not in away]

    async def prepare(self, head: PreparedHead | None, until_s: float) -> None:
        """Have all nodes prepare their parts, until a time of the loop. Raises as `AwayNodes.prepare`."""
        assert head is not None, "what is prepared has a head"
        self._head = head
        for node, parts in self._by_node:
            rows = [await part.sent() for part in parts]
            self._asked += [one.participant for one in rows]
            left_s = until_s - asyncio.get_running_loop().time()
            positions = await self._nodes.prepare(node, head, rows, left_s)
            for part, position in zip(parts, positions, strict=True):
                part.taken(position)

    def check(self) -> None:
        """CommitRefused where a node was lost since it has prepared its parts."""
        for node, parts in self._by_node:
            for part in parts:
                if self._nodes.node_of(part.participant.participant_id.tablet_id) != node:
                    raise CommitRefused(f"node {node} was lost before the commit was decided; try again")

    def drop(self) -> None:
        """Have what is prepared dropped. A node that does not hear of it asks the home."""
        if self._head is not None and self._asked:
            ends = PreparedEnds(self._head.transaction, None, self._head.least_timestamp, self._asked)
            uninterrupted(self._nodes.finish(ends))


def away_parts(
    nodes: AwayNodes, parts: Sequence[CommitPart], is_elsewhere: Callable[[TabletId], bool]
) -> AwayParts | None:
    """Return the parts that other nodes run; None: this one runs all. TableError TABLETS_OF_OTHER_NODES for a part that
    cannot be prepared there; CommitRefused where its node is not linked."""
    by_node: defaultdict[int, list[SentPart]] = defaultdict(list)
    for part in parts:
        participant = part.participant
        tablet_id = participant.participant_id.tablet_id
        if not is_elsewhere(tablet_id):
            continue
        name = participant.name or f"tablet {tablet_id}"
        if not nodes.is_first or not isinstance(part, SentPart):
            text = f"{name} is run by another node of the broker; this commit over nodes is not possible"
            cure = "Nothing was written. Leave its rows out, or serve the directory with --nodes 1."
            raise TableError("TABLETS_OF_OTHER_NODES", text, cure)
        node = nodes.node_of(tablet_id)
        if node is None:
            raise CommitRefused(f"the node that runs {name} is not linked to this one; try again")
        by_node[node].append(part)
    return AwayParts(nodes, by_node) if by_node else None
