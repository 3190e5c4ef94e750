"""The messages of a job: its reports, and every few seconds what it waits for, so that no wait is silent."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_EVERY_S = 4.0


class Pulse:
    """Lines of a job, written whole, from any thread. A context manager, which ends the repeating."""

    def __init__(self, write: Callable[[str], None], *, quiet: bool = False, every_s: float = _EVERY_S) -> None:
        """`quiet` leaves out what the job waits for."""
        self._write = write
        self._quiet = quiet
        self._every_s = every_s
        self._changed = threading.Condition()
        self._waiting_for = ""
        self._since = self._last = time.monotonic()
        self._is_over = False
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def wait_for(self, what: str) -> None:
        """Name what the job does or waits for from now on."""
        with self._changed:
            self._waiting_for = what
            self._since = time.monotonic()
            if not self._quiet:
                self._put(what)

    def say(self, line: str) -> None:
        """Write a report; the job waits on for the next one."""
        with self._changed:
            self._waiting_for = "waiting for records"
            self._since = time.monotonic()
            self._put(line)

    def _put(self, line: str) -> None:
        self._write(line)
        self._last = time.monotonic()

    def _repeat(self) -> None:
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                is_due = now >= self._last + self._every_s
                if is_due and self._waiting_for and not self._quiet:
                    self._put(f"{self._waiting_for}: {now - self._since:.0f} s")
                self._changed.wait(None if self._quiet else max(0.001, self._last + self._every_s - now))
