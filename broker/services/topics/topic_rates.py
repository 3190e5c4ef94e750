"""Records a second that topics are given, from samples that are taken when somebody asks. Pure: time is given.

A topic keeps two samples, so that a rate is over two seconds at least; after a minute without a question it begins
again, since a rate over so long says little of now.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

SAMPLE_MS: Final = 2000
"""The least time between two samples of a topic."""
SAMPLE_KEPT_MS: Final = 60_000


@dataclass(slots=True)
class _TwoSamples:
    """Times and counts of records ever written."""

    early: tuple[int, int]
    late: tuple[int, int]


class TopicRates:
    """Rates of the topics of a node, by topic id."""

    def __init__(self) -> None:
        self._samples: OrderedDict[bytes, _TwoSamples] = OrderedDict()

    def __len__(self) -> int:
        return len(self._samples)

    def look(self, topic_id: bytes, written: int, now_ms: int) -> float | None:
        """Take a sample of a topic; return its records a second, None until there are two."""
        found = self._samples.get(topic_id)
        if found is None or not 0 <= now_ms - found.late[0] <= SAMPLE_KEPT_MS or written < found.late[1]:
            self._samples[topic_id] = _TwoSamples((now_ms, written), (now_ms, written))
            return None
        self._samples.move_to_end(topic_id)
        if now_ms - found.late[0] >= SAMPLE_MS:
            found.early, found.late = found.late, (now_ms, written)
        elapsed_ms = now_ms - found.early[0]
        return None if elapsed_ms < SAMPLE_MS else (written - found.early[1]) * 1000 / elapsed_ms

    def forget(self, count_max: int) -> None:
        """Forget the topics that were looked at longest ago, above a number of them: deleted ones among them."""
        while len(self._samples) > count_max:
            self._samples.popitem(last=False)
