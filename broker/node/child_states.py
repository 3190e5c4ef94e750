"""States of one node process as its parent sees it, pure.

    state      event     next
    waiting    START     starting
    starting   SERVE     serving
    starting   END       waiting
    serving    END       waiting
    any        STOP      stopping
    stopping   END       ended

A process that has ended waits longer each time before it is started again; one that served for a while is started again
at once, because its cells wait for it.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

RESTART_AFTER_S: Final = 0.2
RESTART_AFTER_S_MAX: Final = 10.0
SERVES_WELL_S: Final = 5.0
"""A process that has served this long had a good start."""


class ChildState(Enum):
    """States in the table above."""

    WAITING = auto()
    STARTING = auto()
    SERVING = auto()
    STOPPING = auto()
    ENDED = auto()


class ChildEvent(Enum):
    """Events in the table above."""

    START = auto()
    SERVE = auto()
    END = auto()
    STOP = auto()


CHILD_STATES: Final[Mapping[tuple[ChildState, ChildEvent], ChildState]] = {
    (ChildState.WAITING, ChildEvent.START): ChildState.STARTING,
    (ChildState.STARTING, ChildEvent.SERVE): ChildState.SERVING,
    (ChildState.STARTING, ChildEvent.END): ChildState.WAITING,
    (ChildState.SERVING, ChildEvent.END): ChildState.WAITING,
    (ChildState.STOPPING, ChildEvent.END): ChildState.ENDED,
    (ChildState.STOPPING, ChildEvent.SERVE): ChildState.STOPPING,
    (ChildState.ENDED, ChildEvent.STOP): ChildState.ENDED,
    (ChildState.WAITING, ChildEvent.STOP): ChildState.ENDED,
    **{
        (state, ChildEvent.STOP): ChildState.STOPPING
        for state in (ChildState.STARTING, ChildState.SERVING, ChildState.STOPPING)
    },
}
"""`state = CHILD_STATES[state, event]`; a step that is not here is a defect."""


class ChildHistory:
    """The state of one node's process, and how long its next start waits. `now`: seconds of a clock that only rises."""

    def __init__(self) -> None:
        self.state = ChildState.WAITING
        self.has_served = False
        self.failures = 0
        """Ends in a row, each before it had served well."""
        self._served_at: float | None = None

    def step(self, event: ChildEvent, now: float) -> None:
        """Take a step of the table."""
        self.state = CHILD_STATES[self.state, event]
        if event is ChildEvent.SERVE:
            self.has_served, self._served_at = True, now
        elif event is ChildEvent.END:
            served_well = self._served_at is not None and now - self._served_at >= SERVES_WELL_S
            self.failures = 0 if served_well else self.failures + 1
            self._served_at = None

    @property
    def is_over(self) -> bool:
        """Return True if it is not started again."""
        return self.state is ChildState.ENDED

    @property
    def back_off_s(self) -> float:
        """Return the seconds until the next start."""
        doubled = min(self.failures - 1, 30)
        return 0.0 if not self.failures else min(RESTART_AFTER_S * 2**doubled, RESTART_AFTER_S_MAX)
