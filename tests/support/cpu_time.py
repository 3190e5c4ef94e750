"""CPU time that a test may limit: of one thread, without passes of the collector, as an ordinary core would have taken.

Python's collector walks all objects of the process, and a worker of `./test` has those of thousands of tests. Another
machine's core may take several times as long.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Final

_LOOPS: Final = 1_000_000
_ORDINARY_S: Final = 0.05
TRIES: Final = 10


def slowness(loops: int = _LOOPS) -> float:
    """Return how many times the CPU time of `loops` steps is that of an ordinary core (2.5 GHz, nothing beside it), at
    least 1."""
    begin = thread_time()
    total = 0
    for number in range(loops):
        total += number
    return max(1.0, (thread_time() - begin) * _LOOPS / loops / _ORDINARY_S)


@contextmanager
def no_collector() -> Iterator[None]:
    """Python's collector makes no pass by itself within the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def least_s(work: Callable[[], object], enough_s: float, tries: int = TRIES) -> float:
    """Do the work until it takes less than `enough_s` of CPU time, at most `tries` times; return the least."""
    least = float("inf")
    for _ in range(tries):
        before = slowness() if least < float("inf") else 1.0  # an ordinary machine needs no second try
        with no_collector():
            begin = thread_time()
            work()
            spent_s = thread_time() - begin
        least = min(least, spent_s / before)
        if least < enough_s:
            break
    return least
