"""Plan of one round of group commit: index rows, and payloads placed in segments. Nothing is written here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.commit_log import HEADER_STAND_IN
from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.zero_sectors import (
    SECTOR_BYTES,
    Run,
    encode_runs,
    find_zero_sectors,
    may_have_zero_sectors,
)
from pqbroker.storage.disk.pools import Pool, Segment
from pqbroker.storage.disk.segments import encode_record
from pqbroker.storage.engine import (
    Batch,
    BlobCorrupt,
    BlobKey,
    Buffer,
    Caps,
    CommitRefused,
    IndexDamaged,
    Move,
)
from pqbroker.storage.turn_queue import Queued

_MAP_BYTES_TO_SPARE = 32
"""A row of 16 bytes lies in two sectors at most, and their being zeros changes two runs and the number of them."""


@dataclass(slots=True)
class RoundPlan:
    """A round: what goes to the index, and which of the commits in it are refused, by position."""

    number: int
    changes: IndexChanges = field(default_factory=IndexChanges)
    refused: dict[int, CommitRefused] = field(default_factory=dict)
    bytes: int = 0
    in_segments: set[int] = field(default_factory=set)
    """Positions of the commits that have a payload in a segment."""
    fresh: dict[BlobKey, Sequence[Buffer]] = field(default_factory=dict)
    """Blobs that this round stores."""
    behind: "RowsBehind | None" = None
    """The round's rows, where they stand behind its payload, since all of that is in one segment."""


@dataclass(frozen=True, slots=True)
class RowsBehind:
    """A round's encoded rows, and the map of the zero sectors of payload and rows, empty where none is zeros."""

    segment: Segment
    payload_bytes: int
    content: bytes
    zeros: bytes


class RoundPlanner:
    """Turns queued commits into a plan. Refuses what cannot be taken before anything of it is written."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        caps: Caps,
        flags: int,
        get: Callable[[list[bytes]], list[bytes | None]],
        read: Callable[[BlobKey, bytes], Buffer],
    ) -> None:
        self._pools = pools
        self._caps = caps
        self._flags = flags
        self._get = get
        self._read = read

    def plan(self, queued: Sequence[Queued], refused: Mapping[int, CommitRefused], number: int) -> RoundPlan:
        """Plan the commits that are not already refused. The pools' segments are placed but not written."""
        plan = RoundPlan(number, refused=dict(refused))
        if not refused and self._add_rows(queued, plan):
            return plan
        stored = self._stored(queued, plan)
        for position, (batch, _) in enumerate(queued):
            if position in plan.refused:
                continue
            refusal = self._refusal(batch, stored, plan)
            if refusal is not None:
                plan.refused[position] = refusal
                continue
            plan.bytes += batch.bytes
            self._add(batch, position, stored, plan)
        self._add_segments(plan)
        return plan

    def _add_segments(self, plan: RoundPlan) -> None:
        """The rows that change with every round of blobs: its segments', and its number."""
        changes = plan.changes
        for pool in self._pools.values():
            pool.retire_dead()
        behind = self._only_segment()
        at = 0
        for name, pool in self._pools.items():
            for segment in pool.touched.values():
                key = index_rows.segment_key(name, segment.generation, segment.sequence)
                if segment is behind:
                    at = changes.count
                if pool.is_emptied(segment):
                    changes.delete(key)
                else:
                    changes.put(key, index_rows.segment_row(segment.end, segment.live))
        changes.put(*index_rows.number_row(plan.number))
        if behind is not None:
            plan.behind = rows_behind(behind, changes, at)

    def _only_segment(self) -> Segment | None:
        """The segment that has the round's payload, if only one has, and it is not emptied by the same round."""
        pending = [(pool, segment) for pool in self._pools.values() for segment in pool.pending()]
        if len(pending) != 1:
            return None
        ((pool, segment),) = pending
        return None if pool.is_emptied(segment) else segment

    def _add_rows(self, queued: Sequence[Queued], plan: RoundPlan) -> bool:
        """Plan a round of rows alone, the usual one: no blob is looked up, no segment touched. Else False, and nothing
        is planned."""
        size = 0
        for batch, _ in queued:
            if batch.blobs or batch.dead or batch.ranges or batch.moves or batch.bytes > self._caps.batch_bytes_max:
                return False
            size += batch.bytes
        for pool in self._pools.values():
            if pool.touched:  # what a start found empty goes with the next round
                return False
        changes = plan.changes
        for batch, _ in queued:
            changes.add(index_rows.ROW, batch.rows)
        changes.put(*index_rows.number_row(plan.number))
        plan.bytes = size
        return True

    def _stored(self, queued: Sequence[Queued], plan: RoundPlan) -> dict[BlobKey, bytes | None]:
        """Index rows of every blob that the commits name; the plan keeps it true as it goes.

        A commit that names one whose row cannot be read is refused.
        """
        blobs = [item[0] for batch, _ in queued for item in batch.blobs]
        for batch, _ in queued:
            if batch.dead or batch.moves:
                blobs.extend(batch.dead)
                blobs.extend(move.blob for move in batch.moves)
        if not blobs:
            return {}
        try:
            return self._rows(blobs)
        except IndexDamaged:
            found: dict[BlobKey, bytes | None] = {}
        for position, (batch, _) in enumerate(queued):
            try:
                found.update(self._rows(_named(batch)))
            except IndexDamaged as damage:
                plan.refused[position] = CommitRefused(f"it changes a blob whose row cannot be read: {damage}")
        return found

    def _rows(self, blobs: Sequence[BlobKey]) -> dict[BlobKey, bytes | None]:
        return dict(zip(blobs, self._get([index_rows.BLOB + blob for blob in blobs]), strict=True))

    def _refusal(self, batch: Batch, stored: Mapping[BlobKey, bytes | None], plan: RoundPlan) -> CommitRefused | None:
        if batch.bytes > self._caps.batch_bytes_max:
            return CommitRefused(f"a batch of {batch.bytes} bytes; at most {self._caps.batch_bytes_max} are taken")
        for blob, buffers, size, pool in batch.blobs:
            if not 0 < size <= self._caps.blob_bytes_max or size != sum(map(len, buffers)):
                return CommitRefused(f"blob {blob.hex()} of {size} bytes; 1 to {self._caps.blob_bytes_max} are taken")
            if pool not in self._pools:
                return CommitRefused(f"there is no pool {pool!r}")
            row = stored[blob]
            if row is not None and not self._is_same(blob, row, buffers, size, plan):
                return CommitRefused(f"blob {blob.hex()} is stored with other content")
        for blob in batch.dead:
            row = stored[blob]
            if row is not None and not index_rows.is_known(row):
                return CommitRefused(f"the row of blob {blob.hex()} in the index is damaged or of a newer version")
        return None

    def _is_same(self, blob: BlobKey, row: bytes, buffers: Sequence[Buffer], size: int, plan: RoundPlan) -> bool:
        """Return True if a blob written again has the content it has already. Rare, so it may join and read."""
        if index_rows.blob_size(row) != size:
            return False
        try:
            content = b"".join(plan.fresh[blob]) if blob in plan.fresh else self._read(blob, row)
        except BlobCorrupt:
            return False
        return content == b"".join(buffers)

    def _add(self, batch: Batch, position: int, stored: dict[BlobKey, bytes | None], plan: RoundPlan) -> None:
        changes = plan.changes
        for lo, hi in batch.ranges:
            changes.delete_range(index_rows.ROW + lo, index_rows.ROW + hi)
        changes.add(index_rows.ROW, batch.rows)
        for blob, buffers, size, pool in batch.blobs:
            if stored[blob] is not None:
                continue
            if size < self._caps.index_blob_bytes_max:
                row = index_rows.inline_row(buffers)
            else:
                row = self._place(blob, buffers, size, pool, plan)
                plan.in_segments.add(position)
            changes.put(index_rows.BLOB + blob, row)
            stored[blob] = row
            plan.fresh[blob] = buffers
        for blob in batch.dead:
            self._delete_blob(blob, stored, plan)
        for move in batch.moves:
            if stored[move.blob] == move.row:
                self._move(move, stored, plan)
                plan.in_segments.add(position)

    def _place(self, blob: BlobKey, buffers: Sequence[Buffer], size: int, name: str, plan: RoundPlan) -> bytes:
        """Append a blob's record to a pool; its index row."""
        pool = self._pools[name]
        at = pool.place(blob, size)
        pool.active.buffers.extend(encode_record(blob, buffers, size, plan.number, self._flags))
        return index_rows.located_row(at)

    def _move(self, move: Move, stored: dict[BlobKey, bytes | None], plan: RoundPlan) -> None:
        """SegmentEmptying writes a blob again: it is where it was when it was read."""
        at = index_rows.location(move.row)
        assert at is not None, "a blob in the index is never moved"
        row = self._place(move.blob, [move.content], at.size, move.pool, plan)
        plan.changes.put(index_rows.BLOB + move.blob, row)
        stored[move.blob] = row
        plan.fresh[move.blob] = [move.content]
        self._pools[at.pool].forget(at)

    def _delete_blob(self, blob: BlobKey, stored: dict[BlobKey, bytes | None], plan: RoundPlan) -> None:
        row = stored[blob]
        if row is None:
            return
        plan.changes.delete(index_rows.BLOB + blob)
        stored[blob] = None
        plan.fresh.pop(blob, None)
        at = index_rows.location(row)
        if at is not None:
            self._pools[at.pool].forget(at)


def rows_behind(segment: Segment, changes: IndexChanges, at: int) -> RowsBehind:
    """Make room for the rows behind the payload. One of them, the change at `at`, says where the segment ends then.

    So the size of the map of zero sectors is chosen before the rows are final, with bytes to spare for what that row
    changes in it.
    """
    payload_bytes = segment.end - segment.durable_end
    segment.end += COMMIT_HEADER_BYTES + changes.encoded_bytes()
    changes.replace_value(at, index_rows.segment_row(segment.end, segment.live))
    content = changes.encoded()
    if not may_have_zero_sectors(content, segment.buffers):
        return RowsBehind(segment, payload_bytes, content, b"")
    begin, rows_at = segment.durable_end, segment.durable_end + payload_bytes
    in_payload = find_zero_sectors([*segment.buffers, HEADER_STAND_IN], begin)
    size = len(encode_runs([*in_payload, *_in_rows(content, rows_at, begin)])) + _MAP_BYTES_TO_SPARE
    segment.end += size
    changes.replace_value(at, index_rows.segment_row(segment.end, segment.live))
    content = changes.encoded()
    zeros = encode_runs([*in_payload, *_in_rows(content, rows_at, begin)], size)
    assert len(zeros) == size
    return RowsBehind(segment, payload_bytes, content, zeros)


def _in_rows(content: bytes, position: int, begin: int) -> list[Run]:
    """The zero sectors of the rows whose record is at a position of a round that begins at `begin`; the sector that the
    rows share with their header is none."""
    behind = position // SECTOR_BYTES - begin // SECTOR_BYTES
    return [(first + behind, count) for first, count in find_zero_sectors([HEADER_STAND_IN, content], position)]


def _named(batch: Batch) -> list[BlobKey]:
    """The blobs that a commit stores, deletes or moves."""
    return [*(item[0] for item in batch.blobs), *batch.dead, *(move.blob for move in batch.moves)]
