"""How crowded the machine is while a test measures time: limits hold as they stand where nothing else runs."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LOOK_S: Final = 0.05
_RUNNING: Final = Path("/proc/loadavg")
"""Its fourth field begins with the threads that run or wait for a core now, the reader among them."""
_OWN: Final = 3
"""Threads that want a core where a test runs alone: a broker, its client, and one of either's helpers."""


class Crowding:
    """A context manager that counts who wants a core; `times` is how many times longer work may take there.

    1 where nothing else runs, and on systems that do not tell; about 3 beside six busy processes on two cores.
    """

    def __init__(self) -> None:
        self._looks: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    @property
    def times(self) -> float:
        """The mean so far."""
        if not self._looks:
            return 1.0
        wanting = sum(self._looks) / len(self._looks)
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
        while not self._is_over.wait(_LOOK_S) and _RUNNING.exists():
            self._looks.append(int(_RUNNING.read_text(encoding="ascii").split()[3].partition("/")[0]))
