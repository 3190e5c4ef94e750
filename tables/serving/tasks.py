"""Tasks of background work, as they are shown: what runs, why, what it reads and writes; and the last that ended."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

ENDED_KEPT: Final = 100


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
    number: int = 0
    outputs: Sequence[int] = ()
    ended_ms: int | None = None
    """Time of its end; None: it is under way."""
    bytes_read: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    rows_written: int = 0
    failure: str = ""

    def document(self) -> dict[str, Any]:
        """Return the task as it is shown."""
        return {
            "task": self.number, "kind": self.kind, "table": self.table, "tablet_id": self.tablet_id,
            "reason": self.reason, "inputs": list(self.inputs), "outputs": list(self.outputs),
            "begun_ms": self.begun_ms, "ended_ms": self.ended_ms, "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written, "rows_read": self.rows_read, "rows_written": self.rows_written,
            "failure": self.failure,
        }  # fmt: skip


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
        self.running.pop(record.number, None)
        self.ended.append(record)
