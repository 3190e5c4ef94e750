"""Waiting in tests: on a condition that asks the broker each time, with a deadline, never for a time."""

import time
from collections.abc import Callable

DEADLINE_S = 15.0


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask until the condition holds; AssertionError at the deadline. Asking must take time, as a request does."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"after {deadline_s:g} s still not: {what}"
