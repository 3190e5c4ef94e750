"""What is counted where records pass: plain numbers, read when somebody asks for metrics."""

from collections.abc import Iterable

from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.kv_commands import INLINE, Command, Concat, Piece, Write


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
