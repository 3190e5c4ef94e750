"""A Fetch of many partitions that waits: it watches them, looks at them and lets go of them in slices of the loop.

States: watching -> parked -> finished, as a Fetch of few (`parked_fetch.py`), or given up while it begins to watch.
It lets go before it is read: what watches holds the Fetch in memory, which its budget counts until it is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.context import KafkaNode
from pqbroker.broker.kafka.apis.parked_fetch import ENOUGH, ParkedFetch, count_readable
from pqbroker.pq.serving.watchers import Watchers

_AT_ONCE: Final = 100
"""Partitions between two looks at the time: a fraction of a millisecond."""


class LongFetchWait:
    """`read` makes the answer, in the dispatcher's hands."""

    __slots__ = (
        "_is_finished", "_is_looking", "_is_moved", "_node", "_parked", "_read", "_tasks", "_timer",
        "_watched", "answer",
    )

    def __init__(self, node: KafkaNode, parked: ParkedFetch, read: Callable[[], Awaitable[Any]]) -> None:
        self._node = node
        self._parked = parked
        self._read = read
        self._is_finished = self._is_looking = self._is_moved = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: list[Watchers] = []
        """Watchers that this one is among: another request of its session may change what that wants meanwhile."""
        self.answer: Answer[Any] = Answer(hurry=self._finish)

    async def park(self) -> bool:
        """Watch the partitions; False when there is something to answer at once."""
        is_parked = False
        try:
            await self._watch()
            is_parked = not await self._is_met() and not self._is_moved
        finally:
            if not is_parked:
                self._is_finished = True
                await asyncio.shield(self._begin(self._unwatch()))
        if is_parked:
            self._timer = self._node.loop.call_later(self._parked.wait_ms / 1000, self._finish)
        return is_parked

    async def _watch(self) -> None:
        advanced = self._advanced  # one for all: a hundred thousand of them are work for the collector
        for number, wanted in enumerate(self._parked.wanted):
            if not number % _AT_ONCE:
                await self._node.turns.breathe()
            if wanted.partition is not None:
                self._watched.append(wanted.partition.watchers)
                wanted.partition.watchers.put(self, advanced)

    async def _unwatch(self) -> None:
        for number, watchers in enumerate(self._watched):
            if not number % _AT_ONCE:
                await self._node.turns.breathe()
            watchers.forget(self)

    async def _is_met(self) -> bool:
        parked, wanted, readable = self._parked, self._parked.wanted, 0
        for start in range(0, len(wanted), _AT_ONCE):
            await self._node.turns.breathe()
            some = wanted[start : start + _AT_ONCE]
            readable = count_readable(some, parked.isolation, parked.min_bytes, readable)
            if readable >= ENOUGH:
                return True
        return False

    def _advanced(self) -> None:
        self._is_moved = True
        if self._timer is not None and not self._is_looking and not self._is_finished:
            self._is_looking = True
            self._begin(self._look())

    async def _look(self) -> None:
        while self._is_moved and not self._is_finished:
            self._is_moved = False
            if await self._is_met() and not self._is_finished:
                self._finish()
        self._is_looking = False

    def _finish(self) -> None:
        if self._is_finished:
            return
        self._is_finished = True
        assert self._timer is not None
        self._timer.cancel()
        self.answer.proceed(partial(_read_after, self._begin(self._unwatch()), self._read))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _read_after(unwatching: "asyncio.Task[None]", read: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.shield(unwatching)
    return await read()
