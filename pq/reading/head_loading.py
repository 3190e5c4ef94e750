"""The content of a partition's head, brought into memory for a write that copies it or a read; dropping it is here too.

state     event                                       next
cold      load                                        loading: the cold blobs are read, and parsed in a thread
loading   load                                        loading, by the same task
loading   read, the cold blobs are the same           warm
loading   read, others are cold since                 loading: those are read
loading   a blob is gone, with the data before it     cold, without a failure: the waiting read looks again
loading   a blob is damaged, the store is lost        cold; the task fails with BlobCorrupt, ShardLost
warm      drop                                        cold
"""

import asyncio
from collections.abc import Callable

from pqbroker.pq.log.head import content_of
from pqbroker.pq.log.partition import Partition
from pqbroker.storage.engine import BlobMissing
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet


class HeadLoader:
    """Loads and drops the content of one head."""

    __slots__ = ("_kv", "_partition", "_task")

    def __init__(self, partition: Partition, kv: KeyValueTablet) -> None:
        self._partition = partition
        self._kv = kv
        self._task: asyncio.Task[None] | None = None

    def load(self, count_held: Callable[[], None]) -> "asyncio.Task[None]":
        """The load that runs, or a new one, which calls `count_held` when it has ended, however it did."""
        if self._task is None:  # the owner's method is kept by the task alone: else the two would be a cycle
            self._task = asyncio.get_running_loop().create_task(self._read(count_held))
        return self._task

    def drop(self) -> bool:
        """Forget the content, to be loaded when needed; not during a load."""
        if self._task is not None:
            return False
        self._partition.head.run.clear()
        return True

    async def _read(self, count_held: Callable[[], None]) -> None:
        try:
            head = self._partition.head
            while not head.is_warm:
                cold = head.cold
                base = head.run.base
                index = self._partition.index
                ranges = [(blob.key(index), 0, min(blob.size, base - blob.position)) for blob in cold]
                data = await self._kv.read(ranges)
                run = await asyncio.to_thread(content_of, cold, data)
                if (head.cold, head.run.base) == (cold, base):
                    head.run.prepend(run)
        except (KeyMissing, BlobMissing):
            return
        finally:
            self._task = None
            count_held()
