"""The last lines of the node's own log, for who cannot see its standard error. Bounded in lines and characters."""

import logging
from collections import deque
from itertools import count
from typing import NamedTuple

LINES_MAX = 1000
LINE_CHARACTERS_MAX = 2000
"""A longer line is cut here; the log on standard error has the rest."""


class LogLine(NamedTuple):
    """One line. Numbers rise, so that a reader finds what came since."""

    number: int
    time_ms: int
    level: str
    logger: str
    message: str


class LogTail(logging.Handler):
    """Keeps lines of info and above, from every thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._numbers = count(1)
        self._lines: deque[LogLine] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message += f": {record.exc_info[1]!r}"
        if len(message) > LINE_CHARACTERS_MAX:
            message = message[:LINE_CHARACTERS_MAX] + "…"
        self._lines.append(
            LogLine(next(self._numbers), int(1000 * record.created), record.levelname.lower(), record.name, message)
        )

    def after(self, number: int) -> list[LogLine]:
        """The lines kept that came after one, in order."""
        self.acquire()  # other threads log too
        try:
            return [line for line in self._lines if line.number > number]
        finally:
            self.release()
