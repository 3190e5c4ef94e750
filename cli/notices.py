"""Notices on standard error: warnings, and what a slow command waits for, how long at most and how to end it."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NOTICE_AFTER_S = 1.5


def tell(text: str) -> None:
    """Print a line, if standard error is open."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"{_fresh_line()}pqbroker: {text}", file=sys.stderr, flush=True)


def _fresh_line() -> str:
    """Return the characters that take a progress line away; it stays where somebody may be typing."""
    return "\r\x1b[K" if sys.stderr.isatty() and sys.stdin is not None and not sys.stdin.isatty() else ""


@contextmanager
def announce_wait(what: str, most_s: float) -> Iterator[None]:
    """Say what the command waits for, and for how long at most, if it takes long."""
    timer = threading.Timer(NOTICE_AFTER_S, tell, [f"{what}, {most_s:g} s at most; Ctrl-C ends it"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
