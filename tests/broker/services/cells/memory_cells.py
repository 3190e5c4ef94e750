"""A node's cells in memory: the system cell, and the cells 1 and 2 of bundle b."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topic_owner import TopicOwner
from pqbroker.storage.bundles.bundle import new_bundle
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.faults import Faults
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.hosting import TabletHost
from tests.pq.rig import START_MS, read_all

ONE, TWO = CellId(1), CellId(2)
CONFIG = {"pq.bundle": "b", "pq.partitions.per.tablet": "1"}


class MemoryCells:
    """One opening after the other, each over what the one before made durable."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(1 << 26)
        self.opened: OpenCell

    async def open(self) -> None:
        self.opened = await open_cell(self.engine, BrokerSettings(), lambda: START_MS)

    async def close(self) -> None:
        for end in (self.opened.stop, self.opened.cell.close):
            with suppress(ShardLost):
                await end()

    async def reopen(self) -> None:
        """As after a kill."""
        await self.close()
        self.faults(CellId(0)).clear()
        await self.open()

    def faults(self, cell: CellId) -> Faults:
        return self.engine_of(cell).faults

    def engine_of(self, cell: CellId) -> MemoryEngine:
        return self.engine.sibling(str(cell), must_exist=False) if cell else self.engine

    def host(self, cell: CellId) -> TabletHost:
        host = self.opened.cells.host(cell)
        assert host is not None
        return host

    @property
    def topic(self) -> Topic:
        """The topic t."""
        topic = self.opened.topics.get("t", or_static=True)
        assert topic is not None
        return topic

    @property
    def owner(self) -> TopicOwner:
        """The topic t, as the owner of its tablets."""
        return self.opened.topics.owner_of(self.topic)

    def partition(self, index: int = 0) -> PartitionServer:
        return self.topic.partitions[index]

    async def holds(self, cell: CellId, tablet_id: TabletId) -> bool:
        """Return True if the cell has the tablet, or a copy of it, once all is removed that is to be."""
        await self.host(cell).reclaimed()
        return tablet_id in self.host(cell).cell.tablets()

    async def values(self, index: int = 0) -> list[bytes | None]:
        return [value for _, value in await read_all(self.partition(index))]


Cells = TypeVar("Cells", bound=MemoryCells)


@asynccontextmanager
async def memory_cells(cells: Cells) -> AsyncIterator[Cells]:
    await cells.open()
    try:
        await cells.opened.hive.create_bundle(new_bundle("b", {}, ""))
        for _ in (ONE, TWO):
            await cells.opened.others.create("b")
        yield cells
    finally:
        await cells.close()
