"""The write quotas of one partition, on bytes and on records a second (semantics A.13). Writes are never refused or
delayed by them; they say for how long the writer has to pause."""

from pqbroker.conf.topic import TopicConfig

PAUSE_MS_MAX = 30_000
"""The longest pause at once; what is owed beyond follows with the next write."""


def write_quota(config: TopicConfig, now_ms: int) -> "WriteQuota | None":
    """The quota that a topic's config gives to each of its partitions; None without one."""
    size = _bucket(config.pq_write_speed_bytes, config.pq_write_burst_bytes, now_ms)
    records = _bucket(config.pq_write_speed_messages, config.pq_write_burst_messages, now_ms)
    return WriteQuota(size, records) if size or records else None


class WriteQuota:
    """Limits on bytes and on records, None for one that is off. Of both pauses the longer one counts."""

    __slots__ = ("_records", "_size")

    def __init__(self, size: "TokenBucket | None", records: "TokenBucket | None") -> None:
        self._size = size
        self._records = records

    def take(self, size: int, records: int, now_ms: int) -> int:
        """Count a write; returns for how many milliseconds the producer has to pause."""
        pause_ms = self._size.take(size, now_ms) if self._size else 0
        return max(pause_ms, self._records.take(records, now_ms)) if self._records else pause_ms


class TokenBucket:
    """`speed` tokens a second, saved up to `burst`. Time is milliseconds, whatever it counts from."""

    __slots__ = ("_at_ms", "_tokens", "burst", "speed")

    def __init__(self, speed: int, burst: int, now_ms: int) -> None:
        self.speed = speed
        self.burst = burst
        self._tokens = float(burst)
        self._at_ms = now_ms

    def take(self, tokens: int, now_ms: int) -> int:
        """Take tokens, those that are not there too; after how many milliseconds none would be owed."""
        elapsed_ms = max(now_ms - self._at_ms, 0)
        self._tokens = min(self._tokens + elapsed_ms * self.speed / 1000, self.burst) - tokens
        self._at_ms = now_ms
        if self._tokens >= 0:
            return 0
        return min(int(-self._tokens * 1000 / self.speed) + 1, PAUSE_MS_MAX)


def _bucket(speed: int, burst: int, now_ms: int) -> TokenBucket | None:
    """None without a limit; a negative burst is what one second gives."""
    return TokenBucket(speed, speed if burst < 0 else burst, now_ms) if speed > 0 else None
