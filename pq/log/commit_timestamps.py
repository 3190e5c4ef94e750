"""Timestamps of commits: one rule for a node, without clock and storage (semantics C, E.8).

Each value is greater than all before it, on all tablets of the node: that of the clock, or the last one plus 1 where
the clock stands or goes back. Values are given only below a reservation that is durable before; a start begins at the
reservation that it finds, so no value is given twice.

    last given     clock                    next value
    v              above v, reserved        the clock's
    v              at v or below it         v + 1
    v              not reserved             v + 1; the reservation moves ahead of the clock meanwhile
    v              any, v + 1 not reserved  none: the commit waits for the reservation

Of several nodes one has the reservation and gives blocks of values to the others (`give_block`, `take_block`), one for
each turn in which they need some: a commit that begins behind another one's end has the greater value, wherever it is.
"""

_MILLISECONDS_MAX = (1000 << 34) - 1
"""The year 2514."""
COUNTER_VALUES = 1 << 20
"""Timestamps of one millisecond; one write cycle has fewer commits."""
RESERVED_AHEAD = 10 << 30
"""Ten seconds. A restart may be ahead of the clock by that much, and a node that writes needs no second reservation
within it."""
RESERVED_VALUES = 1 << 24
"""Values that one reservation leaves free at least, even if the last value is ahead of the clock: restarts in a row do
not add up."""
TIMESTAMP_MAX = (1 << 64) - 1
"""Columns have 64 bits."""


class CommitTimestamps:
    """The last value given, and the reservation: the first value that must not be given yet."""

    __slots__ = ("last", "reserved")

    def __init__(self, reserved: int = 0) -> None:
        """`reserved`: what earlier starts may have given lies below."""
        self.reserved = reserved
        self.last = max(reserved - 1, 0)

    @property
    def can_give(self) -> bool:
        """Return True if one cycle's commits have values without another reservation."""
        return self.reserved - self.last > COUNTER_VALUES

    def is_reserved(self, now_ms: int) -> bool:
        """Return True if values follow the clock without another reservation."""
        return self.can_give and self._next(now_ms) + COUNTER_VALUES <= self.reserved

    def wanted(self, now_ms: int) -> int | None:
        """Return the reservation to make durable now, ahead of the need; None when half of it is left."""
        clock, following = timestamp_of(now_ms), self.last + 1
        if max(clock + RESERVED_AHEAD // 2, following + RESERVED_VALUES // 2) <= self.reserved:
            return None
        return min(max(clock + RESERVED_AHEAD, following + RESERVED_VALUES), TIMESTAMP_MAX)

    def take_reservation(self, reserved: int) -> None:
        """Take a reservation that is durable."""
        self.reserved = max(self.reserved, reserved)

    def has_block(self, count: int) -> bool:
        """Return True if a block can be given, and one cycle's commits have values behind it."""
        return self.last + count + COUNTER_VALUES < self.reserved

    def give_block(self, now_ms: int, count: int) -> int:
        """Return the first of `count` values that are another node's; `has_block` was asked before."""
        first = self._next(now_ms)
        if first + count > self.reserved:
            first = self.last + 1
        assert first + count <= self.reserved, "no timestamp is given that is not reserved"
        self.last = first + count - 1
        return first

    def take_block(self, first: int, end: int) -> None:
        """Have the values from `first` to `end`, which stands behind the last one, be all that may be given."""
        self.last = max(self.last, first - 1)
        self.reserved = end

    def drop_block(self) -> None:
        """Give nothing that is left of a block."""
        self.reserved = min(self.reserved, self.last)

    def give(self, now_ms: int) -> int:
        """Return the value of a commit that is planned now; `can_give` was asked before its cycle."""
        following = self._next(now_ms)
        if following >= self.reserved:
            following = self.last + 1
        assert following < self.reserved, "no timestamp is given that is not reserved"
        self.last = following
        return following

    def saw(self, timestamp: int) -> None:
        """Note the value of a stored row: later ones are greater, even beyond the reservation."""
        self.last = max(self.last, timestamp)

    def _next(self, now_ms: int) -> int:
        return max(timestamp_of(now_ms), self.last + 1)


def unreserved() -> CommitTimestamps:
    """Return timestamps that need no reservation: of a partition that stands alone."""
    found = CommitTimestamps()
    found.reserved = TIMESTAMP_MAX
    return found


def timestamp_of(milliseconds: int) -> int:
    """A time since 1970 as a timestamp of tables: 34 bits of seconds, 10 of milliseconds, 20 of a counter."""
    seconds, rest = divmod(min(max(milliseconds, 0), _MILLISECONDS_MAX), 1000)
    return seconds << 30 | rest << 20


def milliseconds_of(timestamp: int) -> int:
    """The time of such a timestamp, rounded down."""
    return (timestamp >> 30) * 1000 + min(timestamp >> 20 & 1023, 1000)
