"""Placement of a cycle's batches: into a head blob, merged with newer ones, or with the whole head into bodies
(semantics A.5, A.6, K.1).

A batch larger than a blob may be is stored in parts: slices of its bytes under temporary keys, each a request of its
own, which the last request chains into the body together with the final slice (A.4, A.5). Readers never see less.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise

from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, BodyIndex, Columns, encode_index
from pqbroker.pq.log.head import REFERENCE_BYTES_MIN, Head, HeadBlob, Layout, head_keys, lay_out
from pqbroker.pq.log.keys import COUNT_MAX, body_key, head_key, part_key, part_range
from pqbroker.pq.log.levels import HEAD_BLOB_BYTES_MAX, Levels
from pqbroker.pq.log.merge import merge
from pqbroker.pq.log.write_cycle import ClosedBody, Cycle
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.commands import Concat, DeleteRange, Piece, Write

TIMESTAMP_BOUND_UNKNOWN = (1 << 63) - 1

Ends = Sequence[tuple[int, int]]
"""Position and offset behind each new batch of a cycle."""


class BlobLayout:
    """Plans the blobs of one partition's cycles. `by_reference=False` merges by copying only: the oracle of A.6."""

    __slots__ = ("_by_reference", "_head", "_index")

    def __init__(self, index: int, head: Head, *, by_reference: bool) -> None:
        self._index = index
        self._head = head
        self._by_reference = by_reference

    def needs_content(self, bytes_max: int, low_watermark: int) -> bool:
        """Return True if a cycle of `bytes_max` would copy or index head content that is not in memory."""
        head = self._head
        if head.is_warm:
            return False
        if head.size + bytes_max >= low_watermark:
            return True
        merged = head.levels.place(bytes_max).merged
        cold = [blob for blob in head.blobs[len(head.blobs) - merged :] if blob.position < head.run.base]
        return any(not (self._by_reference and blob.is_large) for blob in cold)

    def place(self, cycle: Cycle, ends: Ends, low_watermark: int) -> None:
        """Decide which blobs the new batches and the head become."""
        head = self._head
        if cycle.end_offset - (head.blobs[0].offset if head.blobs else cycle.first_offset) > COUNT_MAX:
            # Batches that count billions of records in few bytes: a body each, so that every count fits its key.
            self.close(cycle, ends, range(0 if head.blobs else 1, len(ends) + 1))
            return
        start = cycle.mark
        stop = ends[-1][0]
        has_gap = head.blobs and cycle.first_offset > head.blobs[-1].end
        sizes = [stop - start]
        if has_gap or head.size + sizes[0] >= low_watermark:
            sizes = [end - before for (before, _), (end, _) in pairwise([(start, 0), *ends])]
        if has_gap:
            layout = Layout(None, [0, *lay_out(Levels(), 0, sizes, low_watermark).cuts])
        else:
            layout = lay_out(head.levels, head.size, sizes, low_watermark)
        if layout.placement is None:
            self.close(cycle, ends, layout.cuts)
            return
        merged = head.blobs[len(head.blobs) - layout.placement.merged :]
        self._plan_head_blob(cycle, merged, (start, stop), cycle.first_offset)
        cycle.placement = layout.placement

    def close(self, cycle: Cycle, ends: Ends, cuts: Sequence[int]) -> None:
        """Plan bodies of the head and the batches before each of `cuts`, and a new head of the rest."""
        blobs: Sequence[HeadBlob] = self._head.blobs
        new_start, new_offset = cycle.mark, cycle.first_offset
        for cut in cuts:
            stop, end_offset = ends[cut - 1] if cut else (new_start, blobs[-1].end)
            start, offset = (blobs[0].position, blobs[0].offset) if blobs else (new_start, new_offset)
            columns = self._columns(blobs, start, stop, offset)
            stored = encode_index(columns, stop - start, end_offset)
            output = body_key(self._index, offset, end_offset - offset)
            if stop - start > HEAD_BLOB_BYTES_MAX:
                assert not blobs, "a large batch leaves the head a body of its own"
                self._plan_parts(cycle, (start, stop), (offset, output), stored)
            else:
                span = (max(new_start, start), stop)
                commands, _ = merge(self._index, blobs, self._head.run, span, (output, stored), self._by_reference)
                cycle.commands += commands
            index = BodyIndex(columns, stop - start, end_offset)
            cycle.bodies.append(ClosedBody(offset, end_offset, start, stop - start + len(stored), index))
            blobs, new_start = (), stop
            new_offset = end_offset if cut else new_offset
        if new_start < ends[-1][0]:
            self._plan_head_blob(cycle, (), (new_start, ends[-1][0]), new_offset)

    def wipe_leftovers(self, cycle: Cycle) -> None:
        """Have what an earlier large batch left deleted before anything else."""
        lo, hi = part_range(self._index)
        wipe = DeleteRange(lo, True, hi, False)
        if cycle.parts:
            cycle.parts.insert(0, wipe)
        else:
            cycle.commands.append(wipe)

    def _plan_parts(self, cycle: Cycle, span: tuple[int, int], named: tuple[int, bytes], index: bytes) -> None:
        """Plan the body `named` (offset, key) of one batch that no blob can hold."""
        start, stop = span
        offset, output = named
        run = self._head.run
        parts: list[bytes] = []
        while stop - start > HEAD_BLOB_BYTES_MAX:
            key = part_key(self._index, offset, len(parts))
            cycle.parts.append(Write(key, run.slices(start, start + HEAD_BLOB_BYTES_MAX), HEAD_BLOB_BYTES_MAX))
            parts.append(key)
            start += HEAD_BLOB_BYTES_MAX
        last: list[Buffer] = [*run.slices(start, stop), index]
        cycle.commands.append(Concat((*parts, Piece(last, stop - start + len(index))), output))

    def _columns(self, blobs: Sequence[HeadBlob], start: int, stop: int, offset: int) -> Columns:
        """The sparse index of a body; of blobs that are not in memory only where they begin is known."""
        run = self._head.run
        if start >= run.base:
            return run.index_between(start, stop, offset, BODY_INDEX_GAP_BYTES)
        cold = [blob for blob in blobs if blob.position < run.base]
        positions = array("q", [blob.position - start for blob in cold])
        offsets = array("q", [blob.offset for blob in cold])
        stamps = array("q", [TIMESTAMP_BOUND_UNKNOWN] * len(cold))
        if run.base < stop:
            loaded = run.index_between(run.base, stop, run.offset_at(run.base), BODY_INDEX_GAP_BYTES)
            positions.extend(position + run.base - start for position in loaded[0])
            offsets.extend(loaded[1])
            stamps.extend(loaded[2])
        return positions, offsets, stamps

    def _plan_head_blob(self, cycle: Cycle, merged: Sequence[HeadBlob], span: tuple[int, int], offset: int) -> None:
        """Plan the head blob of `merged` and the new batches in the positions `span`, the first of which has
        `offset`."""
        run = self._head.run
        start, stop = span
        pieces = 1
        if merged:
            start, offset = merged[0].position, merged[0].offset
        key = head_key(self._index, offset, cycle.end_offset - offset)
        if start >= run.base and (not merged or stop - start < REFERENCE_BYTES_MIN):  # so no blob of them is large
            cycle.puts.append((key, run.slices(start, stop), stop - start, False))
            if merged:
                cycle.gone += head_keys(self._index, merged)
        else:
            commands, pieces = merge(self._index, merged, run, span, (key, b""), self._by_reference)
            cycle.commands += commands
        cycle.head_blob = HeadBlob(offset, cycle.end_offset, start, stop - start, pieces)
