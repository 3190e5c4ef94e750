"""Sample keys of a chunk that is being written: about evenly apart, though nobody knows yet how large it becomes."""

from typing import Any, Protocol

import numpy


class SizedKeys(Protocol):
    """Rows in order: sizes, and which are the first of a key."""

    is_first: Any

    def sizes(self, begin: int, end: int) -> Any: ...

    def key(self, row: int) -> bytes: ...


class Samples:
    """Up to `samples_max` samples when it ends, and twice as many until then."""

    __slots__ = ("_bytes", "_keys", "_samples_max", "_step")

    def __init__(self, samples_max: int) -> None:
        self._samples_max = samples_max
        self._keys: list[tuple[int, bytes]] = []
        """Keys, each behind the bytes before it."""
        self._bytes = 0
        self._step = 1

    def add(self, rows: SizedKeys, begin: int, end: int) -> None:
        """Take samples of the rows that follow."""
        sizes = rows.sizes(begin, end)
        before = self._bytes + numpy.cumsum(sizes) - sizes
        steps = before // self._step
        is_sample = rows.is_first[begin:end].copy()
        is_sample[1:] &= steps[1:] != steps[:-1]
        if self._keys:
            is_sample[0] &= int(steps[0]) != self._keys[-1][0] // self._step
        for row in numpy.flatnonzero(is_sample).tolist():
            self._keys.append((int(before[row]), rows.key(begin + row)))
        self._bytes += int(sizes.sum())
        while len(self._keys) > 2 * self._samples_max:
            self._thin()

    def found(self) -> tuple[tuple[str, int], ...]:
        """Return the samples: keys in hexadecimal, each with the bytes from it to the next."""
        while len(self._keys) > self._samples_max:
            self._thin()
        ends = [before for before, _ in self._keys[1:]] + [self._bytes]
        return tuple((key.hex(), end - before) for (before, key), end in zip(self._keys, ends, strict=True))

    def _thin(self) -> None:
        """Double the step: of the samples within one, the first stays."""
        self._step *= 2
        kept = self._keys[:1]
        for before, key in self._keys[1:]:
            if before // self._step != kept[-1][0] // self._step:
                kept.append((before, key))
        self._keys = kept
