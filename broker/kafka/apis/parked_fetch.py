"""A Fetch that waits: what it waits for is a value, and one place does the waiting. Nothing is read here.

States: parked -> finished, by the first of: enough to read, an error, the deadline, `hurry`. Finishing unsubscribes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.fetch_sessions import SessionPartition
from pqbroker.pq.reading.query import Isolation, visible_end

ENOUGH: Final = 1 << 62
"""More bytes than any Fetch waits for."""


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """Partitions and offsets wanted, how far the reader sees, how many bytes are enough, how long it waits for them."""

    wanted: Sequence[SessionPartition]
    isolation: Isolation
    min_bytes: int
    wait_ms: int


def count_readable(
    asked: Sequence[SessionPartition], isolation: Isolation, min_bytes: int, readable: int = 0
) -> int:
    """Return the bytes that can be read of these partitions and `readable`, counted until they are `min_bytes`. From
    memory.

    ENOUGH then, and where there is an error to answer, any record is enough, or nothing was wanted.
    """
    for wanted in asked:
        partition = wanted.partition
        if wanted.error is not None or partition is None or partition.is_lost:
            return ENOUGH
        log, offset = partition.state, wanted.offset
        end_offset = visible_end(log, isolation)
        if offset != end_offset:
            if not log.start_offset <= offset <= log.end_offset:
                return ENOUGH
            if min_bytes > 1 or wanted.bytes_max <= 0:
                readable += partition.reader.readable_bytes(offset, end_offset, wanted.bytes_max)
            elif partition.reader.has_records(offset, end_offset):  # any record is enough
                return ENOUGH
        if readable >= min_bytes:
            return ENOUGH
    return readable if asked else ENOUGH


class FetchWait:
    """Watches a parked Fetch's partitions; looks once per turn of the loop, so that one commit's advances give one
    answer. `read` makes it, in the dispatcher's hands. `call_soon` calls in a turn to come: of thousands that one
    commit or one moment wakes, each turn of the loop has some."""

    __slots__ = ("_call_soon", "_is_finished", "_is_looking", "_parked", "_read", "_timer", "_unwatch", "answer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call_soon: Callable[[Callable[[], None]], object],
        parked: ParkedFetch,
        read: Callable[[], Any],
    ) -> None:
        self._call_soon = call_soon
        self._parked = parked
        self._read = read
        self._is_finished = self._is_looking = False
        self.answer: Answer[Any] = Answer(hurry=self._finish)
        self._unwatch: list[Callable[[], None]] = []
        for wanted in parked.wanted:
            if wanted.partition is not None:
                self._unwatch.append(wanted.partition.watchers.add(self._advanced))
        self._timer = loop.call_later(parked.wait_ms / 1000, call_soon, self._finish)

    def _advanced(self) -> None:
        if not self._is_looking and not self._is_finished:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        parked = self._parked
        if not self._is_finished and count_readable(parked.wanted, parked.isolation, parked.min_bytes) >= ENOUGH:
            self._finish()

    def _finish(self) -> None:
        if self._is_finished:
            return
        self._is_finished = True
        self._timer.cancel()
        for unwatch in self._unwatch:
            unwatch()
        self.answer.proceed(self._read)
