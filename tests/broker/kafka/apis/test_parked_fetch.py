"""A parked Fetch is a value that says when it is met; its wait lets go of everything when it is answered, whatever did
it."""

import asyncio
from typing import Any, cast

import pytest

from pqbroker.broker.kafka.apis.fetch_sessions import SessionPartition
from pqbroker.broker.kafka.apis.parked_fetch import ENOUGH, FetchWait, ParkedFetch, count_readable
from pqbroker.pq.reading.query import READ_UNCOMMITTED
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.watchers import Watchers
from pqbroker.protocol.errors import ErrorCode
from tests.broker.conftest import until


class Watched:
    """A partition that holds `size` bytes, the records [5, end_offset)."""

    def __init__(self, end_offset: int = 10, size: int = 0) -> None:
        self.watchers = Watchers()
        self.start_offset, self.end_offset, self.size = 5, end_offset, size
        self.hole_offset = 1 << 62
        """Offset from which there are no records."""
        self.is_lost = False
        self.looks = 0

    @property
    def state(self) -> "Watched":
        self.looks += 1
        return self

    @property
    def reader(self) -> "Watched":
        return self

    def has_records(self, offset: int, end_offset: int) -> bool:
        return offset < min(end_offset, self.hole_offset)

    def readable_bytes(self, offset: int, end_offset: int, bytes_max: int) -> int:
        return min(self.size if offset < end_offset else 0, bytes_max)

    def advance(self) -> None:
        self.watchers.notify()


def wanted(partition: Watched | None, offset: int = 10, bytes_max: int = 1000) -> SessionPartition:
    found = SessionPartition("t", bytes(16), 0)
    found.partition, found.offset, found.bytes_max = cast(PartitionServer, partition), offset, bytes_max
    return found


def is_met(*items: SessionPartition, min_bytes: int = 100) -> bool:
    return count_readable(items, READ_UNCOMMITTED, min_bytes) == ENOUGH


class Bench:
    """A Fetch parked at the ends of two partitions."""

    def __init__(self, wait_ms: int) -> None:
        self.partitions = [Watched(), Watched()]
        self.timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def counted(*arguments: Any) -> asyncio.TimerHandle:
            self.timers.append(call_later(*arguments))
            return self.timers[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_later", counted)
            parked = ParkedFetch(list(map(wanted, self.partitions)), READ_UNCOMMITTED, 1, wait_ms)
            self.answer = FetchWait(loop, loop.call_soon, parked, lambda: "read").answer
        assert self.answer.hurry is not None
        self.hurry = self.answer.hurry

    @property
    def is_let_go(self) -> bool:
        return not any(partition.watchers for partition in self.partitions)


def test_a_fetch_is_met_by_enough_bytes_of_all_partitions_together() -> None:
    assert not is_met(wanted(Watched()))
    assert not is_met(wanted(Watched(20, 99)))
    assert is_met(wanted(Watched(20, 100)))
    assert is_met(wanted(Watched(20, 60)), wanted(Watched()), wanted(Watched(20, 40)))
    assert not is_met(wanted(Watched(20, 60), bytes_max=59), wanted(Watched(20, 40)))
    assert is_met(wanted(Watched()), min_bytes=0)


def test_a_fetch_in_a_hole_that_reaches_the_end_waits() -> None:
    """It was answered at once, and empty, for ever: client and broker kept a core each busy."""
    partition = Watched(20, 60)
    assert is_met(wanted(partition), min_bytes=1)
    partition.hole_offset = 10
    assert not is_met(wanted(partition), min_bytes=1)
    assert is_met(wanted(partition, 9), min_bytes=1)


def test_a_fetch_of_nothing_is_met() -> None:
    assert is_met()


def test_a_fetch_that_would_answer_an_error_is_met() -> None:
    lost, refused = Watched(), wanted(Watched())
    lost.is_lost = True
    refused.error = ErrorCode.FENCED_LEADER_EPOCH
    for one in (wanted(None), wanted(lost), refused, wanted(Watched(), 4), wanted(Watched(), 11)):
        assert is_met(wanted(Watched()), one)


async def test_enough_answers_and_nothing_is_watched_or_due() -> None:
    bench = Bench(60_000)
    bench.partitions[1].end_offset, bench.partitions[1].size = 11, 1
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
    assert bench.partitions[0].looks == 1
    bench.partitions[0].advance()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.partitions[0].looks == 2
    bench.hurry()


async def test_it_parks_until_its_deadline_and_no_longer() -> None:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    bench = Bench(250)
    assert begun_s + 0.25 <= bench.timers[0].when() <= loop.time() + 0.25
    bench.hurry()
