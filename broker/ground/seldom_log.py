"""Log lines that clients cause at will: one a second of each text, which says how many it stands for.

A flood of broken requests would fill the disk that the records need. What is counted exactly is in the metrics.
"""

import logging
import time
from collections.abc import Callable

SECONDS_BETWEEN = 1.0


class SeldomLog:
    """Logger of seldom lines. Two lines are one text if they differ only in arguments."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}
        """Time of the last line of each text, and the count of lines left out since."""

    def info(self, text: str, *arguments: object) -> None:
        self._tell(logging.INFO, text, arguments)

    def warning(self, text: str, *arguments: object) -> None:
        self._tell(logging.WARNING, text, arguments)

    def error(self, text: str, error: BaseException) -> None:
        """Write an error with its traceback."""
        self._tell(logging.ERROR, text, (), error)

    def _tell(self, level: int, text: str, arguments: tuple[object, ...], error: BaseException | None = None) -> None:
        now = self._clock()
        told_at, left_out = self._told.get(text, (now - SECONDS_BETWEEN, 0))
        if now - told_at < SECONDS_BETWEEN:
            self._told[text] = told_at, left_out + 1
            return
        self._told[text] = now, 0
        if left_out:
            text, arguments = f"{text} (and %d more like this since the last such line)", (*arguments, left_out)
        self._log.log(level, text, *arguments, exc_info=error)
