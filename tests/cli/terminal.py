"""A terminal: a command on a pty of a size, and the screen as a person sees it. Only the sequences that we print."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

from tests.support.waiting import DEADLINE_S

_TOKEN = re.compile(rb"\x1b\[(\??)([\d;]*)([A-Za-z])|\r|\n|\x08|[^\x1b\r\n\x08]+")

_CUT = re.compile(rb"(?:\x1b(?:\[\??[\d;]*)?|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
"""The beginning of a sequence, or of a character of UTF-8."""
_WAITING = re.compile(r"^pqbroker: waiting for [\s\S]*?Ctrl-C\s+ends\s+it\n?", re.MULTILINE)


class Screen:
    """Lines of a terminal that is tall enough not to scroll; a line beyond its width goes on in the next one."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.lines = [""]
        self._row = self._column = 0
        self._main: list[str] = []
        self._cut = b""
        self.unknown: set[str] = set()

    @property
    def text(self) -> str:
        """All of it, but for what a command says that waits for a slow machine."""
        return _WAITING.sub("", "\n".join(line.rstrip() for line in self.lines)).rstrip("\n")

    def feed(self, data: bytes) -> None:
        """Take what a command has written; a character or sequence that is cut off waits for its end."""
        data = self._cut + data
        cut = _CUT.search(data)
        data, self._cut = (data, b"") if cut is None else (data[: cut.start()], cut[0])
        for found in _TOKEN.finditer(data):
            if found[0] == b"\r":
                self._column = 0
            elif found[0] == b"\n":
                self._move(self._row + 1)
            elif found[3] is not None:
                self._control(found[1].decode() + found[2].decode() + found[3].decode())
            elif found[0] != b"\x08":
                for letter in found[0].decode():
                    self._put(letter)

    def _put(self, letter: str) -> None:
        if self._column == self._columns:
            self._column = 0
            self._move(self._row + 1)
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
        self._column += 1

    def _move(self, row: int) -> None:
        self._row = row
        self.lines += [""] * (row + 1 - len(self.lines))

    def _control(self, sequence: str) -> None:
        if sequence == "K":
            self.lines[self._row] = self.lines[self._row][: self._column]
        elif sequence == "J":
            self.lines[self._row + 1 :] = []
            self.lines[self._row] = self.lines[self._row][: self._column]
        elif sequence == "H":
            self._row = self._column = 0
        elif sequence == "?1049h":
            self._main, self.lines, self._row, self._column = self.lines, [""], 0, 0
        elif sequence == "?1049l":
            self.lines = self._main
            self._row = len(self.lines) - 1
        elif not sequence.endswith("m") and sequence not in ("?25l", "?25h"):
            self.unknown.add(sequence)


class Terminal:
    """Runs a command in a process of its own; a context manager."""

    def __init__(self, columns: int, *arguments: str, given: bytes | None = None, lines: int = 40) -> None:
        self.screen = Screen(columns)
        self._pty, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pqbroker", *arguments],
            stdin=inner if given is None else subprocess.PIPE, stdout=inner, stderr=inner, start_new_session=True,
            env=environment | {"TERM": "xterm"},
        )  # fmt: skip
        os.close(inner)
        if given is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(given)
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._pty)

    def type(self, text: str) -> None:
        os.write(self._pty, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def wait_for(self, pattern: str) -> str:
        """What the screen shows once the pattern is on it."""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.screen.text, re.MULTILINE):
            assert self._read(deadline), f"{pattern!r} is not on the screen:\n{self.screen.text}"
        return self.screen.text

    def finish(self) -> tuple[int, str]:
        """Exit status and screen at the end."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read(deadline):
            pass
        status = self._process.wait(DEADLINE_S)
        assert not self.screen.unknown
        return status, self.screen.text

    def _read(self, deadline: float) -> bool:
        """Whether there was more; False at the end of the command or of the time."""
        if not select.select([self._pty], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        data = b""
        with contextlib.suppress(OSError):  # Linux says EIO when the command has ended
            data = os.read(self._pty, 65536)
        self.screen.feed(data)
        return bool(data)
