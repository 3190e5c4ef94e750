"""A recorded history: transactions, what each read and wrote, and how each ended for its client.

Keys are registers: a value is written once in a history, so that a read says whose write it saw. A row that does not
exist is None: at the beginning, and after a delete.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """Outcomes as clients learn them. A write without a transaction is one without reads and without a start."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Access:
    """A read of a register, with what was found, or a write of it."""

    key: Hashable
    value: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """One transaction. `invoked` and `completed` are places in the order of all that clients saw; timestamps are the
    broker's, None where it gave none."""

    reads: Sequence[Access]
    writes: Sequence[Access]
    ending: Ending
    invoked: int
    completed: int
    start: int | None = None
    commit: int | None = None
    session: int = 0
