"""Batches that wait for a write cycle of one partition, in the order they came, and how many bytes are in flight (A.8).

A batch larger than the whole limit is not counted by it: it waits in line like any other, what comes behind waits for
it, and nothing is refused on its account. What all of these take is bounded by pqbroker.inflight.bytes.max.
"""

from collections import deque

from pqbroker.pq.cycle import Written
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.outcome import Outcome

Write = tuple[memoryview, BatchHeader, Outcome[Written]]


class WriteQueue:
    """The writer, which alone changes it, adds to `items`, `bytes` and `in_flight_bytes` itself: that is a Produce."""

    __slots__ = ("_bytes_max", "bytes", "in_flight_bytes", "items", "long_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.items: deque[Write] = deque()
        self.bytes = 0
        self.in_flight_bytes = 0
        """Bytes of batches that are not durable yet: those that wait and the cycle's."""
        self.long_bytes = 0
        """Those of them that are of batches over the limit."""

    def __len__(self) -> int:
        return len(self.items)

    def count_long(self) -> None:
        """A cycle has ended: nothing is in flight but what waits."""
        self.long_bytes = sum(len(item[0]) for item in self.items if len(item[0]) > self._bytes_max)

    def take(self, bytes_max: int) -> list[Write]:
        """The batches of one cycle, from the front: at least one, at most so many bytes."""
        items = self.items
        taken = [items.popleft()]
        size = len(taken[0][0])
        while items and size + len(items[0][0]) <= bytes_max:
            item = items.popleft()
            size += len(item[0])
            taken.append(item)
        self.bytes -= size
        return taken

    def take_all(self) -> list[Write]:
        taken = list(self.items)
        self.items.clear()
        self.bytes = 0
        return taken
