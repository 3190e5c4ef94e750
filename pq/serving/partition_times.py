"""Records of one partition by their timestamps, for ListOffsets and HTTP; the errors that clients see."""

from collections.abc import Awaitable, Callable

from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.query import READ_UNCOMMITTED, Isolation, visible_end
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.reading.time_index import TimedOffset
from pqbroker.pq.reading.time_search import TimeSearch
from pqbroker.pq.serving.served_reads import read_served


class PartitionTimes:
    """KafkaError CORRUPT_MESSAGE where a batch is damaged, NOT_LEADER_OR_FOLLOWER, and what `check_served` raises."""

    __slots__ = ("_check_served", "_partition", "_reader")

    def __init__(self, partition: Partition, reader: Reader, check_served: Callable[[], None]) -> None:
        self._partition = partition
        self._reader = reader
        self._check_served = check_served

    async def first_at(self, timestamp_ms: int, isolation: Isolation = READ_UNCOMMITTED) -> TimedOffset | None:
        """The first record at or after the timestamp that the reader may see, None when there is none."""
        return await self._search(isolation, lambda search: search.first_at(timestamp_ms))

    async def latest(self, isolation: Isolation = READ_UNCOMMITTED) -> TimedOffset | None:
        """The record with the largest timestamp that the reader may see, the first of equals; None without records."""
        return await self._search(isolation, lambda search: search.latest())

    async def _search(
        self, isolation: Isolation, find: Callable[[TimeSearch], Awaitable[TimedOffset | None]]
    ) -> TimedOffset | None:
        partition = self._partition

        def search() -> Awaitable[TimedOffset | None]:
            return find(TimeSearch(partition, self._reader, visible_end(partition, isolation)))

        return await read_served(self._check_served, search)
