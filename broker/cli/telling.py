"""Lines on standard error for whoever waits: what for, how long at most, and how to end it. None for what is quick."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TOLD_AFTER_S = 1.5


def tell(text: str) -> None:
    """A line, if there is anywhere to put it."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"pqbroker: {text}", file=sys.stderr, flush=True)


@contextmanager
def told(what: str, most_s: float) -> Iterator[None]:
    """Say what is waited for, and for how long at most, if it takes long."""
    timer = threading.Timer(TOLD_AFTER_S, tell, [f"{what}, {most_s:g} s at most; Ctrl-C ends it"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
