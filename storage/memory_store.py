"""Contents of the engine in memory: rows and blobs in key order, and what a commit would change of them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from sortedcontainers import SortedDict

from pqbroker.storage.engine import BLOB_BYTES_MAX, Batch, BlobKey, CommitRefused, DiskFull

MEMORY_BATCH_BYTES_MAX = 64 << 20


class StoredBefore(NamedTuple):
    """Contents of the store under the keys and ids that a commit was about to change; None: nothing."""

    rows: list[tuple[bytes, bytes | None]]
    blobs: list[tuple[BlobKey, bytes | None, str]]
    """Blobs, each with its pool."""


@dataclass(slots=True)
class MemoryStore:
    """Contents of the store: rows and blobs in key order, and how many bytes they are."""

    bytes_max: int
    pools: tuple[str, ...]
    rows: SortedDict = field(default_factory=SortedDict)
    blobs: SortedDict = field(default_factory=SortedDict)
    places: dict[BlobKey, str] = field(default_factory=dict)
    """Pool of each blob."""
    pool_bytes: Counter[str] = field(default_factory=Counter)
    row_bytes: int = 0

    @property
    def blob_bytes(self) -> int:
        return self.pool_bytes.total()

    @property
    def total_bytes(self) -> int:
        return self.blob_bytes + self.row_bytes

    def refusal(self, batch: Batch) -> CommitRefused | None:
        """Return why the batch cannot be taken; None when it can."""
        if batch.bytes > MEMORY_BATCH_BYTES_MAX:
            return CommitRefused(f"a batch of {batch.bytes} bytes; at most {MEMORY_BATCH_BYTES_MAX} are taken")
        for blob, buffers, size, pool in batch.blobs:
            if not 0 < size <= BLOB_BYTES_MAX or size != sum(map(len, buffers)):
                return CommitRefused(f"blob {blob.hex()} of {size} bytes; 1 to {BLOB_BYTES_MAX} are taken")
            if pool not in self.pools:
                return CommitRefused(f"there is no pool {pool!r}")
            if blob in self.blobs and self.blobs[blob] != b"".join(buffers):
                return CommitRefused(f"blob {blob.hex()} is stored with other content")
        if batch.blobs and self.total_bytes + batch.bytes > self.bytes_max:
            return DiskFull(f"{self.total_bytes} of {self.bytes_max} bytes are taken")
        return None

    def apply(self, batch: Batch) -> None:
        for lo, hi in batch.ranges:
            for key in list(self.rows.irange(lo, hi, inclusive=(True, False))):
                self._set(key, None)
        for key, value in batch.rows:
            self._set(key, value)
        for blob, buffers, _, pool in batch.blobs:
            if blob not in self.blobs:
                self._set_blob(blob, b"".join(buffers), pool)
        for blob in batch.dead:
            self._set_blob(blob, None, "")

    def before(self, batch: Batch) -> StoredBefore:
        """Return what applying the batch would change, as it is now."""
        keys = {key for key, _ in batch.rows}
        for lo, hi in batch.ranges:
            keys.update(self.rows.irange(lo, hi, inclusive=(True, False)))
        blobs = {blob for blob, _, _, _ in batch.blobs}.union(batch.dead)
        return StoredBefore(
            [(key, self.rows.get(key)) for key in keys],
            [(blob, self.blobs.get(blob), self.places.get(blob, "")) for blob in blobs],
        )

    def restore(self, before: StoredBefore) -> None:
        for key, value in before.rows:
            self._set(key, value)
        for blob, content, pool in before.blobs:
            self._set_blob(blob, content, pool)

    def copied(self) -> "MemoryStore":
        """Return another store with the same contents."""
        return MemoryStore(
            self.bytes_max, self.pools, self.rows.copy(), self.blobs.copy(), dict(self.places),
            Counter(self.pool_bytes), self.row_bytes,
        )  # fmt: skip

    def _set(self, key: bytes, value: bytes | None) -> None:
        old = self.rows.get(key)
        if old is not None:
            self.row_bytes -= len(key) + len(old)
        if value is not None:
            self.rows[key] = value
            self.row_bytes += len(key) + len(value)
        elif old is not None:
            del self.rows[key]

    def _set_blob(self, blob: BlobKey, content: bytes | None, pool: str) -> None:
        if blob in self.blobs:
            self.pool_bytes[self.places.pop(blob)] -= len(self.blobs.pop(blob))
        if content is not None:
            self.blobs[blob] = content
            self.places[blob] = pool
            self.pool_bytes[pool] += len(content)
