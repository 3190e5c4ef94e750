"""Counters of the places where records pass: plain numbers, read when metrics are scraped."""

from collections.abc import Iterable

from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.kv.commands import INLINE, Command, Concat, Piece, Write


class Stopwatch:
    """Time for which something was so, in seconds of the caller's clock."""

    __slots__ = ("_since_s", "_total_s", "is_running")

    def __init__(self) -> None:
        self._total_s = 0.0
        self._since_s = 0.0
        self.is_running = False

    def start(self, now_s: float) -> None:
        """Start measuring: the state holds from now on; a measurement that runs continues."""
        if not self.is_running:
            self.is_running = True
            self._since_s = now_s

    def stop(self, now_s: float) -> None:
        """Stop measuring: the state holds no longer."""
        self._total_s = self.total(now_s)
        self.is_running = False

    def total(self, now_s: float) -> float:
        """Seconds in all, those that run now included."""
        return self._total_s + now_s - self._since_s if self.is_running else self._total_s


class ReadCounters:
    """Reads of one partition since its tablet started."""

    __slots__ = ("bytes_read", "reads", "reads_from_store")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.reads = 0
        self.reads_from_store = 0
        """Reads that the head and the node's cache could not answer whole."""


class WriteCounters:
    """Writes of one partition since its tablet started."""

    __slots__ = (
        "blob_bytes", "bytes_written", "cycles", "duplicate_bytes", "duplicates", "errors", "full", "quota_wait_ms",
        "waiting", "written",
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
        self.full = Stopwatch()
        """While more is in flight than `pqbroker.write.border.bytes` (A.8)."""
        self.waiting = Stopwatch()
        """While batches wait for a write cycle."""
        self.quota_wait_ms = 0
        """Pauses that quotas gave producers."""
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
