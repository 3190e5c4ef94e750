"""Least times of records in spans of a partition, as queries have met them: with these an upper bound of `timestamp_ms`
leaves out what it refuses.

The log knows the greatest times alone. The least ones would cost each Produce a look at every record, and queries make
the column anyway. Records never change, and a cleaner only takes some out, so what was the least stays a lower bound.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import Final

TIME_SPANS_MAX: Final = 1 << 16
"""Spans that are kept of all partitions: 24 bytes each, of up to 8 MiB of records. Partitions least recently used go
first."""
_LOOKED_AT: Final = 1000
"""Spans among which the end of a run is looked for; behind them it may have what is known to have none."""
TimedPartition = tuple[bytes, int]
"""A topic's id and a partition."""


class LeastTimes:
    """Spans by partition: they do not overlap, and lie in order."""

    __slots__ = ("_partitions", "_spans", "_spans_max")

    def __init__(self, spans_max: int = TIME_SPANS_MAX) -> None:
        self._spans_max = spans_max
        self._partitions: OrderedDict[TimedPartition, _Spans] = OrderedDict()
        self._spans = 0

    def learn(self, key: TimedPartition, start: int, end: int, least: int) -> None:
        """Keep that no record of [start, end) is before `least`."""
        if start >= end:
            return
        spans = self._partitions.setdefault(key, _Spans())
        self._partitions.move_to_end(key)
        self._spans += spans.put(start, end, least)
        while self._spans > self._spans_max:
            _, oldest = self._partitions.popitem(last=False)
            self._spans -= len(oldest.starts)

    def narrowed(self, key: TimedPartition, offset: int, end_offset: int, most: int) -> tuple[int, int]:
        """Return the first run of offsets in [offset, end_offset) that may have records at or before `most`, up to what
        is known to have none; an empty one at the end when all is known to have none."""
        spans = self._partitions.get(key)
        if spans is None:
            return offset, end_offset
        self._partitions.move_to_end(key)
        return spans.narrowed(offset, end_offset, most)


class _Spans:
    """The spans of one partition."""

    __slots__ = ("ends", "leasts", "starts")

    def __init__(self) -> None:
        self.starts, self.ends, self.leasts = array("q"), array("q"), array("q")

    def put(self, start: int, end: int, least: int) -> int:
        """Put a span in place of those within it, less what others have of its ends. Return how many there are more."""
        before = bisect_right(self.starts, start - 1) - 1
        if before >= 0:
            start = max(start, self.ends[before])
        first, last = before + 1, bisect_right(self.ends, end)
        if last < len(self.starts):
            end = min(end, self.starts[last])
        if start >= end:
            return 0
        for column, value in zip((self.starts, self.ends, self.leasts), (start, end, least), strict=True):
            column[first:last] = array("q", [value])
        return 1 - (last - first)

    def narrowed(self, offset: int, end_offset: int, most: int) -> tuple[int, int]:
        number = bisect_right(self.ends, offset)
        while number < len(self.starts) and self.starts[number] <= offset < end_offset and self.leasts[number] > most:
            offset = self.ends[number]
            number += 1
        if offset >= end_offset:
            return end_offset, end_offset
        behind = min(bisect_left(self.starts, end_offset), number + _LOOKED_AT)
        following = (self.starts[each] for each in range(number, behind) if self.leasts[each] > most)
        return offset, next(following, end_offset)
