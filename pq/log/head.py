"""The head of a partition: its newest, small blobs, by level, and their content in memory.

Positions are bytes since the partition's start in this process; the content may miss older blobs (after a restart, or
dropped for room): they are cold until loaded.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pqbroker.pq.log.batch_run import Batches, GrowingRun
from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.keys import OFFSET_MAX, head_key
from pqbroker.pq.log.levels import HEAD_BLOB_BYTES_MAX, Levels, Placement
from pqbroker.protocol.records import batches
from pqbroker.storage.engine import Buffer

REFERENCE_BYTES_MIN = 64 * 1024
"""Blobs are merged by reference when their pieces are this large on average, by copy below (design 8)."""


class HeadBlob(NamedTuple):
    """One stored head blob: records [offset, end), bytes at [position, position + size), in `pieces` stored pieces."""

    offset: int
    end: int
    position: int
    size: int
    pieces: int

    @property
    def is_large(self) -> bool:
        """Return True if the blob may be merged by reference."""
        return self.size >= REFERENCE_BYTES_MIN * self.pieces

    def key(self, partition: int) -> bytes:
        return head_key(partition, self.offset, self.end - self.offset)


class Head:
    """Blobs oldest first, their levels, their content, and when the newest was written."""

    __slots__ = ("blobs", "levels", "run", "size", "written_ms")

    def __init__(self, blobs: Sequence[HeadBlob] = (), written_ms: int = 0) -> None:
        self.blobs = list(blobs)
        self.levels = Levels(blob.size for blob in blobs)
        self.size = sum(blob.size for blob in blobs)
        self.run = GrowingRun(blobs[-1].position + blobs[-1].size if blobs else 0)
        self.written_ms = written_ms

    @property
    def is_warm(self) -> bool:
        """Return True if all content is in memory."""
        return not self.blobs or self.run.base <= self.blobs[0].position

    @property
    def cold(self) -> list[HeadBlob]:
        """The blobs whose content is not in memory, or only in part: a merge by reference may join new data to old."""
        return [blob for blob in self.blobs if blob.position < self.run.base]

    @property
    def end_position(self) -> int:
        """Return the position at which durable content ends; what lies behind belongs to the cycle in work."""
        return self.blobs[-1].position + self.blobs[-1].size if self.blobs else self.run.base

    def warm_offset(self, end_offset: int) -> int:
        """Return the offset from which on content is in memory; a gap before the head counts as the head's."""
        base = self.run.base
        if not self.blobs or base <= self.blobs[0].position:
            return 0
        return next((blob.offset for blob in self.blobs if blob.position >= base), end_offset)

    def read(self, offset: int, ends: tuple[int, int], bytes_max: int, one_at_least: bool) -> Batches | None:
        """Whole batches from an offset behind all bodies, as `Run.read`; None when they are not all in memory.

        `ends`: the offsets at which the reader's view ends, and durable content.
        """
        run, (end_offset, durable_offset) = self.run, ends
        if offset < self.warm_offset(durable_offset):
            return None
        stop = self.end_position
        if end_offset < durable_offset:
            return run.read(offset, bytes_max, one_at_least, run.locate(end_offset, stop), end_offset)
        return run.read(offset, bytes_max, one_at_least, stop, durable_offset)

    def add(self, blob: HeadBlob, placement: Placement) -> None:
        """Put a stored blob in the place of the newest `placement.merged` ones."""
        if placement.merged:
            del self.blobs[-placement.merged :]
        self.blobs.append(blob)
        self.levels.add(placement, blob.size)
        self.size = blob.position + blob.size - self.blobs[0].position

    def restart(self, blob: HeadBlob | None) -> None:
        """Begin again behind a closed head, with `blob` or nothing."""
        self.blobs = [blob] if blob else []
        self.size = blob.size if blob else 0
        self.levels = Levels([blob.size] if blob else ())
        self.run.drop_before(blob.position if blob else self.run.end)

    def drop_first(self, count: int) -> None:
        """Forget the oldest blobs."""
        del self.blobs[:count]
        self.size = sum(blob.size for blob in self.blobs)
        self.levels = Levels(blob.size for blob in self.blobs)
        start = self.blobs[0].position if self.blobs else self.run.end
        if start > self.run.base:
            self.run.drop_before(start)


def first_kept(bodies: Bodies, head: Head, offset: int) -> int:
    """Return the offset at which the first blob begins that has rows at `offset` or behind it; OFFSET_MAX when there is
    none."""
    kept = bodies.find(offset)
    if kept < len(bodies):
        return bodies.offsets[kept]
    return next((blob.offset for blob in head.blobs if blob.end > offset), OFFSET_MAX)


def head_keys(partition: int, blobs: Iterable[HeadBlob]) -> list[bytes]:
    """Keys of head blobs."""
    return [head_key(partition, offset, end - offset) for offset, end, _, _, _ in blobs]


class Layout(NamedTuple):
    """The destination of a cycle's data: into the head as `placement` says, or, with the whole head, into bodies that
    end before the batches `cuts`."""

    placement: Placement | None
    cuts: list[int]


def lay_out(levels: Levels, head_bytes: int, sizes: Sequence[int], low_watermark: int) -> Layout:
    """Decide where batches of `sizes` bytes go (A.5.5, K.1). Batches after the last cut become the new head as one
    blob."""
    new_bytes = sum(sizes)
    if head_bytes + new_bytes < low_watermark:
        return Layout(levels.place(new_bytes), [])
    cuts: list[int] = []
    filled = head_bytes
    for number, size in enumerate(sizes):
        if filled and filled + size > HEAD_BLOB_BYTES_MAX:
            cuts.append(number)
            filled = 0
        filled += size
    if filled >= low_watermark:
        cuts.append(len(sizes))
    return Layout(None, cuts)


def content_of(blobs: Sequence[HeadBlob], data: Sequence[Sequence[Buffer]]) -> GrowingRun:
    """The content of head blobs read from the store, indexed. Runs in a thread."""
    run = GrowingRun(blobs[0].position)
    for buffers in data:
        starts_blob = True
        for buffer in buffers:
            view = memoryview(buffer)
            for position, header in batches(view):
                batch = view[position : position + header.size_bytes]
                run.append(batch, header.base_offset, header.max_timestamp, starts_blob)
                starts_blob = False
    return run
