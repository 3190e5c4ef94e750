"""The PQ tablet: the partitions of one topic that share one KV tablet, and their starts."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pqbroker.pq.log.consumers import Consumers
from pqbroker.pq.log.partition import OfNode, Partition
from pqbroker.pq.log.partition_settings import PartitionSettings
from pqbroker.pq.log.start_state import StoredPartition
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.serving.loading import load, nothing_stored, renumber
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.partition_transactions import PartitionTransactions
from pqbroker.pq.serving.timestamps import NodeTime, Timestamps, without_scheme
from pqbroker.pq.serving.transacted_batches import BatchesPart, received_part
from pqbroker.pq.serving.watchers import Watchers
from pqbroker.pq.transactions.participants import SentRows
from pqbroker.pq.transactions.unfinished import Unfinished
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.kv.tablet_copy import TabletCopy
from pqbroker.storage.tablets.hosting import TabletPage, TabletSample
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable

_log = logging.getLogger(__name__)

NO_LEADER_EPOCH: Final = -1
"""Leader epoch of a partition whose cell is not open, where none is known."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The things that all PQ tablets of a node have in common. `clock`: milliseconds since 1970."""

    memory: NodeMemory
    clock: Callable[[], int]
    timestamps: Timestamps = field(default_factory=without_scheme)
    by_reference: bool = True
    """False: blobs are merged by copying only, the oracle of semantics A.6."""
    unfinished: Unfinished = field(default_factory=Unfinished)
    """Partitions with something of a transaction that is not finished."""


class PqTablet:
    """One PQ tablet: the partitions `indexes`, which follow one another, of one topic. `renewed` is called when other
    servers of theirs run, after a restart.

    A partition whose rows cannot be read is refused: it takes and gives nothing, says why, and nothing of it is
    deleted. The tablet's others are served.
    """

    def __init__(
        self,
        topic: str,
        indexes: Iterable[int],
        settings: PartitionSettings,
        share: NodeShare,
        renewed: Callable[[], None],
    ) -> None:
        self._topic = topic
        self._indexes = list(indexes)
        self._settings = settings
        self._share = share
        self._renewed = renewed
        self.partitions: dict[int, PartitionServer] = {}
        self._unreadable: StoredUnreadable | None = None
        """Damage for which every partition of the tablet is refused."""
        self._start_s = 0.0

    _storage: TabletStorage
    kv: KeyValueTablet
    """KV tablet below, for administration; callers must not change it."""

    async def start(self, storage: TabletStorage) -> None:
        """Load the partitions from KV keys (A.16); what waits at those of the instance before is theirs then.

        Raises ShardLost.
        """
        time = asyncio.get_running_loop().time
        begun_s = time()
        earlier, later = self.partitions, dict[int, PartitionServer]()
        try:
            await self._open(storage)
            for index in self._indexes:
                later[index] = await self._load(index)
            self.partitions = later
            if earlier:
                self._renewed()
            for index, server in earlier.items():
                server.hand_over(later[index])
        finally:
            for server in earlier.values():
                server.stop()
        self._start_s = time() - begun_s
        self._share.memory.starts.observe(self._start_s)

    def await_cell(self, storage: TabletStorage, generation: int | None = None) -> None:
        """The tablet's cell is not open: its partitions are lost until `start`. `storage` stands in and is lost too.
        `generation`: the last one that is known, which clients may know too; a lower epoch would be dropped by them."""
        self._storage = storage
        self.kv = self._key_values(storage)
        self.partitions = {index: self._lost(index) for index in self._indexes}
        for server in self.partitions.values():
            server.leader_epoch = NO_LEADER_EPOCH if generation is None else self._settings.epoch_base + generation

    async def add(self, index: int) -> None:
        """Serve one partition more: what is stored of it, or an empty one; refused when it is unreadable."""
        self.partitions[index] = await self._load(index)
        self._indexes.append(index)

    def participant(self, partition: int) -> PartitionTransactions | None:
        """Return a partition as a participant of transactions; None: the tablet has no such partition."""
        server = self.partitions.get(partition)
        if server is None:
            return None
        found = server.transactions
        found.name = f"{self._topic}-{partition}"
        return found

    async def part_of(self, sent: SentRows) -> BatchesPart:
        """Return batches that another node has sent, as `ReceivingTablet` says."""
        server = self.partitions.get(sent.participant.partition)
        if server is None or not server.is_loaded:
            raise CommitRefused(f"{self._topic}-{sent.participant.partition} is not open at this node; try again")
        return await received_part(server, sent.stored, self._share.clock)

    def configure(self, settings: PartitionSettings) -> list[Watchers]:
        """Return the watchers that have to be notified, as `PartitionServer.configure` does."""
        self._settings = settings
        return [each for one in self.partitions.values() if (each := one.configure(settings)) is not None]

    async def hold(self) -> None:
        """Writes that come from now on wait for the next start; a change that its administration waits for, and a
        commit of offsets, is refused so that its caller comes again. Reads are served."""
        await asyncio.gather(*(server.hold() for server in self.partitions.values()))

    async def stop(self) -> None:
        self.lose()

    def lose(self) -> None:
        """The cell is lost: what waits fails."""
        for server in self.partitions.values():
            server.stop()

    def copy_to(self, target: TabletStorage) -> TabletCopy:
        return TabletCopy(self.kv, target)

    def describe(self) -> TabletPage:
        return TabletPage(
            topic=self._topic,
            partitions=tuple(sorted(self.partitions)),
            size_bytes=sum(server.size_bytes for server in self.partitions.values()),
            kv=self.kv,
            start_s=self._start_s,
        )

    def samples(self) -> Iterable[TabletSample]:
        return (TabletSample("partitions", len(self.partitions)),)

    async def _open(self, storage: TabletStorage) -> None:
        self._storage = storage
        self._unreadable = None
        self.kv = self._key_values(storage)
        try:
            await self.kv.start()
        except StoredUnreadable as cause:
            self._unreadable = cause

    def _key_values(self, storage: TabletStorage) -> KeyValueTablet:
        memory, node = self._share.memory, self._settings.node
        return KeyValueTablet(
            storage, inline_bytes_max=node.inline_bytes_max, clock=self._share.clock, counters=memory.key_values
        )

    async def _load(self, index: int) -> PartitionServer:
        if self._storage.is_lost:
            return self._lost(index)
        if self._unreadable is not None:
            return self._refused(index, self._unreadable)
        try:
            first_offset = self._settings.first_offsets.get(index, 0)
            if self._settings.epoch_base:
                await renumber(self.kv, index)
            stored = await load(self.kv, index, self._epoch, first_offset)
        except StoredUnreadable as cause:
            self._storage.found(cause)
            return self._refused(index, cause)
        return self._server(index, stored)

    @property
    def _epoch(self) -> int:
        """The leader epoch of the partitions while this instance serves them."""
        return self._settings.epoch_base + self._storage.generation

    def _refused(self, index: int, cause: StoredUnreadable) -> PartitionServer:
        """Return a partition that refuses every request, since its rows are unreadable."""
        _log.error("%s-%d is not served: %s", self._topic, index, cause)
        server = self._server(index, nothing_stored())
        server.refuse(cause)
        return server

    def _lost(self, index: int) -> PartitionServer:
        """Return a partition whose cell is not open."""
        server = self._server(index, nothing_stored())
        server.stop()
        return server

    def _server(self, index: int, stored: StoredPartition) -> PartitionServer:
        settings, share = self._settings, self._share
        timestamps = share.timestamps
        of_node = OfNode(share.by_reference, timestamps.rule)
        partition = Partition(index, self._epoch, settings, stored, of_node)
        node = settings.node
        consumers = Consumers(index, node.partition_consumers_max, node.offset_metadata_max_bytes, stored.consumers)
        server = PartitionServer(partition, consumers, self.kv, share.memory, NodeTime(share.clock, timestamps))
        if stored.transactions is not None:
            server.transactions.take_stored(stored.transactions)
            share.unfinished.add(server.transactions.participant_id)
        return server
