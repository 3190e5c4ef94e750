"""Searches a partition for timestamps: bodies by the bounds in their indexes, then pages, then one batch decoded in a
thread.

Nothing is held over an await but offsets: bodies may go from the front meanwhile, and a deleted topic's all at once.
"""

from functools import partial

from pqbroker.pq.body import TIMESTAMP_UNKNOWN
from pqbroker.pq.partition import Partition
from pqbroker.pq.reader import Reader
from pqbroker.pq.run import Run
from pqbroker.pq.timeindex import TimedOffset, batches_from, first_record, latest_record
from pqbroker.storage.engine import BlobMissing
from pqbroker.storage.kv_commands import KeyMissing


class TimeSearch:
    """One question to one partition."""

    __slots__ = ("_partition", "_reader")

    def __init__(self, partition: Partition, reader: Reader) -> None:
        self._partition = partition
        self._reader = reader

    async def first_at(self, timestamp: int) -> TimedOffset | None:
        """The first record at or after the timestamp."""
        offset = self._partition.start_offset
        while offset < self._partition.end_offset:
            offset = max(offset, self._partition.start_offset)
            try:
                if await self._bound(offset) >= timestamp:
                    run = await self._run_at(offset)
                    found = await self._first_in(run, timestamp, offset)
                    if found is not None:
                        return found
                    offset = run.end_offset
                else:
                    offset = self._behind_blob(offset)
            except (KeyMissing, BlobMissing):
                if offset >= self._partition.start_offset:
                    raise
        return None

    async def latest(self) -> TimedOffset | None:
        """The record with the largest timestamp, the first of equals."""
        best: TimedOffset | None = None
        offset = self._partition.start_offset
        while offset < self._partition.end_offset:
            offset = max(offset, self._partition.start_offset)
            try:
                if best is None or await self._bound(offset) > best.timestamp:
                    run = await self._run_at(offset)
                    best = await self._latest_in(run, offset, best)
                    offset = run.end_offset
                else:
                    offset = self._behind_blob(offset)
            except (KeyMissing, BlobMissing):
                if offset >= self._partition.start_offset:
                    raise
        return best

    async def _bound(self, offset: int) -> int:
        """No record of the blob at the offset is later than this."""
        bodies = self._partition.bodies
        number = bodies.find(offset)
        if number == len(bodies):
            return 1 << 62
        if bodies.stamps[number] == TIMESTAMP_UNKNOWN:
            return (await self._reader.index(number)).max_timestamp
        return bodies.stamps[number]

    def _behind_blob(self, offset: int) -> int:
        bodies = self._partition.bodies
        number = bodies.find(offset)
        return bodies.ends[number] if number < len(bodies) else self._partition.end_offset

    async def _run_at(self, offset: int) -> Run:
        head = self._partition.head
        run = await self._reader.run_at(offset)
        return run.snapshot(head.end_position, self._partition.end_offset) if run is head.run else run

    async def _first_in(self, run: Run, timestamp: int, offset: int) -> TimedOffset | None:
        for batch in batches_from(run, run.end, timestamp, offset):
            found = await self._reader.decode(partial(first_record, batch, timestamp, offset))
            if found is not None:
                return found
        return None

    async def _latest_in(self, run: Run, offset: int, best: TimedOffset | None) -> TimedOffset | None:
        above = -(1 << 62) if best is None else best.timestamp + 1
        for batch in batches_from(run, run.end, above, offset):
            found = await self._reader.decode(partial(latest_record, batch, offset))
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best
