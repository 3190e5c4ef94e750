"""Python's garbage collector beside what a test measures."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Measure without the collector: it would walk all that the tests before left behind, in the measured time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
