"""Python's collector of cycles, kept from long walks: it stops the whole process for as long as it looks.

pass      looks at                                      when
young     what is new; Python's own, some milliseconds  as Python decides
deep      everything, 0.2 s for ten thousand partitions what outlived the passes has grown by half, but for topics
                                                        that are served, and little comes in; or by a million objects
What a full pass of Python's leaves is set aside (frozen) once it has grown to `SET_ASIDE_MIN` objects, so that the time
of a pass does not grow with what the broker holds. A cycle that becomes garbage later is found by the deep pass alone,
with all that it holds: so as little as possible is set aside while requests are in work. Partitions of deleted topics
hold no cycles and go at once (`tests/pq/serving/test_garbage.py`).
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

LOOK_S: Final = 10.0
QUIET_S: Final = 1.0
QUIET_BYTES: Final = 64 << 10
"""Less than this in `QUIET_S` is what clients send that have nothing to do: a pause is in nobody's way."""
SET_ASIDE_MIN: Final = 10_000
"""Objects; a pass looks at them within 3 ms. What an idle broker makes and drops stays below it."""
GROWTH_MIN: Final = 150_000
"""Objects, some ten megabytes. Fewer are no reason for a deep pass."""
FORCED_GROWTH: Final = 1_000_000
"""Objects, some hundred megabytes: from there on a deep pass comes however much is going on."""
OBJECT_BYTES: Final = 50
"""An object takes at least about so much: 2.4 million were seen where long requests held 137 MB."""
PARTITION_OBJECTS: Final = 80
TOPIC_OBJECTS: Final = 46
"""Objects of a served partition, those of its tablet included, and of a topic besides; they are not garbage."""
BLOCKS_PER_OBJECT: Final = 1.5
"""Memory blocks per object of what is served: 1.3 for those of a partition, 2 for those of a topic."""
_THRESHOLDS = (700, 10, 1)
"""Python's own, but for the last: a full pass sees 25 000 new objects at most, 8 ms, and not 80 000."""
_OLDEST = 2


def _old_objects() -> int:
    """Return how many objects a full pass has left.

    One call into C from the list's making to its end: no other thread runs meanwhile. The list refers to the tuples
    that other threads are just making, and `tuple(generator)` ends with a SystemError if anybody else knows its tuple.
    """
    return sum(map(len, map(gc.get_objects, (_OLDEST,))))


class Load(NamedTuple):
    """The work that the broker has to do, and what it serves."""

    bytes_in: Callable[[], int]
    """Grows with every request."""
    bytes_in_work: Callable[[], int]
    """Bytes of long requests: a pass would walk through all that they hold, and find nothing."""
    served: Callable[[], int]
    """Objects of topics and their partitions (`objects_of`), and other ones that hold no cycle."""
    data_blocks: Callable[[], int] = lambda: 0
    """Blocks of memory of what no pass looks at, such as rows."""


def objects_of(topics: int, partitions: int) -> int:
    """Return the number of objects of topics and partitions, about."""
    return topics * TOPIC_OBJECTS + partitions * PARTITION_OBJECTS


class CycleCollector:
    """The collector of this process, from `begin` on.

    It counts what is set aside itself: to have Python count it takes as long as half a deep pass.
    """

    def __init__(self) -> None:
        self.known = 0
        """Objects that the last deep pass set aside."""
        self.growth = 0
        """Objects set aside since."""
        self.served = 0
        """Objects of what was served when growth was last explained by it."""
        self._owed = 0
        """Objects of what is served now that no pass has seen yet; negative: objects that went and are still
        counted."""
        self._blocks = 0
        """Blocks of memory that Python had after the last deep pass, and those of what is served since."""
        self._data_blocks = 0
        """Blocks of `Load.data_blocks` at the last look, of which `_blocks` has none."""
        self._is_deep = False
        """A deep pass is under way."""

    def begin(self, served: int = 0) -> None:
        """Set aside at once what lives now, that many objects of what is served among it."""
        self.served = served
        self.collect_deeply()
        self.known = gc.get_freeze_count()
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._after_pass)

    def collect_deeply(self) -> float:
        """Look at everything, and set aside what lives; returns the seconds of CPU time that this took."""
        begun_s = time.thread_time()
        self._is_deep = True
        gc.unfreeze()
        gone = gc.collect()
        gc.freeze()
        gc.collect()  # of nothing: Python's next full pass comes when what it knows has grown by a quarter
        self._is_deep = False
        self.known, self.growth = max(self.known + self.growth - gone, 0), 0
        self._owed = 0
        self._blocks = sys.getallocatedblocks() - self._data_blocks
        return time.thread_time() - begun_s

    async def collect_at_quiet_moments(self, load: "Load", observe: Callable[[float], None]) -> None:
        """Deep passes, for ever; `observe` is given the seconds of each."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(load)
            while self.growth >= max(GROWTH_MIN, self.known // 2):
                before = load.bytes_in()
                await asyncio.sleep(QUIET_S)
                self.look(load)
                if self.is_time(load.bytes_in() - before, load.bytes_in_work()):
                    observe(self.collect_deeply())

    def look(self, load: "Load") -> None:
        """Take from the growth what is known of it."""
        self._data_blocks = load.data_blocks()
        self.explain(load.served())
        self.forget_gone()

    def explain(self, served: int) -> None:
        """Count objects of what is served now as known; those of what went may be garbage."""
        self._owed += served - self.served
        self.served = served
        explained = max(min(self._owed, self.growth), -self.known)
        self._owed -= explained
        self.known += explained
        self.growth -= explained
        self._blocks += int(explained * BLOCKS_PER_OBJECT)

    def forget_gone(self) -> None:
        """Count no more than memory has grown by: what was set aside in work, and is gone since, is no garbage."""
        blocks = sys.getallocatedblocks() - self._data_blocks
        self.growth = min(self.growth, max(blocks - self._blocks, 0))

    def is_time(self, bytes_in: int, in_work: int = 0) -> bool:
        """Return True if a deep pass that has something to look for comes now.

        `bytes_in`: what came in the last `QUIET_S`; `in_work`: bytes of long requests, which are no garbage.
        """
        is_quiet = bytes_in + in_work < QUIET_BYTES
        return is_quiet or self.growth - in_work // OBJECT_BYTES >= max(FORCED_GROWTH, self.known)

    def _after_pass(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST and not self._is_deep:
            count = _old_objects()
            if count >= SET_ASIDE_MIN:
                gc.freeze()
                self.growth += count
