"""Moves of tablets between cells: those under way, and the last ones that ended, in one opening of the node's cells."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

MOVES_KEPT: Final = 100


class MoveStep(Enum):
    """States of a move."""

    COPYING = "copying"
    HOLDING = "writes wait"
    DONE = "done"
    FAILED = "failed"
    LEFT = "left"
    """The tablet went away or was restarted meanwhile."""


@dataclass(slots=True)
class MoveRecord:
    """One attempt to move a tablet. Times in milliseconds since 1970."""

    tablet: int
    owner: str
    """Name of the topic or table."""
    from_cell: int
    to_cell: int
    begun_ms: int
    step: MoveStep = MoveStep.COPYING
    ended_ms: int | None = None
    """Time of its end; None: it is under way."""
    failure: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "tablet": self.tablet, "topic": self.owner, "from_cell": self.from_cell, "to_cell": self.to_cell,
            "begun": self.begun_ms, "ended": self.ended_ms, "state": self.step.value, "failure": self.failure,
        }  # fmt: skip


class MoveHistory:
    """Moves by age; the oldest of those that ended are forgotten."""

    def __init__(self) -> None:
        self.running: list[MoveRecord] = []
        self.ended: deque[MoveRecord] = deque(maxlen=MOVES_KEPT)

    def begin(self, record: MoveRecord) -> None:
        self.running.append(record)

    def end(self, record: MoveRecord, step: MoveStep, now_ms: int, failure: str = "") -> None:
        record.step, record.ended_ms, record.failure = step, now_ms, failure
        self.running.remove(record)
        self.ended.appendleft(record)
