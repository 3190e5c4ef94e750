"""A line on standard error that says how far a command is, gone when it is done. A terminal of its own only."""

import os
import shutil
import stat
import sys
import time
from types import TracebackType
from typing import Self

DRAW_EVERY_S = 0.1
CLEAR = "\r\x1b[K"


class Progress:
    """A context manager. `total` may come later, or never; nothing is drawn unless `shown` and there is a terminal."""

    def __init__(self, what: str, total: int | None, *, shown: bool = True) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._is_shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._begin_s = self._drawn_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print(CLEAR, end="", file=sys.stderr, flush=True)

    def expect(self, total: int) -> None:
        """Set how much is to be done in all."""
        self.total = total

    def advance(self, count: int) -> None:
        """Add `count` to what is done."""
        self.reach(self.done + count)

    def reach(self, done: int) -> None:
        """Set how much is done by now."""
        self.done = done
        if not self._is_shown:
            return
        now_s = time.monotonic()
        if now_s - self._drawn_s >= DRAW_EVERY_S:
            self._drawn_s = now_s
            width = shutil.get_terminal_size().columns - 1
            print(f"{CLEAR}{self._line(now_s)[:width]}", end="", file=sys.stderr, flush=True)

    def _line(self, now_s: float) -> str:
        share = f" of {self.total}, {100 * self.done // self.total} %" if self.total else ""
        return f"{self.what}: {self.done}{share}, {now_s - self._begin_s:.0f} s"


def prints_to_file() -> bool:
    """Return True if standard output is a file: records that go to a terminal, or through a pipe to one, share it."""
    try:
        return sys.stdout is not None and is_file(sys.stdout.fileno())
    except OSError:  # a stream without a descriptor
        return False


def is_file(descriptor: int) -> bool:
    """Return True if the descriptor is a regular file, no terminal and no pipe. Raises OSError."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
