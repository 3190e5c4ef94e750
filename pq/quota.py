"""The write quota of one partition: a token bucket (semantics A.13). Writes are never refused or delayed by it; it says
for how long the writer has to pause."""

PAUSE_MS_MAX = 30_000
"""The longest pause asked for at once; what is owed beyond is asked for at the next write."""


class WriteQuota:
    """`speed` bytes a second, saved up to `burst` bytes. Time is milliseconds, whatever it counts from."""

    __slots__ = ("_at_ms", "_tokens", "burst", "speed")

    def __init__(self, speed: int, burst: int, now_ms: int) -> None:
        self.speed = speed
        self.burst = burst
        self._tokens = float(burst)
        self._at_ms = now_ms

    def take(self, size: int, now_ms: int) -> int:
        """Take the bytes of a write; for how many milliseconds the writer has to pause."""
        elapsed_ms = max(now_ms - self._at_ms, 0)
        self._tokens = min(self._tokens + elapsed_ms * self.speed / 1000, self.burst) - size
        self._at_ms = now_ms
        if self._tokens >= 0:
            return 0
        return min(int(-self._tokens * 1000 / self.speed) + 1, PAUSE_MS_MAX)
