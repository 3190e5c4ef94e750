"""Choice of what a cleaner of compacted topics works on, pure: whether a log is due, up to where, and its windows, runs
of adjacent bodies that become one each (semantics C.5, G.3)."""

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.keys import COUNT_MAX


class Dirt(Enum):
    """A reason to clean a log, or not to."""

    FORCED = "forced"
    LATE = "late"
    TOMBSTONES = "tombstones"
    DIRTY = "dirty"
    CLEAN = "clean"
    BELOW_RATIO = "below_ratio"
    YOUNG = "young"


class CleaningLimits(NamedTuple):
    """Settings of a topic, as Kafka has them: times in milliseconds."""

    dirty_ratio_min: float
    lag_ms_min: int
    lag_ms_max: int


class Due(NamedTuple):
    """A log's need of a cleaning now. `bound`: the oldest `body_count` bodies, which end before it, may be cleaned."""

    reason: Dirt
    bound: int
    body_count: int
    dirty_bytes: int
    """Bytes of those that no cleaning has reached."""
    bytes: int

    @property
    def is_due(self) -> bool:
        return self.reason in (Dirt.FORCED, Dirt.LATE, Dirt.TOMBSTONES, Dirt.DIRTY)

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / self.bytes if self.bytes else 0.0


class WindowLimits(NamedTuple):
    """Limits of a window by C.5: bytes up to which bodies are taken together whatever their sizes, the most that a body
    may be larger than those before it, bodies and bytes of a window."""

    base_bytes: int = 16 << 20
    ratio: float = 2.0
    count_max: int = 100
    bytes_max: int = 16 << 20


class Window(NamedTuple):
    """The bodies of the numbers [first, last)."""

    first: int
    last: int


def when_due(
    bodies: Bodies, cleaned: CleanedLog, stable_end: int, limits: CleaningLimits, now_ms: int, *,
    is_forced: bool = False,
) -> Due:
    """Decide whether the bodies below the last stable offset `stable_end` are to be cleaned now.

    A body younger than min.compaction.lag.ms ends what may be cleaned. The ratio has to be above
    min.cleanable.dirty.ratio, as in Kafka. Where the time of tombstones has come, they are a reason by themselves, if a
    pass would reach as far as the last one.
    """
    count = bisect_right(bodies.ends, stable_end)
    old_ms = now_ms - limits.lag_ms_min
    if count and max(bodies.created[:count]) > old_ms:
        count = next(number for number, created_ms in enumerate(bodies.created) if created_ms > old_ms)
    bound = bodies.ends[count - 1] if count else 0
    dirty = bodies.find(cleaned.end)
    first = min(dirty, count)
    found = Due(Dirt.CLEAN, bound, count, sum(bodies.sizes[first:count]), sum(bodies.sizes[:count]))
    if is_forced and count:
        return found._replace(reason=Dirt.FORCED)
    if first < count and bodies.created[first] + limits.lag_ms_max <= now_ms:
        return found._replace(reason=Dirt.LATE)
    if count and bound >= cleaned.end and cleaned.due_ms is not None and cleaned.due_ms <= now_ms:
        return found._replace(reason=Dirt.TOMBSTONES)
    if first == count:
        is_young = dirty < len(bodies) and bodies.ends[dirty] <= stable_end
        return found._replace(reason=Dirt.YOUNG) if is_young else found
    return found._replace(reason=Dirt.DIRTY if found.dirty_ratio > limits.dirty_ratio_min else Dirt.BELOW_RATIO)


def windows(bodies: Bodies, count: int, limits: WindowLimits) -> list[Window]:
    """The windows of the oldest `count` bodies, oldest first: each body is in one, alone if need be."""
    found: list[Window] = []
    first = 0
    while first < count:
        found.append(window_from(bodies, first, count, limits))
        first = found[-1].last
    return found


def window_from(bodies: Bodies, first: int, count: int, limits: WindowLimits) -> Window:
    """Return the window that begins with the body `first`, of the oldest `count` bodies."""
    last = min(extend(bodies.sizes[first : min(count, first + limits.count_max)], limits) + first, count)
    while last > first + 1 and bodies.ends[last - 1] - bodies.offsets[first] > COUNT_MAX:
        last -= 1
    return Window(first, last)


def extend(sizes: Sequence[int], limits: WindowLimits) -> int:
    """Return how many bodies at the front make one window (C.5): the first always; another one while the sum with it is
    at most the base, or it is at most `ratio` times what is before it."""
    total = 0
    for number, size in enumerate(sizes[: limits.count_max]):
        is_small = total + size <= limits.base_bytes or size <= limits.ratio * total
        if number and not (is_small and total + size <= limits.bytes_max):
            return number
        total += size
    return min(len(sizes), limits.count_max)
