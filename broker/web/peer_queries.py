"""Reads at this node of queries that the first one runs: their ends are held here until it says that they have ended,
or its link closes."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.services.sql.topic_reads import AskedPartitions, Shown, Snapshots, TopicReads, WantedStretches
from pqbroker.broker.services.sql.wanted_inputs import WantedInputs
from pqbroker.broker.web.resources.sql import CallersTargets
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.reading.query import Isolation
from pqbroker.tables.refusals import TableError
from pqbroker.tables.work.refusal import QueryRefused

if TYPE_CHECKING:
    from pqbroker.broker.services.sql.tablet_reads import TabletsHere
    from pqbroker.tables.serving.stored_inputs import LocatedInputs

_PER_QUERY: Final = 2
"""Reads that are kept at most, for each query that may run: those of one that ends a moment later are among them."""


class _Kept:
    """Reads of one query, by the rights of its caller."""

    def __init__(self, targets: CallersTargets, reads: TopicReads) -> None:
        self.targets = targets
        self.reads = reads
        self._tablets: TabletsHere | None = None

    def tablets(self) -> "TabletsHere":
        """Return the reads of sorted tablets, which are made with the first one."""
        if self._tablets is None:
            from pqbroker.broker.services.sql.tablet_reads import TabletsHere

            self._tablets = TabletsHere(self.targets.sorted_table, self.targets.open_reads)
        return self._tablets

    def close(self) -> None:
        self.reads.close()
        if self._tablets is not None:
            self._tablets.close()


class PeerQueries:
    """Reads by the number of their query."""

    def __init__(self, node: WebNode, looks: Looks) -> None:
        self._node = node
        self._looks = looks
        self._kept: dict[int, _Kept] = {}

    def begin(self, asked: Any) -> Awaitable[Snapshots]:
        """Begin the reads of a query; Problem, KafkaError. ValueError at once for what is no question."""
        return self._begin(_Reader.decode(asked), _partitions(asked))

    def stretches(self, asked: Any) -> Awaitable[Shown]:
        """Return stretches that a query reads; Problem, KafkaError. ValueError at once for what is no question."""
        return self._stretches(_Reader.decode(asked), WantedStretches.decode(asked.get("wanted")))

    def hold(self, asked: Any) -> Awaitable[None]:
        """Hold the timestamp of a query; Problem. ValueError at once for what is no question."""
        timestamp = asked.get("hold")
        if not isinstance(timestamp, int) or not 0 <= timestamp <= TIMESTAMP_MAX:
            raise ValueError("the timestamp of a query was expected")
        return self._hold(_Reader.decode(asked), timestamp)

    def inputs(self, asked: Any) -> "Awaitable[LocatedInputs]":
        """Return inputs of a sorted tablet that a query reads; Problem, KafkaError. ValueError at once for what is no
        question."""
        return self._inputs(_Reader.decode(asked), WantedInputs.decode(asked.get("locate")))

    def end(self, number: int) -> None:
        """A query has ended."""
        kept = self._kept.pop(number, None)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        """All queries have ended."""
        for number in list(self._kept):
            self.end(number)

    async def _begin(self, reader: "_Reader", asked: AskedPartitions) -> Snapshots:
        kept = self._of(reader)
        if len(asked) == 1:
            return await kept.reads.begin(kept.reads.find(asked))
        try:
            async with kept.targets.moment(list(asked)):
                self._check(reader, kept)
                return await kept.reads.begin(kept.reads.find(asked))
        except TableError as refusal:
            raise Problem(503, refusal.code, refusal.message, refusal.cure) from None

    async def _stretches(self, reader: "_Reader", wanted: WantedStretches) -> Shown:
        return await self._of(reader).reads.stretches(wanted)

    async def _hold(self, reader: "_Reader", timestamp: int) -> None:
        await self._of(reader).tablets().hold(timestamp)

    async def _inputs(self, reader: "_Reader", wanted: WantedInputs) -> "LocatedInputs":
        kept = self._of(reader)
        # Commit timestamps below the query's may have come with this very question. The commits that wait for them
        # begin in this turn of the loop, and the query waits for those that have begun.
        await asyncio.sleep(0)
        self._check(reader, kept)
        try:
            return await kept.tablets().inputs(wanted)
        except QueryRefused as refusal:
            raise Problem(503, refusal.code, refusal.message, refusal.cure) from None

    def _check(self, reader: "_Reader", kept: _Kept) -> None:
        """Problem where the query has ended: nothing would let go of what it takes from now on."""
        if self._kept.get(reader.query) is not kept:
            raise Problem(503, "NODE_SILENT", "the query has ended meanwhile", "Ask again.")

    def _of(self, reader: "_Reader") -> _Kept:
        """Return the reads of a query, which begin with its first question. Problem."""
        if reader.query not in self._kept:
            most = _PER_QUERY * self._node.settings.sql_queries_max
            if len(self._kept) >= most:
                text = f"{most} queries of the first node read here, as many as may"
                raise Problem(503, "TOO_MANY_QUERIES", text, "Try again, or raise pqbroker.sql.queries.max.")
            looks = self._looks.of(reader.holder)
            call = Call(self._node, {}, {}, None, looks, {}, reader.holder, reader.principal, reader.host)
            targets = CallersTargets(call)
            reads = TopicReads(targets.served_topic, reader.isolation, is_away=True)
            self._kept[reader.query] = _Kept(targets, reads)
        return self._kept[reader.query]


class _Reader(NamedTuple):
    """A query of the first node: its number there, and its caller."""

    query: int
    isolation: Isolation
    principal: Principal
    host: str
    holder: str

    @classmethod
    def decode(cls, asked: Any) -> "_Reader":
        """ValueError."""
        number, caller, isolation = asked.get("query"), asked.get("caller"), asked.get("isolation")
        if not isinstance(number, int) or isolation not in (0, 1) or not isinstance(caller, list) or len(caller) != 4:
            raise ValueError("a question of a query was expected")
        kind, name, host, holder = map(str, caller)
        return cls(number, Isolation(isolation), Principal(kind, name), host, holder)


def _partitions(asked: Any) -> AskedPartitions:
    """ValueError."""
    told = asked.get("begin")
    if not isinstance(told, dict) or not told:
        raise ValueError("partitions of topics were expected")
    for part in told.values():
        if not isinstance(part, list) or len(part) != 2 or not isinstance(part[1], list):
            raise ValueError("partitions of a topic were expected")
        if not isinstance(part[0], str) or not all(isinstance(index, int) for index in part[1]):
            raise ValueError("numbers of partitions were expected")
    return {name: (topic_id, indexes) for name, (topic_id, indexes) in told.items()}
