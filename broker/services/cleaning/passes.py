"""Passes of the cleaner: those that run, the last ones that ended, and totals of a node."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PASSES_KEPT: Final = 100
PASS_LEFT: Final = (
    "stopped, since the partition is moved, frozen, unmounted, deleted or not compacted any more, or the node stops"
)
"""Failure of a pass that was cancelled; it counts as none."""
DEFECT: Final = "the cleaner failed; this is a defect, and the log of the broker has it"


class PassFailed(Exception):
    """A pass that ended early; the text says why."""


class PassStopped(Exception):
    """A pass that ended early because records of its partition are to stay, or are served elsewhere."""


@dataclass(slots=True)
class PassRecord:
    """One pass over one partition. Times in milliseconds since 1970, sizes in bytes."""

    topic: str
    partition: int
    reason: str
    begun_ms: int
    bodies: int
    """Bodies that it is to go through."""
    bytes_before: int
    """Bytes of these."""
    dirty_bytes: int
    """Bytes of those that no cleaning had reached before."""
    bound: int
    """Offset that it goes up to; less than at first where the memory for keys was full."""
    topic_id: bytes = b""
    ended_ms: int | None = None
    """Time of its end; None: it is under way."""
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    """Difference of the bodies that were replaced and those in their place."""
    bodies_replaced: int = 0
    bodies_written: int = 0
    keys: int = 0
    records: int = 0
    records_gone: int = 0
    tombstones_gone: int = 0
    keyless: int = 0
    """Records without a key: they stay for ever."""
    unread: Sequence[int] = ()
    """Offsets of batches that stay as they are, because they are damaged or too large."""
    failure: str = ""

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return the pass as it is shown; `now_ms` is the time up to which one under way is measured."""
        until = now_ms if self.ended_ms is None else self.ended_ms
        return {
            "topic": self.topic, "partition": self.partition, "reason": self.reason, "begun_ms": self.begun_ms,
            "ended_ms": self.ended_ms, "bound": self.bound, "bodies": self.bodies, "bytes_before": self.bytes_before,
            "dirty_bytes": self.dirty_bytes, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written,
            "bytes_freed": self.bytes_freed, "bytes_read_per_s": self._per_second(until),
            "bodies_replaced": self.bodies_replaced, "bodies_written": self.bodies_written, "keys": self.keys,
            "records": self.records, "records_gone": self.records_gone, "tombstones_gone": self.tombstones_gone,
            "records_without_key": self.keyless, "unread_batches": list(self.unread), "failure": self.failure,
        }  # fmt: skip

    def _per_second(self, until_ms: int) -> int:
        return round(1000 * self.bytes_read / max(until_ms - self.begun_ms, 1))


@dataclass(slots=True)
class CleanerCounters:
    """Totals since the start, of passes that ended well but for `failed` and `stopped`; and those of the worker
    processes."""

    done: int = 0
    failed: int = 0
    stopped: int = 0
    """Passes that ended early since their partition was moved, unmounted or deleted."""
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    """A pass that left more than it found counts as 0, so that the total never falls."""
    records_gone: int = 0
    tombstones_gone: int = 0
    workers_started: int = 0
    workers_lost: int = 0

    def count(self, record: PassRecord) -> None:
        """Count a pass that has ended; what one that failed has replaced stays so, and counts."""
        self.bytes_read += record.bytes_read
        self.bytes_written += record.bytes_written
        self.bytes_freed += max(record.bytes_freed, 0)
        if record.failure:
            self.failed += record.failure != PASS_LEFT
            self.stopped += record.failure == PASS_LEFT
            return
        self.done += 1
        self.records_gone += record.records_gone
        self.tombstones_gone += record.tombstones_gone


@dataclass(slots=True)
class PassHistory:
    """The last passes of a node that ended, the newest last."""

    ended: deque[PassRecord] = field(default_factory=lambda: deque(maxlen=PASSES_KEPT))

    def last_of(self, topic_id: bytes, partition: int) -> PassRecord | None:
        """Return the last pass over a partition; None: it is not known any more."""
        place = topic_id, partition
        return next((one for one in reversed(self.ended) if (one.topic_id, one.partition) == place), None)
