"""Pools that a tablet's channel wrote to, by generation: old blobs stay where they are (spec B.5)."""

from dataclasses import dataclass
from itertools import pairwise

RANGES_MAX = 255
"""Ranges that a tablet's record holds for each channel at most."""


@dataclass(frozen=True, slots=True)
class ChannelHistory:
    """Adjacent ranges (from_generation, pool) in rising order; the last one is open."""

    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        starts = [generation for generation, _ in self.ranges]
        assert starts, "a channel has a pool from the start"
        assert all(earlier < later for earlier, later in pairwise(starts)), starts

    @classmethod
    def decoded(cls, ranges: tuple[tuple[int, int], ...]) -> "ChannelHistory":
        """The history that was stored. ValueError for ranges that none has."""
        starts = [generation for generation, _ in ranges]
        if not starts or any(earlier >= later for earlier, later in pairwise(starts)):
            raise ValueError(f"its channel's ranges begin in generations {starts}")
        return cls(ranges)

    def pool_at(self, generation: int) -> int:
        """The pool that holds what was written in `generation`. ValueError before the first range."""
        for start, pool in reversed(self.ranges):
            if start <= generation:
                return pool
        raise ValueError(f"the channel began in generation {self.ranges[0][0]}, after {generation}")

    def moved(self, next_generation: int, pool: int) -> "ChannelHistory":
        """Return the history that writes to `pool` from `next_generation` on; what it said of that generation is
        replaced."""
        assert next_generation >= self.ranges[-1][0]
        earlier = tuple(range_ for range_ in self.ranges if range_[0] < next_generation)
        if earlier and earlier[-1][1] == pool:
            return ChannelHistory(earlier)
        return ChannelHistory((*earlier, (next_generation, pool)))
