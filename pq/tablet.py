"""The PQ tablet: the partitions of one topic that share one KV tablet, and their start."""

import asyncio
from collections.abc import Callable, Iterable

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.cache import NodeMemory
from pqbroker.pq.consumers import Consumers
from pqbroker.pq.loading import Stored, load, nothing_stored
from pqbroker.pq.partition import Partition
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable


class PqTablet:
    """One PQ tablet: the partitions `first`, `first + 1`, … of one topic. `by_reference=False`: merge by copying
    only.

    A partition whose rows cannot be read is refused: it is there, takes and gives nothing, says why, and nothing of it
    is deleted. The tablet's others are served.
    """

    def __init__(
        self,
        storage: TabletStorage,
        config: TopicConfig,
        memory: NodeMemory,
        settings: BrokerSettings,
        clock: Callable[[], int],
        *,
        by_reference: bool = True,
    ) -> None:
        self._storage = storage
        self._config = config
        self._memory = memory
        self._settings = settings
        self._clock = clock
        self._by_reference = by_reference
        self._kv = KeyValueTablet(
            storage, inline_bytes_max=settings.inline_bytes_max, clock=clock, counters=memory.key_values
        )
        self.partitions: dict[int, PartitionServer] = {}
        self._unreadable: StoredUnreadable | None = None
        """Why no partition of the tablet can be read."""
        self.start_s = 0.0
        """How long its start took."""

    @property
    def kv(self) -> KeyValueTablet:
        """What lies beneath, for administration; only to be looked at."""
        return self._kv

    async def start(self, indexes: Iterable[int]) -> None:
        """Recover the partitions from KV keys (A.16). Raises ShardLost."""
        time = asyncio.get_running_loop().time
        begun_s = time()
        try:
            await self._kv.start()
        except StoredUnreadable as cause:
            self._unreadable = cause
        for index in indexes:
            await self.add(index)
        self.start_s = time() - begun_s
        self._memory.starts.observe(self.start_s)
        self._storage.lost.add_done_callback(self._on_lost)

    async def add(self, index: int) -> PartitionServer:
        """Start serving a partition: what is stored of it, or an empty one; refused when it cannot be read."""
        if self._unreadable is not None:
            return self.refuse(index, self._unreadable)
        try:
            stored = await load(self._kv, index, self._storage.generation)
        except StoredUnreadable as cause:
            self._storage.found(cause)
            return self.refuse(index, cause)
        return self._serve(index, stored)

    def refuse(self, index: int, cause: StoredUnreadable) -> PartitionServer:
        """Have a partition that takes and gives nothing, because what is stored of it cannot be read."""
        server = self._serve(index, nothing_stored())
        server.refuse(cause)
        return server

    def _serve(self, index: int, stored: Stored) -> PartitionServer:
        settings = self._settings
        partition = Partition(
            index, self._storage.generation, self._config, stored.recovered, stored.meta, stored.producers,
            by_reference=self._by_reference,
        )  # fmt: skip
        consumers = Consumers(
            index, settings.partition_consumers_max, settings.offset_metadata_max_bytes, stored.consumers
        )
        server = PartitionServer(partition, consumers, self._kv, self._memory, settings, self._clock)
        self.partitions[index] = server
        return server

    def configure(self, config: TopicConfig, settings: BrokerSettings) -> None:
        self._config = config
        self._settings = settings
        for server in self.partitions.values():
            server.configure(config, settings)

    async def hold(self) -> None:
        """Write nothing more, for another instance to be started; reads are served on."""
        await asyncio.gather(*(server.hold() for server in self.partitions.values()))

    def hand_over(self, later: "PqTablet") -> None:
        """Let the next instance write what waits here, and end this one."""
        for index, server in self.partitions.items():
            server.hand_over(later.partitions[index])
        self.stop()

    def stop(self) -> None:
        """End this instance: what is asked from now on fails."""
        self._storage.lost.remove_done_callback(self._on_lost)
        for server in self.partitions.values():
            server.stop()

    def _on_lost(self, _: "asyncio.Future[ShardLost]") -> None:
        for server in self.partitions.values():
            server.stop()
