"""Pivots from samples of keys: of a partition that is split, of a table that is given a number of tablets (D.3)."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class KeySample(NamedTuple):
    """One key, and the weight of the rows from it to before the next sample of its chunk: bytes, or rows."""

    key: bytes
    weight: int


def choose_pivots(samples: Iterable[KeySample], parts: int, pivot: bytes, end: bytes | None) -> tuple[bytes, ...]:
    """Return at most `parts` - 1 keys, ascending, that divide a range into parts of about equal weight.

    Each is above `pivot` and below `end` (None: the range has no end). There are fewer where samples have fewer keys.
    """
    weights: defaultdict[bytes, int] = defaultdict(int)
    for key, weight in samples:
        if key >= pivot and (end is None or key < end):
            weights[key] += weight
    keys = sorted(weights)
    before = [0]
    for key in keys:
        before.append(before[-1] + weights[key])
    chosen: list[int] = []
    for part in range(1, parts):
        least = chosen[-1] + 1 if chosen else bisect_right(keys, pivot)
        most = len(keys) - (parts - part)
        index = max(min(_nearest(before, before[-1] * part / parts), most), least)
        if index >= len(keys):
            break
        chosen.append(index)
    return tuple(keys[index] for index in chosen)


def split_pivots(
    samples: Iterable[KeySample], parts: int, pivot: bytes, end: bytes | None, least_share: float
) -> tuple[bytes, ...]:
    """Return the pivots that split a partition into as many of `parts` parts as have the least share of its weight.

    Empty: not even two have it. Parts below the share would be merged again.
    """
    kept = tuple(sample for sample in samples if sample.key >= pivot and (end is None or sample.key < end))
    for count in range(parts, 1, -1):
        pivots = choose_pivots(kept, count, pivot, end)
        if len(pivots) == count - 1 and min(_shares(kept, pivots)) >= least_share:
            return pivots
    return ()


def _shares(samples: tuple[KeySample, ...], pivots: tuple[bytes, ...]) -> list[float]:
    """Return the part of the weight that each part has."""
    shares = [0.0] * (len(pivots) + 1)
    total = sum(sample.weight for sample in samples) or 1
    for key, weight in samples:
        shares[bisect_right(pivots, key)] += weight / total
    return shares


def _nearest(ascending: list[int], wanted: float) -> int:
    index = bisect_left(ascending, wanted)
    if index == len(ascending) or (index > 0 and wanted - ascending[index - 1] <= ascending[index] - wanted):
        return index - 1
    return index
