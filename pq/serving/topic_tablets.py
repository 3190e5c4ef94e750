"""The tablets of topics: created, started and stopped in the cells where they live.

A tablet whose cell is not open exists all the same. It answers as a lost one, so its clients try again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

from pqbroker.pq.serving.tablet import NodeShare, PqTablet
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.storage.tablets.tablet import TabletType

_TYPE = TabletType.PERSQUEUE
_STOPS_AT_ONCE = 100
"""Tablets stopped before the loop's other work has its turn."""


class TopicTablets:
    """The tablets of all topics of a node. `changes` is held while a tablet is restarted: changes of its topic wait for
    that. `renewed` is called when other partitions of a topic run, before anything else has its turn."""

    def __init__(
        self, cells: OpenCells, share: NodeShare, changes: asyncio.Lock, renewed: Callable[[Topic], None]
    ) -> None:
        self._renewed = renewed
        self._cells = cells
        self._share = share
        self._changes = changes

    async def create(self, records: Iterable[TopicRecord]) -> None:
        """Create those of the topics that do not exist yet in cells that are open; one commit in each cell.

        CommitRefused, ShardLost; those of another cell may exist then.
        """
        known = list(records)
        for cell, host in self._cells.hosts():
            wanted = [item for record in known for item in _wanted(record, cell)]
            if wanted:
                await host.cell.create_tablets(wanted)

    async def start(self, topic: Topic) -> None:
        """Start the tablets and partitions of the topic that do not run yet."""
        record = topic.record
        for number, (tablet_id, cell, indexes) in enumerate(record.spans()):
            tablet = topic.tablets.get(tablet_id)
            if tablet is None:
                renewed = partial(self._renewed, topic)
                tablet = PqTablet(record.name, indexes, topic.settings(number), self._share, renewed)
                host = self._cells.host(cell)
                if host is None:
                    known = self._cells.known_generation(cell, tablet_id)
                    tablet.await_cell(self._cells.absent_storage(tablet_id), known)
                else:
                    await host.start(tablet_id, tablet, self._changes, tablet.lose)
                topic.tablets[tablet_id] = tablet
            for index in indexes:
                if index not in tablet.partitions:
                    await tablet.add(index)
        topic.line_up()

    async def start_in(self, cell: CellId, host: TabletHost, topics: Iterable[Topic]) -> None:
        """Start the topics' tablets of a cell that is open now, or again. CommitRefused, ShardLost."""
        known = [topic for topic in topics if cell in topic.record.cells]
        await host.cell.create_tablets([item for topic in known for item in _wanted(topic.record, cell)])
        for topic in known:
            for tablet_id, _, _ in _wanted(topic.record, cell):
                tablet = topic.tablets.get(tablet_id)
                if tablet is not None:
                    await host.start(tablet_id, tablet, self._changes, tablet.lose)

    async def stop(self, topic: Topic) -> list[PqTablet]:
        """End the tablets of the topic, which has none then; return them."""
        for number, tablet_id in enumerate(topic.tablets):
            if number % _STOPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            await self._cells.host_of(tablet_id).stop_tablet(tablet_id)
        stopped = list(topic.tablets.values())
        topic.tablets.clear()  # each knows the topic: a deleted one would be a cycle that Python looks for
        return stopped

    def reclaim(
        self, records: Sequence[TopicRecord], tablets: Collection[TabletId], forget: Callable[[], Awaitable[None]]
    ) -> None:
        """Begin to remove tablets that topics had, then call `forget`. Cells that are not open remove them when they
        are: then no topic names them."""
        for cell, host in self._cells.hosts():
            if cell != SYSTEM_CELL:
                there = {tablet_id for record in records for tablet_id, home, _ in record.spans() if home == cell}
                host.reclaim(there.intersection(tablets))
        self._cells.system.reclaim(tablets, forget)


def _wanted(record: TopicRecord, cell: CellId) -> list[tuple[TabletId, TabletType, str]]:
    """The topic's tablets in a cell."""
    owner = record.topic_id.hex()
    homes = enumerate(record.tablets)
    return [(tablet, _TYPE, owner) for number, tablet in homes if record.cell_of(number) == cell]
