"""The sorted tables that one query reads: all at one timestamp, each tablet as it is stored when the query comes to it.

No clean-up that begins meanwhile removes what is seen at the timestamp. A tablet that is unmounted meanwhile is
refused; one that moves is read where it is by then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pqbroker.broker.services.sql.listing import schema_document
from pqbroker.broker.services.sql.tablet_reads import TabletsHere, changed
from pqbroker.broker.services.sql.wanted_inputs import TabletReads, WantedInputs
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.storage.ids import TabletId
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.stored_inputs import LocatedInputs
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.work.refusal import QueryRefused


class TabletNodes(Protocol):
    """The nodes that run sorted tablets, by their numbers; None stands for this one."""

    def nodes_of(self, table: SortedTable, indexes: Sequence[int]) -> Sequence[int | None]:
        """Return the node that runs each of some tablets now."""

    def reads_at(self, node: int) -> TabletReads:
        """Return the query's reads of tablets at another node."""


class SortedReads:
    """`find` finds a table that the caller may read; TableError, KafkaError. `here`: the query's reads of tablets of
    this node. `timestamp` None: what is acknowledged when the first table is found."""

    def __init__(
        self, find: Callable[[str], SortedTable], here: TabletsHere, nodes: TabletNodes, timestamp: int | None
    ) -> None:
        self._find = find
        self._here = here
        self._nodes = nodes
        self._wanted = timestamp
        self.timestamp: int | None = None
        """The timestamp of the query, once a table is found."""
        self._tables: dict[str, tuple[bytes, Sequence[TabletId]]] = {}
        """Ids of the tables and of their tablets, by name."""
        self._held: set[int] = set()
        """Other nodes that keep the timestamp from clean-up."""

    async def snapshot(self, name: str) -> Mapping[str, Any]:
        """Return what the worker needs to know of a table. QueryRefused, KafkaError."""
        table = self._found(name)
        if self.timestamp is None:
            newest = await _newest(table.tablets[0].share.time)
            self.timestamp = newest if self._wanted is None else min(self._wanted, newest)
        record = table.record
        await self._here.hold(self.timestamp)
        for node in {*self._nodes.nodes_of(table, range(len(record.tablets)))} - {None} - self._held:
            assert node is not None
            await self._nodes.reads_at(node).hold(self.timestamp)
            self._held.add(node)
        self._tables[name] = record.table_id, record.tablets
        pivots = [pivot.hex() for pivot in record.pivots]
        unmounted = [index for index, state in enumerate(table.states) if state is MountState.UNMOUNTED]
        return {
            "sorted": schema_document(table), "pivots": pivots, "timestamp": self.timestamp, "unmounted": unmounted,
        }  # fmt: skip

    async def inputs(self, wanted: Mapping[str, Any]) -> LocatedInputs:
        """Return the inputs that a worker asks for: of ranges of keys of one tablet. QueryRefused, KafkaError,
        ShardLost."""
        name, index = wanted["table"], wanted["tablet"]
        table = self._found(name)
        table_id, tablets = self._tables[name]
        if table.record.table_id != table_id or table.record.tablets != tablets:
            raise _refused(changed(name))
        assert self.timestamp is not None
        asked = WantedInputs(name, table_id.hex(), tablets[index], self.timestamp, wanted["ranges"])
        (node,) = self._nodes.nodes_of(table, [index])
        return await (self._here if node is None else self._nodes.reads_at(node)).inputs(asked)

    def close(self) -> None:
        """The query has ended; its reads at other nodes end with those of topics there."""
        self._here.close()

    def _found(self, name: str) -> SortedTable:
        try:
            return self._find(name)
        except TableError as refusal:
            raise _refused(refusal) from None


def _refused(refusal: TableError) -> QueryRefused:
    return QueryRefused(refusal.code, refusal.message, refusal.cure)


async def _newest(time: NodeTime) -> int:
    """Return a timestamp not below any that was given, and below all that will be. Without room for a reservation it is
    the last one that was given."""
    now_ms = time.clock()
    reservation = time.timestamps.prepare(now_ms)
    if reservation is not None:
        await reservation
    rule = time.timestamps.rule
    return rule.give(now_ms) if rule.can_give else rule.last
