"""What is counted where records pass: plain numbers, read when somebody asks for metrics."""

from bisect import bisect_left
from collections.abc import Iterable

from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.kv_commands import INLINE, Command, Concat, Piece, Write

LATENCY_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts per bucket; bounds in seconds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


class PartitionCounters:
    """One partition since its tablet started."""

    __slots__ = (
        "blob_bytes", "bytes_read", "bytes_written", "cycles", "duplicate_bytes", "duplicates", "errors", "reads",
        "reads_from_store", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.written = 0
        """Records stored; `duplicates` are those acknowledged because they were stored before."""
        self.bytes_written = 0
        self.duplicates = 0
        self.duplicate_bytes = 0
        self.cycles = 0
        self.blob_bytes = 0
        """Bytes of blobs written for the records, those of merges included."""
        self.bytes_read = 0
        self.reads = 0
        self.reads_from_store = 0
        """Those of the reads that found not all in the head or the node's cache."""
        self.errors: dict[ErrorCode, int] = {}
        """Batches not stored."""

    def count_error(self, code: ErrorCode) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def blob_bytes(commands: Iterable[Command]) -> int:
    """Bytes that KV commands write as blobs."""
    found = 0
    for command in commands:
        if isinstance(command, Write):
            found += 0 if command.channel == INLINE else command.size
        elif isinstance(command, Concat):
            found += sum(item.size for item in command.inputs if isinstance(item, Piece))
    return found
