"""Sorted tablets of this node that one query reads: places of their rows at the query's timestamp, which is held."""

from collections.abc import Callable

from pqbroker.broker.services.sql.wanted_inputs import WantedInputs
from pqbroker.storage.ids import TabletId
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_reads import OpenReads
from pqbroker.tables.serving.stored_inputs import LocatedInputs, locate_inputs
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.work.refusal import QueryRefused


class TabletsHere:
    """Reads at this node. `find` finds a table as it is served now, if the caller may read it; TableError, KafkaError.
    `reads`: returns the open reads of the node's cells as they are open now."""

    def __init__(self, find: Callable[[str], SortedTable], reads: Callable[[], OpenReads]) -> None:
        self._find = find
        self._reads = reads
        self._held: list[tuple[OpenReads, int]] = []

    async def hold(self, timestamp: int) -> None:
        """Do so in each opening of the node's cells that the query meets."""
        reads = self._reads()
        if (reads, timestamp) not in self._held:
            reads.open(timestamp)
            self._held.append((reads, timestamp))

    async def inputs(self, wanted: WantedInputs) -> LocatedInputs:
        await self.hold(wanted.timestamp)
        try:
            table = self._find(wanted.table)
            if table.record.table_id.hex() != wanted.table_id or wanted.tablet_id not in table.record.tablets:
                raise changed(wanted.table)
            tablet = table.tablets[table.record.tablets.index(TabletId(wanted.tablet_id))]
            ranges = [
                (bytes.fromhex(first), None if end is None else bytes.fromhex(end)) for first, end in wanted.ranges
            ]
            return await locate_inputs(tablet, wanted.timestamp, ranges)
        except TableError as refusal:
            raise QueryRefused(refusal.code, refusal.message, refusal.cure) from None

    def close(self) -> None:
        """The query has ended."""
        for reads, timestamp in self._held:
            reads.close(timestamp)
        self._held = []


def changed(name: str) -> TableError:
    """Return the refusal of a read of a table that is another one by now, or has other tablets."""
    text = f"{name} was deleted, or its tablets were replaced, while the query read it"
    return TableError("TABLE_CHANGED", text, "Try again.")
