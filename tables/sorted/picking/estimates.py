"""Cost of forced and periodic compaction, and the size from which an administrator has to agree (C.6, K.3)."""

from dataclasses import dataclass

from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.picking.due_times import is_due
from pqbroker.tables.sorted.picking.facts import TabletStores

COMPACTED_BYTES_PER_SECOND = 100_000_000
"""Bytes a second that one node compacts: the seed's rule of thumb."""
AGREED_BYTES_MAX = 20 * 10**12
AGREED_CHUNKS_MAX = 100_000
"""Size of a table that is forced without an administrator's word."""
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class CompactionEstimate:
    """Cost of compacting all of a table once."""

    compressed_bytes: int
    bytes_per_second: float
    """Rate of one node."""
    seconds: float

    @property
    def text(self) -> str:
        """Return it for people."""
        rate = self.bytes_per_second / _MEGABYTE
        return f"{self.compressed_bytes} bytes at {rate:.1f} MB/s a node take {self.seconds / 3600:.1f} hours"


def forced_estimate(
    compressed_bytes: int, nodes: int, bytes_per_second: int = COMPACTED_BYTES_PER_SECOND
) -> CompactionEstimate:
    """Return the cost of compacting all at once: size / nodes / rate of a node."""
    return CompactionEstimate(compressed_bytes, bytes_per_second, compressed_bytes / nodes / bytes_per_second)


def periodic_estimate(compressed_bytes: int, nodes: int, period_ms: int) -> CompactionEstimate:
    """Return the cost of compacting all once in each period of `period_ms` milliseconds."""
    seconds = period_ms / 1000
    return CompactionEstimate(compressed_bytes, compressed_bytes / nodes / seconds, seconds)


def due_bytes(tablet: TabletStores, now_ms: int) -> int:
    """Return the compressed bytes of chunks that are due already: a first period starts with all of them."""
    attributes = tablet.attributes
    due = (chunk for chunk in tablet.chunks() if is_due(tablet.tablet_id, chunk, attributes, now_ms))
    return sum(chunk.compressed_bytes for chunk in due)


def check_wave(compressed_bytes: int, chunks: int, *, is_agreed: bool) -> None:
    """Check that a table is small enough to be compacted all at once, or that an administrator has agreed.

    TableError NEEDS_AGREEMENT.
    """
    if is_agreed or (compressed_bytes <= AGREED_BYTES_MAX and chunks <= AGREED_CHUNKS_MAX):
        return
    text = (
        f"the table has {compressed_bytes} bytes in {chunks} chunks, and above {AGREED_BYTES_MAX} bytes or"
        f" {AGREED_CHUNKS_MAX} chunks an administrator has to agree to compact all of them"
    )
    cure = "Ask the administrator and give agreed, or remount a few tablets at a time."
    raise TableError("NEEDS_AGREEMENT", text, cure)
