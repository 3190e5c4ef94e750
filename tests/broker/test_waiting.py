"""A parked Fetch lets go of everything when it is answered, whatever answered it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pqbroker.broker.waiting import ParkedFetch
from pqbroker.pq.partition_server import PartitionServer
from tests.broker.conftest import until


class Watched:
    """A partition of which only the watchers matter."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[], None]] = []

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.watchers.append(callback)
        return lambda: self.watchers.remove(callback)

    def advance(self) -> None:
        for watcher in list(self.watchers):
            watcher()


class Bench:
    """A Fetch parked at two partitions, of which `has_enough` says when it may go."""

    def __init__(self, wait_ms: int) -> None:
        self.partitions = [Watched(), Watched()]
        self.has_enough = False
        self.looks = 0
        self.timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def counted(*arguments: Any) -> asyncio.TimerHandle:
            self.timers.append(call_later(*arguments))
            return self.timers[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_later", counted)
            parked = ParkedFetch(
                loop, wait_ms, cast(list[PartitionServer], self.partitions), self._is_enough, lambda: "read"
            )
        self.answer = parked.answer
        assert self.answer.hurry is not None
        self.hurry = self.answer.hurry

    @property
    def is_let_go(self) -> bool:
        return not any(partition.watchers for partition in self.partitions)

    def _is_enough(self) -> bool:
        self.looks += 1
        return self.has_enough


async def test_enough_answers_and_nothing_is_watched_or_due() -> None:
    bench = Bench(60_000)
    bench.has_enough = True
    bench.partitions[1].advance()
    await until(lambda: bench.answer.settled)
    assert bench.is_let_go
    assert bench.timers[0].cancelled()


async def test_a_hurry_answers_once() -> None:
    bench = Bench(60_000)
    bench.hurry()
    assert bench.answer.settled
    bench.hurry()
    assert bench.is_let_go
    assert bench.timers[0].cancelled()


async def test_the_deadline_answers() -> None:
    bench = Bench(1)
    await until(lambda: bench.answer.settled)
    assert bench.is_let_go


async def test_many_advances_of_a_turn_are_one_look() -> None:
    bench = Bench(60_000)
    for _ in range(3):
        for partition in bench.partitions:
            partition.advance()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.looks == 1
    bench.partitions[0].advance()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.looks == 2
    bench.hurry()


async def test_it_parks_until_its_deadline_and_no_longer() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    bench = Bench(250)
    assert bench.timers[0].when() == pytest.approx(begun + 0.25, abs=0.1)
    bench.hurry()
