"""A Fetch of many partitions: it waits as one of few does, and no part of it takes long."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.long_fetch_wait import LongFetchWait
from pqbroker.broker.kafka.apis.parked_fetch import ParkedFetch
from pqbroker.broker.node.parts import Node
from pqbroker.pq.reading.query import READ_UNCOMMITTED
from tests.broker.conftest import until
from tests.broker.kafka.apis.test_parked_fetch import Watched, wanted

COUNT = 1000


class Bench:
    """A Fetch of a thousand partitions that waits for their end to move; a slice is over after a hundred."""

    def __init__(self, wait_ms: int = 60_000, min_bytes: int = 1) -> None:
        self.partitions = [Watched() for _ in range(COUNT)]
        self.turns = 0
        loop = asyncio.get_running_loop()
        node = SimpleNamespace(loop=loop, turns=Turns(loop, self._passes))
        self.parked = ParkedFetch(list(map(wanted, self.partitions)), READ_UNCOMMITTED, min_bytes, wait_ms)
        self.wait = LongFetchWait(cast(Node, node), self.parked, self._read)

    async def _read(self) -> tuple[str, int]:
        return "read", self.watched

    def _passes(self) -> float:
        self.turns += 1
        return float(self.turns)

    @property
    def watched(self) -> int:
        return sum(map(len, (partition.watchers for partition in self.partitions)))

    def advance(self, size: int = 100, index: int = COUNT // 2) -> None:
        partition = self.partitions[index]
        partition.end_offset, partition.size = partition.end_offset + 1, partition.size + size
        partition.watchers.notify()


async def test_it_is_answered_when_one_of_its_partitions_moves_and_lets_go_of_all() -> None:
    bench = Bench()
    assert await bench.wait.park()
    assert (bench.watched, bench.wait.answer.settled) == (COUNT, False)
    bench.advance()
    await until(lambda: bench.wait.answer.settled)
    await until(lambda: bench.watched == 0)
    assert bench.turns > 3 * COUNT // 100


async def test_it_lets_go_of_what_another_request_of_its_session_wants_no_more() -> None:
    """Partitions that the other one could not read had watched for the Fetch as long as they lived."""
    bench = Bench()
    assert await bench.wait.park()
    for one in bench.parked.wanted[:100]:
        one.partition = None
    bench.advance()
    await until(lambda: bench.watched == 0)


async def test_it_lets_go_before_it_is_read() -> None:
    bench = Bench()
    assert await bench.wait.park()
    bench.advance()
    await until(lambda: bench.wait.answer.settled)
    assert bench.wait.answer.step is not None
    assert await bench.wait.answer.step() == ("read", 0)


async def test_it_waits_on_when_less_than_enough_has_come() -> None:
    bench = Bench(min_bytes=150)
    assert await bench.wait.park()
    bench.advance()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not bench.wait.answer.settled
    bench.advance()
    await until(lambda: bench.wait.answer.settled)


async def test_what_partitions_far_apart_have_counts_together() -> None:
    bench = Bench(min_bytes=150)
    assert await bench.wait.park()
    bench.advance(index=0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not bench.wait.answer.settled
    bench.advance(index=COUNT - 1)
    await until(lambda: bench.wait.answer.settled)


async def test_what_moves_while_it_begins_to_wait_is_not_missed() -> None:
    bench = Bench()
    parking = asyncio.ensure_future(bench.wait.park())
    await until(lambda: bench.watched == COUNT)
    bench.advance()
    assert not await parking
    await until(lambda: bench.watched == 0)


async def test_what_moves_behind_the_look_that_it_begins_with_is_not_missed() -> None:
    bench = Bench()
    parking = asyncio.ensure_future(bench.wait.park())
    await until(lambda: bench.watched == COUNT)
    watched = bench.turns
    await until(lambda: bench.turns > watched + 3)
    bench.advance(index=0)
    assert not parking.done()
    assert not await parking
    await until(lambda: bench.watched == 0)


async def test_it_is_answered_when_its_time_is_over() -> None:
    bench = Bench(wait_ms=1)
    assert await bench.wait.park()
    await until(lambda: bench.wait.answer.settled)
    await until(lambda: bench.watched == 0)


async def test_it_is_answered_at_once_when_hurried() -> None:
    bench = Bench()
    assert await bench.wait.park()
    assert bench.wait.answer.hurry is not None
    bench.wait.answer.hurry()
    assert bench.wait.answer.settled
    bench.advance()
    await until(lambda: bench.watched == 0)


async def test_one_whose_client_goes_while_it_begins_to_wait_lets_go() -> None:
    bench = Bench()
    parking = asyncio.ensure_future(bench.wait.park())
    await until(lambda: bench.watched > 0)
    parking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parking
    await until(lambda: bench.watched == 0)
