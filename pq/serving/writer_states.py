"""States of a partition's writer, and the table of their changes, which the writer runs. An event that a state's table
does not have is a defect: KeyError.

state     event         next      what it means
idle      on_work       writing   a write or a job came: a cycle is planned, or its request is on its way
writing   on_cold_head  loading   the cycle has to copy head content that is not in memory, or to wait for timestamps
loading   on_loaded     writing   the content was read, or is unreadable: the next cycle, which may find nothing to do
writing   on_rest       idle      no cycle is in work, and nothing waits
idle      on_hold       held      the tablet restarts: what comes waits for the next instance
writing   on_hold       holding   the same, with a last cycle in work
loading   on_hold       holding
holding   on_loaded     holding
holding   on_rest       held
holding   on_hold       holding
held      on_hold       held
losing    on_hold       losing
lost      on_hold       lost
idle      on_loss       lost      the tablet's instance is over, or the partition unreadable: everything fails
held      on_loss       lost
writing   on_loss       losing    the same, with a cycle in work, which will fail
loading   on_loss       losing
holding   on_loss       losing
losing    on_loaded     losing
losing    on_rest       lost
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class WriterState(IntEnum):
    """The states of a writer in this order: from LOSING on everything fails."""

    IDLE = 0
    WRITING = 1
    LOADING = 2
    HOLDING = 3
    HELD = 4
    LOSING = 5
    LOST = 6


IDLE: Final = WriterState.IDLE
WRITING: Final = WriterState.WRITING
LOADING: Final = WriterState.LOADING
HOLDING: Final = WriterState.HOLDING
HELD: Final = WriterState.HELD
LOSING: Final = WriterState.LOSING
LOST: Final = WriterState.LOST

Changes = Mapping[WriterState, WriterState]
ON_WORK: Final[Changes] = {IDLE: WRITING}
ON_COLD_HEAD: Final[Changes] = {WRITING: LOADING}
ON_LOADED: Final[Changes] = {LOADING: WRITING, HOLDING: HOLDING, LOSING: LOSING}
ON_REST: Final[Changes] = {WRITING: IDLE, HOLDING: HELD, LOSING: LOST}
ON_HOLD: Final[Changes] = {
    IDLE: HELD, WRITING: HOLDING, LOADING: HOLDING, HOLDING: HOLDING, HELD: HELD, LOSING: LOSING, LOST: LOST,
}  # fmt: skip
ON_LOSS: Final[Changes] = {IDLE: LOST, HELD: LOST, WRITING: LOSING, LOADING: LOSING, HOLDING: LOSING}

AT_REST: Final = frozenset({IDLE, HELD, LOST})
"""No cycle is in work."""
