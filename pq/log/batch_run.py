"""Record batches end to end in memory, found by offset: the head's content, or a page of a body blob.

A run knows positions (bytes since the start of its log or blob) and a sparse index; batches are never decoded, only
their fixed headers are walked. Every batch lies whole in one buffer, except one that is larger than a blob may be.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from pqbroker.storage.engine import Buffer
from pqbroker.storage.file_regions import FileRegion

_WALK = Struct(">qi11xi").unpack_from
"""base_offset, batch_length, last_offset_delta of a batch header; `records.read_header` reads all of it and costs
three times as much."""
_SIZE = Struct(">8xi").unpack_from
_BASE_OFFSET = Struct(">q").unpack_from
_PREFIX_BYTES = 12
RUN_INDEX_GAP_BYTES = 1024
"""Least distance of index entries in memory: few headers are walked at the tail, for 24 bytes a KiB."""
OWN_BUFFER_BYTES_MIN = 32 * 1024
"""Batches below this are copied into an arena, so that a small one does not pin a large buffer (design 7)."""
_ARENA_BYTES_MIN = 4 * 1024
_ARENA_BYTES_MAX = 256 * 1024


class Batches(NamedTuple):
    """Whole batches, the answer of every read: in order, their bytes, and the offset to read at next."""

    buffers: Sequence[Buffer | FileRegion]
    """Bytes in memory, or parts of files if the query has `in_files`."""
    size: int
    next_offset: int

    def followed_by(self, more: "Batches") -> "Batches":
        """Return the batches of both, one behind the other."""
        return Batches((*self.buffers, *more.buffers), self.size + more.size, max(self.next_offset, more.next_offset))

    def in_memory(self) -> list[Buffer]:
        """The buffers, for a reader that asked for nothing in files."""
        found: list[Buffer] = []
        for buffer in self.buffers:
            assert not isinstance(buffer, FileRegion)
            found.append(buffer)
        return found


class Run:
    """A run of batches at positions [base, end). `stamps` are upper bounds of the timestamps up to the next index
    entry."""

    __slots__ = ("base", "end", "end_offset", "offsets", "positions", "stamps", "starts", "views")

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self.end_offset = 0
        self.starts: list[int] = []
        self.views: list[memoryview] = []
        self.offsets = array("q")
        self.positions = array("q")
        self.stamps = array("q")

    @classmethod
    def page(
        cls,
        buffers: Sequence[Buffer],
        base: int,
        index: tuple["array[int]", "array[int]", "array[int]"],
        end_offset: int,
    ) -> "Run":
        """A run over bytes read from a blob; `index` is positions, offsets, stamps, the first entry at `base`."""
        run = cls(base)
        for buffer in buffers:
            run.starts.append(run.end)
            run.views.append(memoryview(buffer))
            run.end += len(buffer)
        run.positions, run.offsets, run.stamps = index
        run.end_offset = end_offset
        return run

    @property
    def bytes_held(self) -> int:
        """Memory pinned: whole buffers where the run has more than half of one, else its share."""
        return sum(pinned_bytes(view) for view in self.views)

    def read(self, offset: int, bytes_max: int, one_at_least: bool, stop: int, stop_offset: int) -> Batches:
        """Whole batches from the one that holds `offset` (or follows the hole there), before position `stop`."""
        start = self.locate(offset, stop)
        if start >= stop:
            return Batches([], 0, stop_offset)
        cut = stop if start + bytes_max >= stop else self.cut(start, bytes_max, stop)
        if cut == start and one_at_least:
            cut = start + self.batch_bytes(start)
        if cut == start:
            return Batches([], 0, offset)
        return Batches(self.slices(start, cut), cut - start, stop_offset if cut >= stop else self.offset_at(cut))

    def locate(self, offset: int, stop: int) -> int:
        """Position of the first batch whose last offset is >= `offset`; `stop` when there is none before it."""
        offsets = self.offsets
        is_newest = bool(offsets) and offsets[-1] <= offset  # as readers at the end of the log want it
        entry = len(offsets) - 1 if is_newest else bisect_right(offsets, offset) - 1
        position = self.positions[entry] if entry >= 0 else self.base
        if entry >= 0 and offsets[entry] == offset:
            return min(position, stop)
        while position < stop:
            view, at = self._view_at(position)
            base, length, delta = _WALK(view, at)
            if base + delta >= offset:
                break
            position += length + _PREFIX_BYTES
        return position

    def cut(self, start: int, bytes_max: int, stop: int) -> int:
        """The last batch border <= start + bytes_max, at least `start`, at most `stop`."""
        limit = start + bytes_max
        if limit >= stop:
            return stop
        entry = bisect_right(self.positions, limit) - 1
        position = max(start, self.positions[entry]) if entry >= 0 else start
        while position < stop:
            following = position + self.batch_bytes(position)
            if following > limit:
                break
            position = following
        return position

    def slices(self, start: int, stop: int) -> list[Buffer]:
        """The bytes [start, stop), one view per underlying buffer."""
        starts, views = self.starts, self.views
        if starts and starts[-1] <= start < stop:  # the newest, or of a page that is one buffer
            return [views[-1][start - starts[-1] : stop - starts[-1]]]
        at = bisect_right(starts, start) - 1
        found: list[Buffer] = []
        while start < stop:
            begin = starts[at]
            at += 1
            limit = stop if at == len(starts) or starts[at] > stop else starts[at]
            found.append(views[at - 1][start - begin : limit - begin])
            start = limit
        return found

    def batch_bytes(self, position: int) -> int:
        view, at = self._view_at(position)
        size: int = _SIZE(view, at)[0] + _PREFIX_BYTES
        return size

    def offset_at(self, position: int) -> int:
        """Base offset of the batch at a batch border."""
        view, at = self._view_at(position)
        offset: int = _BASE_OFFSET(view, at)[0]
        return offset

    def batch(self, position: int) -> Buffer:
        """The whole batch at a batch border; joined when it does not lie in one buffer."""
        found = self.slices(position, position + self.batch_bytes(position))
        return found[0] if len(found) == 1 else b"".join(found)

    def snapshot(self, stop: int, stop_offset: int) -> "Run":
        """The run as it is now, up to the position `stop`, for a search that looks at it over an await."""
        copy = Run(self.base)
        copy.end, copy.end_offset = stop, stop_offset
        copy.starts, copy.views = self.starts[:], self.views[:]
        copy.positions, copy.offsets, copy.stamps = self.positions[:], self.offsets[:], self.stamps[:]
        return copy

    def batch_positions(self, start: int, stop: int) -> Sequence[int]:
        """Borders of all batches that begin in [start, stop); `start` is one."""
        found = []
        while start < stop:
            found.append(start)
            start += self.batch_bytes(start)
        return found

    def index_between(
        self, start: int, stop: int, first_offset: int, gap: int
    ) -> tuple["array[int]", "array[int]", "array[int]"]:
        """The index of [start, stop) thinned to one entry per `gap` bytes: positions since `start`, offsets, stamps."""
        positions, offsets, stamps = array("q"), array("q"), array("q")
        entry = max(bisect_right(self.positions, start) - 1, 0)
        while entry < len(self.positions) and self.positions[entry] < stop:
            at, stamp = self.positions[entry] - start, self.stamps[entry]
            if not positions:
                positions.append(0)
                offsets.append(first_offset)
                stamps.append(stamp)
            elif at - positions[-1] >= gap:
                positions.append(at)
                offsets.append(self.offsets[entry])
                stamps.append(stamp)
            elif stamp > stamps[-1]:
                stamps[-1] = stamp
            entry += 1
        return positions, offsets, stamps

    def _view_at(self, position: int) -> tuple[memoryview, int]:
        at = bisect_right(self.starts, position) - 1
        return self.views[at], position - self.starts[at]


class GrowingRun(Run):
    """A run that batches are appended to: the head's content. Appended bytes never move; views stay valid for ever."""

    __slots__ = ("_arena", "_arena_bytes", "_tail", "_used", "held")

    def __init__(self, base: int) -> None:
        super().__init__(base)
        self._arena: memoryview | None = None
        self._arena_bytes = 0
        self._used = 0
        self._tail = False
        """True while the last view ends in the arena."""
        self.held = 0
        """Bytes of memory pinned."""

    def append(self, batch: memoryview, offset: int, max_timestamp: int, new_entry: bool) -> None:
        """Add one batch: copied when it is small or the least part of its buffer, else kept as it is."""
        end = self.end
        if new_entry or end - self.positions[-1] >= RUN_INDEX_GAP_BYTES:
            self.positions.append(end)
            self.offsets.append(offset)
            self.stamps.append(max_timestamp)
        elif max_timestamp > self.stamps[-1]:
            self.stamps[-1] = max_timestamp
        size = len(batch)
        if size < OWN_BUFFER_BYTES_MIN or 2 * size <= len(batch.obj):  # type: ignore[arg-type]
            self._copy(batch, size)
        else:
            self.starts.append(end)
            self.views.append(batch)
            self._tail = False
            self.held += len(batch.obj)  # type: ignore[arg-type]
        self.end = end + size

    def truncate(self, end: int) -> None:
        """Forget the batches from the position `end` on, where an index entry begins; they were never readable."""
        entries = bisect_left(self.positions, end)
        del self.positions[entries:], self.offsets[entries:], self.stamps[entries:]
        while self.starts and self.starts[-1] >= end:
            self.starts.pop()
            self.views.pop()
        self.end = end
        self._tail = False
        self._count_held()

    def drop_before(self, position: int) -> None:
        """Forget the batches before a batch border."""
        entry = bisect_right(self.positions, position) - 1
        if position >= self.end:
            entry = len(self.positions)
        elif entry >= 0 and self.positions[entry] < position:
            self.offsets[entry] = self.offset_at(position)
            self.positions[entry] = position
        if entry > 0:
            del self.positions[:entry], self.offsets[:entry], self.stamps[:entry]
        views = bisect_right(self.starts, position) - 1
        if position >= self.end:
            views = len(self.starts)
            self._tail = False
        if views > 0:
            del self.starts[:views], self.views[:views]
        self.base = max(self.base, position)
        self._count_held()

    def prepend(self, run: Run) -> None:
        """Put content that was not in memory before what is."""
        assert run.end == self.base, (run.end, self.base)
        self.starts[:0] = run.starts
        self.views[:0] = run.views
        self.positions, self.offsets, self.stamps = (
            run.positions + self.positions, run.offsets + self.offsets, run.stamps + self.stamps,
        )  # fmt: skip
        self.base = run.base
        self._count_held()

    def clear(self) -> None:
        """Forget everything; positions continue from the end."""
        self._arena = None
        self._arena_bytes = self._used = 0
        self.drop_before(self.end)

    def _copy(self, batch: memoryview, size: int) -> None:
        arena = self._arena
        if arena is None or self._used + size > len(arena):
            self._arena_bytes = max(size, min(max(2 * self._arena_bytes, _ARENA_BYTES_MIN), _ARENA_BYTES_MAX))
            arena = self._arena = memoryview(bytearray(self._arena_bytes))
            self.held += self._arena_bytes
            self._used = 0
            self._tail = False
        used = self._used
        arena[used : used + size] = batch
        if not self._tail:
            self.starts.append(self.end)
            self.views.append(arena[used:])
            self._tail = True
        self._used = used + size

    def _count_held(self) -> None:
        buffers = {id(view.obj): len(view.obj) for view in self.views}  # type: ignore[arg-type]
        if self._arena is not None:
            buffers[id(self._arena.obj)] = len(self._arena)
        self.held = sum(buffers.values())


def pinned_bytes(view: memoryview) -> int:
    """Memory that a view keeps: its whole buffer if it is more than half of it, else the view's own bytes."""
    size, whole = len(view), len(view.obj)  # type: ignore[arg-type]
    return whole if 2 * size > whole else size
