"""The audit log: who asked for what, from where, on what, and whether it was allowed. A JSON line each, in a file.

A thread writes, so that a slow disk delays nobody. Where it is full, lines are lost and counted, and the broker serves:
once there is room a line says how many are missing. So does one for lines that came too fast.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError

seldom = SeldomLog(logging.getLogger(__name__))

WAITING_LINES_MAX: Final = 10_000
"""Lines that wait for the thread at most; further ones are lost and counted."""
_SHARE: Final = 4
"""One caller has a quarter of the lines of a second."""
_TEXT_CHARACTERS_MAX: Final = 1000
"""Characters of one text of a line at most: a client names topics as it likes."""


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """One line. `what`: an operation; `on`: the resource."""

    principal: str
    host: str
    what: str
    on: str
    is_allowed: bool
    detail: str = ""

    def document(self, now_s: float) -> dict[str, Any]:
        """Return the line as JSON has it."""
        told = {
            "time": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
            "principal": self.principal, "host": self.host, "operation": self.what, "resource": self.on,
            "allowed": self.is_allowed,
        }  # fmt: skip
        cut = {name: value[:_TEXT_CHARACTERS_MAX] if isinstance(value, str) else value for name, value in told.items()}
        return cut | ({"detail": self.detail[:_TEXT_CHARACTERS_MAX]} if self.detail else {})


class AuditLog:
    """Takes lines from the loop's thread, and has its own thread write them. `close` ends it."""

    def __init__(self, settings: BrokerSettings, clock: Callable[[], float] = time.time) -> None:
        """ConfigError where the file cannot be opened."""
        self._clock = clock
        self._per_second = settings.audit_lines_per_second
        self.says_everything = settings.audit_everything
        self._second = 0
        self._taken: dict[tuple[str, str], int] = {}
        self._total = 0
        self.suppressed = 0
        """Lines that came too fast, since the start."""
        self._suppressed_now = 0
        self.written = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._file = _AuditFile(settings)
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that were not written, since the start: the disk was full, or too many waited for it."""
        return self._file.lost

    def tell(self, facts: AuditFacts) -> None:
        """Write a line soon."""
        now_s = self._clock()
        if int(now_s) != self._second:
            self._begin_second(now_s)
        caller = (facts.principal, facts.host)
        taken = self._taken.get(caller, 0)
        if self._total >= self._per_second or taken >= max(self._per_second // _SHARE, 1):
            self.suppressed += 1
            self._suppressed_now += 1
            return
        self._total += 1
        self._taken[caller] = taken + 1
        self._put(facts.document(now_s))

    def close(self) -> None:
        """Write what waits, and end."""
        self._begin_second(self._clock())
        self._queue.put(None)
        self._thread.join()

    def _begin_second(self, now_s: float) -> None:
        if self._suppressed_now:
            told = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
            self._put({"time": told, "suppressed": self._suppressed_now})
            self._suppressed_now = 0
        self._second = int(now_s)
        self._taken.clear()
        self._total = 0

    def _put(self, document: dict[str, Any]) -> None:
        with self._lock:
            if self._waiting >= WAITING_LINES_MAX:
                self._file.lost += 1
                self._file.missing += 1
                return
            self._waiting += 1
        self._queue.put(json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            with self._lock:
                self._waiting -= 1
            if self._file.write(line):
                self.written += 1
        self._file.close()


class _AuditFile:
    """The file that is written, and those before it: NAME.1 is the latest of them."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._path = Path(settings.audit_file)
        self._bytes_max = settings.audit_file_bytes_max
        self._files_max = settings.audit_files_max
        self.lost = self.missing = 0
        """Lines that are not in the files; and those of them that no line says yet."""
        try:
            self._file = self._open()
        except OSError as error:
            raise ConfigError(f"pqbroker.audit.file is {self._path}, which cannot be written: {error}") from error

    def write(self, line: bytes) -> bool:
        """Write a line; False when it is lost."""
        try:
            if self._file.closed:
                self._file = self._open()
            if self.missing:
                self._append(json.dumps({"missing": self.missing}).encode() + b"\n")
                self.missing = 0
            if self._file.tell() + len(line) > self._bytes_max and self._file.tell():
                self._rotate()
            self._append(line)
        except OSError as error:
            self.lost += 1
            self.missing += 1
            seldom.warning("lines of the audit log %s are lost: %s; the broker continues to serve", self._path, error)
            return False
        return True

    def close(self) -> None:
        self._file.close()

    def _append(self, line: bytes) -> None:
        """Write a whole line, or nothing of it."""
        start = self._file.tell()
        written = self._file.write(line)
        if written != len(line):
            os.ftruncate(self._file.fileno(), start)
            self._file.seek(start)
            raise OSError(f"{written} of {len(line)} bytes were written")

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._files_max - 1, 0, -1):
            earlier = self._path if number == 1 else self._numbered(number - 1)
            if earlier.exists():
                earlier.replace(self._numbered(number))
        if self._files_max == 1:
            self._path.unlink()
        self._file = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> FileIO:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        file = FileIO(descriptor, "w")
        file.seek(0, os.SEEK_END)
        return file
