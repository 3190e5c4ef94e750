"""Searches a partition for timestamps, up to where its reader's view ends: bodies by the bounds in their indexes, then
pages, then one batch decoded in a thread.

Nothing is held over an await but offsets: bodies may go from the front meanwhile or be replaced, and a deleted topic's
go all at once.
"""

from functools import partial

from pqbroker.pq.log.batch_run import Run
from pqbroker.pq.log.body import TIMESTAMP_UNKNOWN
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.reading.time_index import TimedOffset, batches_from, first_record, latest_record
from pqbroker.storage.engine import BlobMissing
from pqbroker.storage.kv.commands import KeyMissing


class TimeSearch:
    """One question to one partition, by a reader that sees it up to `end_offset`."""

    __slots__ = ("_end_offset", "_partition", "_reader")

    def __init__(self, partition: Partition, reader: Reader, end_offset: int) -> None:
        self._partition = partition
        self._reader = reader
        self._end_offset = end_offset

    async def first_at(self, timestamp: int) -> TimedOffset | None:
        """The first record at or after the timestamp."""
        offset = self._partition.start_offset
        while offset < self._end_offset:
            offset = max(offset, self._partition.start_offset)
            revision = self._partition.bodies.revision
            try:
                found, offset = await self._look(timestamp, offset)
            except (KeyMissing, BlobMissing):
                if offset >= self._partition.start_offset and revision == self._partition.bodies.revision:
                    raise
            else:
                if found is not None:
                    return found
        return None

    async def latest(self) -> TimedOffset | None:
        """The record with the largest timestamp, the first of equals."""
        best: TimedOffset | None = None
        offset = self._partition.start_offset
        while offset < self._end_offset:
            offset = max(offset, self._partition.start_offset)
            revision = self._partition.bodies.revision
            try:
                if best is None or await self._bound(offset) > best.timestamp:
                    run = await self._run_at(offset)
                    best = await self._latest_in(run, offset, best)
                    offset = run.end_offset
                else:
                    offset = self._behind_blob(offset)
            except (KeyMissing, BlobMissing):
                if offset >= self._partition.start_offset and revision == self._partition.bodies.revision:
                    raise
        return best

    async def _look(self, timestamp: int, offset: int) -> tuple[TimedOffset | None, int]:
        """The record, if it is in the page at the offset, else where to look next."""
        if await self._bound(offset) < timestamp:
            return None, self._behind_blob(offset)
        run = await self._run_at(offset)
        return await self._first_in(run, timestamp, offset), run.end_offset

    async def _bound(self, offset: int) -> int:
        """No record of the blob at the offset is later than this."""
        bodies = self._partition.bodies
        number = bodies.find(offset)
        if number == len(bodies):
            return 1 << 62
        if bodies.stamps[number] == TIMESTAMP_UNKNOWN:
            return (await self._reader.runs.index(number)).max_timestamp
        return bodies.stamps[number]

    def _behind_blob(self, offset: int) -> int:
        bodies = self._partition.bodies
        number = bodies.find(offset)
        return bodies.ends[number] if number < len(bodies) else self._end_offset

    async def _run_at(self, offset: int) -> Run:
        run = await self._reader.runs.get(offset)
        stop, stop_offset = self._reader.runs.bounds(run, self._end_offset)
        is_cut = run is self._partition.head.run or stop_offset < run.end_offset
        return run.snapshot(stop, stop_offset) if is_cut else run

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
