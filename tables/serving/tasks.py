"""Tasks of background work: those that run, with their reasons and amounts; the last that ended; totals."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ENDED_KEPT: Final = 100
FLUSH: Final = "flush"
SPLIT, MERGE = "split", "merge"
"""Changes of partitions, which move no bytes."""
TASK_LEFT: Final = "stopped, since the tablet is unmounted, moved or deleted, or the node stops"
"""Failure of a task that was cancelled; it counts as none."""


class Staging(Protocol):
    """Work that stages pieces of chunks."""

    bytes_written: int


@dataclass(slots=True)
class TaskRecord:
    """One task. Times in milliseconds since 1970, sizes in bytes."""

    kind: str
    table: str
    tablet_id: int
    reason: str
    inputs: Sequence[int]
    """Numbers of the store, or of the chunks, that it reads."""
    begun_ms: int
    input_bytes: int = 0
    """Bytes that it will read."""
    number: int = 0
    outputs: Sequence[int] = ()
    ended_ms: int | None = None
    """Time of its end; None: it is under way."""
    staging: Staging | None = None
    """Work that it does, while it is under way."""
    bytes_read: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    rows_written: int = 0
    failure: str = ""

    def document(self, now_ms: int) -> dict[str, Any]:
        """Return the task as it is shown; `now_ms` is the time up to which one under way is measured."""
        written = self.bytes_written if self.staging is None else self.staging.bytes_written
        until = now_ms if self.ended_ms is None else self.ended_ms
        return {
            "task": self.number, "kind": self.kind, "table": self.table, "tablet_id": self.tablet_id,
            "reason": self.reason, "inputs": list(self.inputs), "outputs": list(self.outputs),
            "begun_ms": self.begun_ms, "ended_ms": self.ended_ms, "input_bytes": self.input_bytes,
            "bytes_read": self.bytes_read, "bytes_written": written,
            "bytes_per_s": round(1000 * written / max(until - self.begun_ms, 1)),
            "rows_read": self.rows_read, "rows_written": self.rows_written, "failure": self.failure,
        }  # fmt: skip


@dataclass(slots=True)
class KindTotals:
    """Totals of one kind; sizes are those of the tasks that ended well."""

    done: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rows_written: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Tasks that ended well, by the reason why they were picked."""


class TaskTotals(dict[str, KindTotals]):
    """Totals of the tasks of a tablet, or of a node, by kind."""

    def count(self, record: TaskRecord) -> None:
        """Count a task that has ended."""
        totals = self.setdefault(record.kind, KindTotals())
        if record.failure:
            totals.failed += 1
            return
        totals.done += 1
        totals.reasons[record.reason] += 1
        totals.bytes_read += record.bytes_read
        totals.bytes_written += record.bytes_written
        totals.rows_written += record.rows_written


def amplification_of(every: Iterable[TaskTotals]) -> dict[str, Any]:
    """Return the rows and bytes that flushes wrote, the bytes that other tasks wrote again, and the ratio of these: the
    write amplification (C.2)."""
    rows = flushed = rewritten = 0
    for totals in every:
        for kind, of_kind in totals.items():
            if kind == FLUSH:
                rows += of_kind.rows_written
                flushed += of_kind.bytes_written
            else:
                rewritten += of_kind.bytes_written
    return {
        "flushed_rows": rows, "flushed_bytes": flushed, "rewritten_bytes": rewritten,
        "amplification": amplification(flushed, rewritten),
    }  # fmt: skip


def amplification(flushed_bytes: int, rewritten_bytes: int) -> float | None:
    """Return the write amplification; None: nothing was flushed."""
    return round(rewritten_bytes / flushed_bytes, 2) if flushed_bytes else None


@dataclass(slots=True)
class TaskHistory:
    """Tasks that run now, and the last ones that ended, of a node."""

    running: dict[int, TaskRecord] = field(default_factory=dict)
    ended: deque[TaskRecord] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    _next: int = 1

    def begin(self, record: TaskRecord) -> TaskRecord:
        """Note a task that begins, and number it."""
        record.number, self._next = self._next, self._next + 1
        self.running[record.number] = record
        return record

    def end(self, record: TaskRecord, now_ms: int) -> None:
        record.ended_ms = now_ms
        if record.staging is not None:
            record.bytes_written, record.staging = record.staging.bytes_written, None
        self.running.pop(record.number, None)
        self.ended.append(record)
