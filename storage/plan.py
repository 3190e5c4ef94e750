"""What one round of group commit will write: index rows, and payloads placed in segments. Plans, and writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pqbroker.storage import indexrows
from pqbroker.storage.engine import (
    Batch,
    BlobCorrupt,
    BlobKey,
    Buffer,
    Caps,
    CommitRefused,
    DiskFull,
    IndexDamaged,
    Move,
)
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.pools import Pool
from pqbroker.storage.segments import encode_record

Queued = tuple[Batch, Outcome[None]]


class IndexBatch(Protocol):
    """Changes of the index that become durable together, applied in the order given."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, begin: bytes, end: bytes) -> None: ...


@dataclass(slots=True)
class Plan:
    """A round: what goes to the index, and which of the commits in it are refused, by position."""

    changes: IndexBatch
    number: int
    refused: dict[int, CommitRefused] = field(default_factory=dict)
    bytes: int = 0
    in_segments: set[int] = field(default_factory=set)
    """Positions of the commits that have a payload in a segment."""
    fresh: dict[BlobKey, Sequence[Buffer]] = field(default_factory=dict)
    """Blobs that this round stores."""


class Planner:
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

    def plan(
        self, queued: Sequence[Queued], refused: Mapping[int, CommitRefused], number: int, changes: IndexBatch
    ) -> Plan:
        """Plan the commits that are not already refused. The pools' segments are placed but not written."""
        plan = Plan(changes, number, dict(refused))
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
        for name, pool in self._pools.items():
            pool.retire_dead()
            for segment in pool.touched.values():
                key = indexrows.segment_key(name, segment.generation, segment.sequence)
                if pool.is_emptied(segment):
                    changes.delete(key)
                else:
                    changes.put(key, indexrows.segment_row(segment.end, segment.live))
        changes.put(*indexrows.number_row(number))
        return plan

    def _stored(self, queued: Sequence[Queued], plan: Plan) -> dict[BlobKey, bytes | None]:
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
        return dict(zip(blobs, self._get([indexrows.BLOB + blob for blob in blobs]), strict=True))

    def _refusal(self, batch: Batch, stored: Mapping[BlobKey, bytes | None], plan: Plan) -> CommitRefused | None:
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
            if row is not None and not indexrows.is_known(row):
                return CommitRefused(f"the row of blob {blob.hex()} in the index is damaged or of a newer version")
        return None

    def _is_same(self, blob: BlobKey, row: bytes, buffers: Sequence[Buffer], size: int, plan: Plan) -> bool:
        """Whether a blob written again has the content it has already. Rare, so it may join and read."""
        if indexrows.blob_size(row) != size:
            return False
        try:
            content = b"".join(plan.fresh[blob]) if blob in plan.fresh else self._read(blob, row)
        except BlobCorrupt:
            return False
        return content == b"".join(buffers)

    def _add(self, batch: Batch, position: int, stored: dict[BlobKey, bytes | None], plan: Plan) -> None:
        changes = plan.changes
        for lo, hi in batch.ranges:
            changes.delete_range(indexrows.ROW + lo, indexrows.ROW + hi)
        for key, value in batch.rows:
            if value is None:
                changes.delete(indexrows.ROW + key)
            else:
                changes.put(indexrows.ROW + key, value)
        for blob, buffers, size, pool in batch.blobs:
            if stored[blob] is not None:
                continue
            if size < self._caps.index_blob_bytes_max:
                row = indexrows.inline_row(buffers)
            else:
                row = self._place(blob, buffers, size, pool, plan)
                plan.in_segments.add(position)
            changes.put(indexrows.BLOB + blob, row)
            stored[blob] = row
            plan.fresh[blob] = buffers
        for blob in batch.dead:
            self._delete_blob(blob, stored, plan)
        for move in batch.moves:
            if stored[move.blob] == move.row:
                self._move(move, stored, plan)
                plan.in_segments.add(position)

    def _place(self, blob: BlobKey, buffers: Sequence[Buffer], size: int, name: str, plan: Plan) -> bytes:
        """Append a blob's record to a pool; its index row."""
        pool = self._pools[name]
        at = pool.place(blob, size)
        pool.active.buffers.extend(encode_record(blob, buffers, size, plan.number, self._flags))
        return indexrows.located_row(at)

    def _move(self, move: Move, stored: dict[BlobKey, bytes | None], plan: Plan) -> None:
        """Compaction writes a blob anew: it is where it was when it was read."""
        at = indexrows.location(move.row)
        assert at is not None, "a blob in the index is never moved"
        row = self._place(move.blob, [move.content], at.size, move.pool, plan)
        plan.changes.put(indexrows.BLOB + move.blob, row)
        stored[move.blob] = row
        plan.fresh[move.blob] = [move.content]
        self._pools[at.pool].forget(at)

    def _delete_blob(self, blob: BlobKey, stored: dict[BlobKey, bytes | None], plan: Plan) -> None:
        row = stored[blob]
        if row is None:
            return
        plan.changes.delete(indexrows.BLOB + blob)
        stored[blob] = None
        plan.fresh.pop(blob, None)
        at = indexrows.location(row)
        if at is not None:
            self._pools[at.pool].forget(at)


def _named(batch: Batch) -> list[BlobKey]:
    """The blobs that a commit stores, deletes or moves."""
    return [*(item[0] for item in batch.blobs), *batch.dead, *(move.blob for move in batch.moves)]


def full(batch: Batch) -> DiskFull:
    """The refusal of a batch for which there is no room."""
    return DiskFull(f"no room for {batch.bytes} bytes: delete records, or other files on the disk, or enlarge it")
