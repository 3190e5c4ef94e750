"""How crowded and how slow the machine is while a test measures time: limits hold as they stand on an ordinary core
where nothing else runs."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.cpu_time import slowness

_LOOPS: Final = 5_000
"""Steps of a look at the core's speed: a quarter of a millisecond on an ordinary one."""
_LOOK_S: Final = 0.05
_RUNNING: Final = Path("/proc/loadavg")
"""Its fourth field begins with the threads that run or wait for a core now, the reader among them."""
_OWN: Final = 3
"""Threads that want a core where a test runs alone: a broker, its client, and one of either's helpers."""


class Crowding:
    """A context manager that counts who wants a core; `times` is how many times longer work may take there.

    1 on an ordinary core where nothing else runs; about 3 beside six busy processes on two cores. Others on a machine
    that is shared out may halve the speed of its cores for minutes, and then it is twice that.
    """

    def __init__(self) -> None:
        self._looks: list[int] = []
        self._slowness: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    @property
    def times(self) -> float:
        """The mean so far."""
        return self.crowd * self.slowness

    @property
    def slowness(self) -> float:
        """The part of it that is due to the core's speed, for processor time."""
        return sum(self._slowness) / len(self._slowness) if self._slowness else 1.0

    @property
    def crowd(self) -> float:
        """The part of it that is due to who else wants a core, for work whose time is corrected by the core's speed."""
        wanting = sum(self._looks) / len(self._looks) if self._looks else 0.0
        return max(1.0, wanting / max(_OWN, os.cpu_count() or 1))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._slowness.append(slowness(_LOOPS))
            if not _RUNNING.exists():
                continue
            self._looks.append(int(_RUNNING.read_text(encoding="ascii").split()[3].partition("/")[0]))
