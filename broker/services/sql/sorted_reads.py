"""The sorted tables that one query reads: all at one timestamp, each tablet as it is stored when the query comes to it.

No clean-up that begins meanwhile removes what is seen at the timestamp. A tablet that is unmounted meanwhile is
refused; one that moves is read where it is by then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pqbroker.broker.services.sql.listing import schema_document
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_reads import OpenReads
from pqbroker.tables.serving.stored_inputs import LocatedInputs, locate_inputs
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.work.refusal import QueryRefused


class SortedReads:
    """`find` finds a table that the caller may read; TableError, KafkaError. `timestamp` None: what is acknowledged
    when the first table is found."""

    def __init__(self, find: Callable[[str], SortedTable], timestamp: int | None) -> None:
        self._find = find
        self._wanted = timestamp
        self.timestamp: int | None = None
        """The timestamp of the query, once a table is found."""
        self._tables: dict[str, bytes] = {}
        """Ids of the tables by name."""
        self._open: list[OpenReads] = []

    async def snapshot(self, name: str) -> Mapping[str, Any]:
        """Return what the worker needs to know of a table. QueryRefused, KafkaError."""
        table = self._found(name)
        tablet = table.tablets[0]
        if self.timestamp is None:
            newest = await _newest(tablet.share.time)
            self.timestamp = newest if self._wanted is None else min(self._wanted, newest)
        self._hold(tablet.share.reads)
        self._tables[name] = table.record.table_id
        pivots = [pivot.hex() for pivot in table.record.pivots]
        unmounted = [index for index, state in enumerate(table.states) if state is MountState.UNMOUNTED]
        return {
            "sorted": schema_document(table), "pivots": pivots, "timestamp": self.timestamp, "unmounted": unmounted,
        }  # fmt: skip

    async def inputs(self, wanted: Mapping[str, Any]) -> LocatedInputs:
        """Return the inputs that a worker asks for: of ranges of keys of one tablet. QueryRefused, KafkaError,
        ShardLost."""
        name, index = wanted["table"], wanted["tablet"]
        table = self._found(name)
        if table.record.table_id != self._tables[name] or index >= len(table.tablets):
            text = f"{name} was deleted, or its tablets were replaced, while the query read it"
            raise QueryRefused("TABLE_CHANGED", text, "Try again.")
        tablet = table.tablets[index]
        self._hold(tablet.share.reads)
        assert self.timestamp is not None
        ranges = [
            (bytes.fromhex(first), None if end is None else bytes.fromhex(end)) for first, end in wanted["ranges"]
        ]
        try:
            return await locate_inputs(tablet, self.timestamp, ranges)
        except TableError as refusal:
            raise QueryRefused(refusal.code, refusal.message, refusal.cure) from None

    def close(self) -> None:
        """The query has ended."""
        for reads in self._open:
            reads.close(self.timestamp or 0)
        self._open = []

    def _found(self, name: str) -> SortedTable:
        try:
            return self._find(name)
        except TableError as refusal:
            raise QueryRefused(refusal.code, refusal.message, refusal.cure) from None

    def _hold(self, reads: OpenReads) -> None:
        """Keep the query's timestamp from clean-up, in each opening of the node's cells that it meets."""
        if reads not in self._open:
            assert self.timestamp is not None
            reads.open(self.timestamp)
            self._open.append(reads)


async def _newest(time: NodeTime) -> int:
    """Return a timestamp not below any that was given, and below all that will be. Without room for a reservation it is
    the last one that was given."""
    now_ms = time.clock()
    reservation = time.timestamps.prepare(now_ms)
    if reservation is not None:
        await reservation
    rule = time.timestamps.rule
    return rule.give(now_ms) if rule.can_give else rule.last
