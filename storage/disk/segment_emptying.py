"""Empties mostly dead segments in the background: what is alive in them moves to the active segment of their pool.

    idle --a segment is dead enough--> emptying --read to its end--> idle; the commit of its last move unlinks it
                                           |--no room, no file left-> idle, for a while
                                           |-----damaged-----------> idle; this segment is left as it is

While a part of the cell cannot be read nothing is moved. Reading happens in a reading thread, a portion at a time; a
move is a commit like any other, and changes the index only where the blob is still where it was read. A crash at any
point leaves each blob in its old place or the new.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.pools import Pool, Segment
from pqbroker.storage.disk.segments import Location, RecordHeader, SegmentFile, read_range, walk
from pqbroker.storage.engine import Batch, BlobCorrupt, CommitRefused, IndexDamaged, Move, ShardLost

_log = logging.getLogger(__name__)
_PORTION_BYTES = 4 << 20
"""Read and written at once; a blob that is larger, alone."""
_PORTION_RECORDS = 1024
_REFUSED_LOOKS = 5
"""Looks after which a segment is tried again that found no room, or no file left to open it."""


@dataclass(frozen=True, slots=True)
class EmptyingPace:
    """`bytes_per_second`: moved at most, 0 for nothing at all; `dead_percent`: of a segment, before it is emptied."""

    bytes_per_second: int = 32 << 20
    dead_percent: int = 50
    look_seconds: float = 1.0


DEFAULT_PACE = EmptyingPace()


@dataclass(frozen=True, slots=True)
class _Portion:
    """Blobs that are alive in a stretch of a segment, and where the next stretch begins: None at the segment's end."""

    moves: list[Move]
    size: int
    following: int | None


_NOTHING = _Portion([], 0, None)


class SegmentEmptying:
    """The segment emptying of one open cell. `run` ends with the shard."""

    def __init__(
        self,
        pools: Sequence[Pool],
        get: Callable[[list[bytes]], list[bytes | None]],
        commit: Callable[[Batch], Awaitable[None]],
        in_thread: "Callable[..., Awaitable[_Portion]]",
        pace: EmptyingPace,
    ) -> None:
        self.moved_bytes = 0
        self._pools = pools
        self._get = get
        self._commit = commit
        self._in_thread = in_thread
        self._pace = pace

    async def run(self) -> None:
        """Look from time to time, and empty what is dead enough."""
        try:
            while True:
                found = self._sparsest()
                if found is None:
                    await asyncio.sleep(self._pace.look_seconds)
                else:
                    await self._empty(*found)
        except (ShardLost, IndexDamaged):
            return

    def _sparsest(self) -> tuple[Pool, Segment] | None:
        """The segment that gives back the most for what must be moved."""
        found = [(pool, segment) for pool in self._pools for segment in list(pool.sparse.values())]
        return min(found, key=lambda item: item[1].live / item[1].end, default=None)

    async def _empty(self, pool: Pool, segment: Segment) -> None:
        position: int | None = 0
        while position is not None and pool.quarantine.is_sound:
            try:
                portion = await self._in_thread(self._read, pool, segment, position)
                await self._move(portion)
            except (CommitRefused, OSError) as refusal:
                _log.info("a mostly dead segment is emptied later, its move was refused: %s", refusal)
                await asyncio.sleep(_REFUSED_LOOKS * self._pace.look_seconds)
                return
            await asyncio.sleep(portion.size / self._pace.bytes_per_second)
            position = portion.following
        pool.sparse.pop(segment.key, None)  # emptied; or damaged, and tried again when more of it dies

    async def _move(self, portion: _Portion) -> None:
        if portion.moves:
            batch = Batch()
            batch.moves = portion.moves
            batch.bytes = portion.size
            await self._commit(batch)
            self.moved_bytes += portion.size

    def _read(self, pool: Pool, segment: Segment, position: int) -> _Portion:
        """Return what is alive from `position` on, in a reading thread. OSError when the segment cannot be opened
        now."""
        path = str(pool.path_of(segment))
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return _NOTHING  # its last blob was deleted meanwhile
        try:
            return self._alive(SegmentFile(file), pool.name, segment, position, path)
        except OSError as failure:
            _log.error("%s is not emptied: %s", path, failure)
            return _NOTHING
        finally:
            os.close(file)

    def _alive(self, file: SegmentFile, pool: str, segment: Segment, position: int, path: str) -> _Portion:
        records, following = _records(file.file, position, segment.end)
        rows = self._get([index_rows.BLOB + header.blob for _, header in records])
        moves: list[Move] = []
        size = 0
        for (start, header), row in zip(records, rows, strict=True):
            at = Location(pool, segment.generation, segment.sequence, start, header.size)
            if row is None or row != index_rows.located_row(at):
                continue
            if moves and size + at.size > _PORTION_BYTES:
                return _Portion(moves, size, start)
            try:
                content = read_range(file, header.blob, at, 0, at.size, path)
            except BlobCorrupt as corrupt:
                _log.error("a damaged blob stays in its mostly dead segment: %s", corrupt)
                continue
            moves.append(Move(header.blob, row, content, pool))
            size += at.size
        is_end = following >= segment.end or following == position
        return _Portion(moves, size, None if is_end else following)


def _records(file: int, position: int, end: int) -> tuple[list[tuple[int, RecordHeader]], int]:
    """Some records from `position` on, and where the next one begins: `position` itself when that one is damaged."""
    found: list[tuple[int, RecordHeader]] = []
    for start, header in walk(file, position):
        if start >= end or len(found) == _PORTION_RECORDS:
            break
        found.append((start, header))
        position = start + header.record_bytes
    return found, position
