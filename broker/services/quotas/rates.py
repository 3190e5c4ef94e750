"""Use of a quota, and how long to pause above it. Pure: `now_ms` is given.

Kafka counts over the last windows, so that a client which rested may use ten seconds' worth at once and stands still
then. Here use is spread: what is not used is saved up for a short time alone, and a client that pauses as long as it is
asked to has used exactly its rate at the end.
"""

from typing import Final

USE_PAUSE_MS_MAX: Final = 3_600_000
"""The longest pause at once."""


class UseBucket:
    """Tokens, `bound` a second, saved up for `saved_s`. A use is counted whole, so that they may fall below zero."""

    __slots__ = ("_at_ms", "_saved_s", "_tokens", "bound")

    def __init__(self, bound: float, saved_s: float, now_ms: float) -> None:
        self.bound = bound
        self._saved_s = saved_s
        self._tokens = bound * saved_s
        self._at_ms = now_ms

    def take(self, amount: float, now_ms: float) -> int:
        """Count a use; return for how many milliseconds the client has to pause."""
        self.count(amount, now_ms)
        return self.owed_ms(now_ms)

    def count(self, amount: float, now_ms: float) -> None:
        """Count a use."""
        self._fill(now_ms)
        self._tokens -= amount

    def owed_ms(self, now_ms: float) -> int:
        """Return after how many milliseconds nothing is owed, if nothing is used meanwhile; 0: nothing is now."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        return min(int(-self._tokens / self.bound * 1000) + 1, USE_PAUSE_MS_MAX)

    def _fill(self, now_ms: float) -> None:
        elapsed_s = max(now_ms - self._at_ms, 0) / 1000
        self._tokens = min(self._tokens + elapsed_s * self.bound, self.bound * self._saved_s)
        self._at_ms = now_ms
