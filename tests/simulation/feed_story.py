"""A sorted table with a change feed on a simulated node: a story as that of any sorted table, which the feed tells."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.records import batches, decode_records
from pqbroker.storage.ids import SYSTEM_CELL
from tests.pq.rig import read
from tests.simulation.ledger import expect
from tests.simulation.sorted_story import KEYS, TABLETS, SortedStory

FEED: Final = "feed"
_READ_BYTES: Final = 1 << 20


class FedChange(NamedTuple):
    """One record of a feed."""

    key: Any
    value: Any


async def changes_of(partition: PartitionServer) -> Sequence[FedChange]:
    """Return all records of a partition, as a consumer reads them."""
    found: list[FedChange] = []
    offset = partition.start_offset
    while offset < partition.end_offset:
        some = await read(partition, offset, _READ_BYTES)
        found += _decoded(b"".join(some.in_memory()), offset)
        offset = some.next_offset
    return found


def _decoded(content: bytes, offset: int) -> Iterator[FedChange]:
    for position, header in batches(content):
        for record in decode_records(memoryview(content)[position : position + header.size_bytes]):
            if record.offset >= offset:
                yield FedChange(json.loads(record.key or b""), json.loads(record.value or b""))


class FeedStory(SortedStory):
    """Its table has a feed from its start."""

    async def create(self, **attributes: Any) -> None:
        await super().create(**{"changes": FEED, **attributes})

    def partition(self, index: int) -> PartitionServer:
        found = self.node.node.cell.current.topics.partition(FEED, index)
        assert found is not None
        return found

    async def settle(self) -> None:
        """Have partitions follow their tablets, as a node does all the time, and wait as any story."""
        while not (self.node.is_up and self.node.owner.is_open):  # noqa: ASYNC110 (a state of the node's)
            await asyncio.sleep(0.01)
        await self._do(lambda _: self.node.owner.renew())
        await super().settle()

    async def restart_partition(self, index: int) -> None:
        topic = self.node.node.cell.current.topics.get(FEED)
        assert topic is not None
        tablet_id = topic.record.tablets[index]
        await self._do(lambda _: self.node.owner.restart_tablet(tablet_id))

    async def move_partition(self, index: int, place: int) -> None:
        """Have a partition live in another cell, by its place among them; its tablet follows."""
        opened = self.node.owner.current
        topic = opened.topics.get(FEED)
        assert topic is not None
        cells = [SYSTEM_CELL, *sorted(opened.hive.cells)]
        owner, tablet_id = opened.topics.owner_of(topic), topic.record.tablets[index]
        await self._do(lambda _: opened.others.move_tablet(owner, tablet_id, cells[place % len(cells)]))

    async def verify(self) -> None:
        """Compare the feed with the books, too: each change once, in the order of the commits, in the tablet's
        partition."""
        await super().verify()
        for index in range(TABLETS):
            found = await changes_of(self.partition(index))
            stamps = [change.value["timestamp"] for change in found]
            expect(stamps == sorted(stamps), f"partition {index} has timestamps {stamps}")
            told = [(change.key["id"], change.value["timestamp"]) for change in found]
            expect(len({*told}) == len(told), f"partition {index} has a change twice: {told}")
            own = range(index * KEYS // TABLETS, (index + 1) * KEYS // TABLETS)
            wanted = {(key, stamp) for key in own for stamp in self.book.timestamps(key)}
            expect({*told} == wanted, f"partition {index} and the books differ by {({*told}) ^ wanted}")
            for change in found:
                self._check(change)

    def _check(self, change: FedChange) -> None:
        key, stamp = change.key["id"], change.value["timestamp"]
        for row, at in ((change.value["before"], stamp - 1), (change.value["after"], stamp)):
            expect(row is None or row["id"] == key, f"key {key} has a change of {row}")
            self.book.check(key, at, row)
