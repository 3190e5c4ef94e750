"""Waiting in tests: on a condition, with a deadline, never for a time."""

import time
from collections.abc import Callable

DEADLINE_S = 15.0
PAUSE_FIRST_S, PAUSE_LAST_S = 0.001, 0.05
"""Between two asks: the pause doubles, so that a long wait leaves the machine to what it waits for."""


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask until the condition holds; AssertionError at the deadline."""
    deadline = time.monotonic() + deadline_s
    pause_s = PAUSE_FIRST_S
    while not condition():
        assert time.monotonic() < deadline, f"after {deadline_s:g} s still not: {what}"
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_LAST_S)
