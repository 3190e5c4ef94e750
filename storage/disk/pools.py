"""A pool's segments as the commit thread sees them: where the next record goes, what is alive, what can be unlinked.

Segments and their transitions:
    absent  -> active    the first record that does not fit the one before; the directory is synced too
    active  -> sealed    full; or the cell was opened again (a later generation never appends to it)
    active  -> sealed    past half of its size with nothing alive
    sealed  -> emptied   its last live blob was deleted, or moved by SegmentEmptying
    emptied -> unlinked  that is durable, and the index has on disk all rows that stand in it
While the cell is not known to be sound (see `quarantine`) none is unlinked: a later start removes it as an orphan.
Everything a round changes here is either kept (`settle`) or undone (`undo`), so that a refused round leaves nothing.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pqbroker.storage.disk.directory import fsync_directory, sync_data
from pqbroker.storage.disk.free_space import StatVfs
from pqbroker.storage.disk.segments import Location, parse_segment_name, record_bytes, segment_name
from pqbroker.storage.engine import BlobKey, Buffer, PoolStats, SegmentFacts
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.quarantine import Quarantine

_BUFFERS_PER_WRITE = 1024
_SMALL_DISK_PART = 100
_WRITE_BYTES = 32 << 10
"""A call writes no more than this. The kernel makes page cache of the size of a call; above 32 KiB the pages are not
those just freed but fresh ones, which on a virtual machine the host must find first: 0.3 against 2 CPU-s/GB."""
_ALLOCATE_BYTES = 16 << 20
"""Room is taken from the file system in steps: a sync of a file that does not grow costs a fifth of the CPU."""


@dataclass(slots=True)
class Segment:
    """One segment: `end` bytes of records, of which `live` belong to blobs that exist. The commit thread's alone."""

    generation: int
    sequence: int
    end: int = 0
    live: int = 0
    file: int = -1
    allocated: int = 0
    buffers: list[Buffer] = field(default_factory=list)
    """Buffers that the present round appends from `durable_end` on."""
    durable_end: int = 0
    durable_live: int = 0
    last_rows: int = 0
    """The last round whose rows stand in it, behind its payload."""
    emptied_by: int = 0
    """The round that left nothing alive in it."""

    @property
    def key(self) -> tuple[int, int]:
        return self.generation, self.sequence


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of segments: how large they become, and from how many dead bytes in a hundred on one is emptied."""

    segment_bytes: int
    dead_percent: int
    statvfs: Callable[[Path], StatVfs]
    """Tells the space of a pool's file system."""


class Pool:
    """Appends to the active segment of one pool and counts what is alive in all of them."""

    def __init__(
        self,
        name: str,
        path: Path,
        generation: int,
        quarantine: Quarantine,
        limits: PoolLimits,
    ) -> None:
        self.name = name
        self.path = path
        self.segments: dict[tuple[int, int], Segment] = {}
        self.touched: dict[tuple[int, int], Segment] = {}
        """Segments that the present round changes."""
        self.emptied: list[Segment] = []
        """Segments to unlink once the rounds that emptied them are durable."""
        self.sparse: dict[tuple[int, int], Segment] = {}
        """Sealed segments that are mostly dead, for SegmentEmptying, which drops those that it cannot empty."""
        self.quarantine = quarantine
        self._unsynced: dict[tuple[int, int], Segment] = {}
        self._created = False
        """A segment file was created and its directory not yet synced."""
        self._generation = generation
        self._limits = limits
        self._active: Segment | None = None
        self._durable_active: Segment | None = None
        self._sequence = 0
        self._limit = limits.segment_bytes

    def path_of(self, segment: Segment) -> Path:
        return self.path / segment_name(segment.generation, segment.sequence)

    def place(self, blob: BlobKey, size: int) -> Location:
        """Choose where a blob's record goes; the caller adds its buffers to `active.buffers`."""
        needed = record_bytes(size)
        active = self._active
        if active is None or (active.end and active.end + needed > self._limit):
            active = self._next_segment()
        at = Location(self.name, active.generation, active.sequence, active.end, size)
        active.end += needed
        active.live += needed
        self.touched[active.key] = active
        return at

    def add(self, segment: Segment) -> None:
        """Load a segment of an earlier generation; it is sealed. An empty one goes with the next round."""
        assert segment.generation < self._generation
        self.segments[segment.key] = segment
        if segment.live == 0:
            self.touched[segment.key] = segment
        self._note_sparse(segment)

    def keep_rows(self, last_rows: Mapping[Path, int]) -> None:
        """Note in which segments rows stand that the index has not on disk, and up to which round."""
        for segment in self.segments.values():
            segment.last_rows = last_rows.get(self.path_of(segment), 0)

    @property
    def active(self) -> Segment:
        assert self._active is not None
        return self._active

    def forget(self, at: Location) -> None:
        """Count a blob's record as dead."""
        segment = self.segments.get((at.generation, at.sequence))
        if segment is not None:
            segment.live -= record_bytes(at.size)
            assert segment.live >= 0, f"{self.path_of(segment)} has {segment.live} live bytes"
            self.touched[segment.key] = segment

    def retire_dead(self) -> None:
        """Seal the active segment if nothing in it is alive and it is half full: it need not wait for its end."""
        active = self._active
        if active is not None and not active.live and active.end * 2 >= self._limit:
            self.touched[active.key] = active
            self._active = None

    def is_emptied(self, segment: Segment) -> bool:
        return segment.live == 0 and segment is not self._active

    def is_growing(self, segment: Segment) -> bool:
        """Return True if rounds to come may be written to the segment."""
        return segment is self._active

    def pending(self) -> list[Segment]:
        """The segments in which the present round stores blobs."""
        return [segment for segment in self.touched.values() if segment.buffers]

    def write(self) -> None:
        """Append what the round placed. Raises OSError; `undo` takes back what was written."""
        for segment in self.touched.values():
            if not segment.buffers:
                continue
            if segment.file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                segment.file = os.open(self.path_of(segment), flags, 0o644)
                self._created = True
            if segment.end > segment.allocated:
                self._allocate(segment)
            _write_all(segment.file, segment.buffers, segment.durable_end, segment.end)
            self._unsynced[segment.key] = segment

    def sync(self) -> None:
        """Make all that was written durable. A failure here is never retried."""
        for segment in self._unsynced.values():
            sync_data(segment.file)
        self._unsynced.clear()
        if self._created:
            fsync_directory(self.path)
            self._created = False

    def settle(self, number: int) -> None:
        """Round `number` is committed: keep its changes, close what is full, forget what is empty."""
        for segment in self.touched.values():
            segment.buffers = []
            segment.durable_end, segment.durable_live = segment.end, segment.live
            if self.is_emptied(segment):
                if segment.last_rows and segment.key in self._unsynced:
                    sync_data(segment.file)
                self._close(segment)
                segment.emptied_by = number
                self.emptied.append(segment)
            elif segment is not self._active and segment.file >= 0:
                if self._unsynced.pop(segment.key, None) is not None:
                    sync_data(segment.file)
                _seal(segment)
            if segment is not self._active:
                self._note_sparse(segment)
        self.touched.clear()
        self._durable_active = self._active

    def unlink_emptied(self, synced: int, flushed: int) -> None:
        """Give back the room of what was emptied; what has to stay, a start removes.

        Rounds up to `synced` are durable, and up to `flushed` the index has them on disk.
        """
        waiting: list[Segment] = []
        for segment in self.emptied:
            if segment.emptied_by > synced or segment.last_rows > flushed:
                waiting.append(segment)
            elif self.quarantine.is_sound:
                self.path_of(segment).unlink(missing_ok=True)
        self.emptied = waiting

    def undo(self) -> None:
        """The round is refused: truncate what it wrote, forget what it planned."""
        for segment in self.touched.values():
            segment.end, segment.live = segment.durable_end, segment.durable_live
            if segment.buffers and segment.file >= 0:
                os.ftruncate(segment.file, segment.end)
                segment.allocated = segment.end
            segment.buffers = []
            if segment.end == 0 and segment.generation == self._generation:
                self._close(segment)
                self.path_of(segment).unlink(missing_ok=True)
        self.touched.clear()
        self._active = self._durable_active

    def orphans(self) -> list[Path]:
        """Segment files that the index does not know: their round never became durable."""
        found = ((self.path / name, parse_segment_name(name)) for name in os.listdir(self.path))
        return [path for path, key in found if key is not None and key not in self.segments]

    def stats(self, colour: Colour) -> PoolStats:
        """Return the pool's space; a disk that has gone has 0 bytes."""
        try:
            space = self._limits.statvfs(self.path)
            free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        except OSError:
            free = total = 0
        segments = list(self.segments.values())
        return PoolStats(
            self.name,
            str(self.path.absolute()),
            free,
            total,
            sum(segment.live for segment in segments),
            sum(segment.end for segment in segments),
            colour,
        )

    def describe(self) -> Iterator[SegmentFacts]:
        """Yield every segment, the oldest first. May be called while the commit thread works."""
        active = self._active
        for key, segment in sorted(self.segments.copy().items()):
            yield SegmentFacts(self.name, segment_name(*key), segment.end, segment.live, segment is active)

    def close(self) -> None:
        for segment in self.segments.values():
            if segment.file >= 0:
                _seal(segment)

    def _note_sparse(self, segment: Segment) -> None:
        """Note whether a sealed segment is sparse: what is alive in it has become less, or is being learnt."""
        if segment.live and (segment.end - segment.live) * 100 >= self._limits.dead_percent * segment.end:
            self.sparse[segment.key] = segment
        else:
            self.sparse.pop(segment.key, None)

    def _next_segment(self) -> Segment:
        if self._active is not None:
            self.touched[self._active.key] = self._active
        space = self._limits.statvfs(self.path)
        self._limit = min(self._limits.segment_bytes, space.f_bavail * space.f_frsize // _SMALL_DISK_PART)
        self._sequence += 1
        self._active = Segment(self._generation, self._sequence)
        self.segments[self._active.key] = self._active
        return self._active

    def _allocate(self, segment: Segment) -> None:
        wanted = max(segment.end, min(segment.durable_end + _ALLOCATE_BYTES, self._limit))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(segment.file, segment.durable_end, wanted - segment.durable_end)
            segment.allocated = wanted

    def _close(self, segment: Segment) -> None:
        """Forget a segment that has nothing alive."""
        if segment.file >= 0:
            os.close(segment.file)
            segment.file = -1
        self._unsynced.pop(segment.key, None)
        del self.segments[segment.key]


def _seal(segment: Segment) -> None:
    """Close a segment, giving back the room that was taken for more."""
    if segment.allocated > segment.end:
        os.ftruncate(segment.file, segment.end)
    os.close(segment.file)
    segment.file = -1


def _write_all(file: int, buffers: list[Buffer], position: int, end: int) -> None:
    """Write the buffers end to end at [position, end), however short each call falls."""
    for some, wanted in _portions(buffers, position):
        written = os.pwritev(file, some, position)
        while written < wanted:
            position += written
            wanted -= written
            some = _after(some, written)
            written = os.pwritev(file, some, position)
        position += written
    assert position == end, f"{position} is not {end}: a blob's size is not that of its buffers"


def _portions(buffers: list[Buffer], position: int) -> Iterator[tuple[list[Buffer], int]]:
    """The buffers as slices for one call each, with their bytes; a call ends where `_WRITE_BYTES` of the file end."""
    some: list[Buffer] = []
    taken, room = 0, _WRITE_BYTES - position % _WRITE_BYTES
    for buffer in buffers:
        size, start = len(buffer), 0
        view = buffer if size < room else memoryview(buffer)
        while size - start >= room:
            some.append(view[start : start + room])
            start += room
            yield some, taken + room
            some, taken, room = [], 0, _WRITE_BYTES
        if start < size:
            some.append(view[start:] if start else view)
            taken += size - start
            room -= size - start
            if len(some) == _BUFFERS_PER_WRITE:
                yield some, taken
                some, taken = [], 0
    if some:
        yield some, taken


def _after(buffers: list[Buffer], count: int) -> list[Buffer]:
    """The buffers without their first `count` bytes."""
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []
