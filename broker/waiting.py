"""A parked Fetch: it waits until enough is there, its deadline, or somebody's hurry. It reads nothing itself.

States: parked -> finished, by the first of: enough bytes, an error, the deadline, `hurry`. Finishing unsubscribes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pqbroker.broker.answer import Answer

if TYPE_CHECKING:
    from pqbroker.pq.partition_server import PartitionServer


class ParkedFetch:
    """Watches partitions; looks once per turn of the loop, so that one commit's advances give one answer."""

    __slots__ = ("_is_enough", "_is_finished", "_is_looking", "_loop", "_read", "_timer", "_unwatch", "answer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wait_ms: int,
        partitions: "Iterable[PartitionServer]",
        is_enough: Callable[[], bool],
        read: Callable[[], Any],
    ) -> None:
        self._loop = loop
        self._is_enough = is_enough
        self._read = read
        self._is_finished = self._is_looking = False
        self.answer: Answer[Any] = Answer(hurry=self._finish)
        self._unwatch = [partition.watch(self._advanced) for partition in partitions]
        self._timer = loop.call_later(wait_ms / 1000, self._finish)

    def _advanced(self) -> None:
        if not self._is_looking and not self._is_finished:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if not self._is_finished and self._is_enough():
            self._finish()

    def _finish(self) -> None:
        if self._is_finished:
            return
        self._is_finished = True
        self._timer.cancel()
        for unwatch in self._unwatch:
            unwatch()
        self.answer.proceed(self._read)
