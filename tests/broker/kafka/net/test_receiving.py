"""Who may hold memory for a request that has not arrived whole. Time is a number here."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.net.request_budget import ByteBudget, RequestShare
from pqbroker.conf.broker import BrokerSettings

MIB = 1 << 20
STALL_S = 5.0
SMALL = 60 << 10


class Loop:
    """As much of an event loop as is needed: a time that the test moves, and one timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        key = object()
        self._due[key] = (when, call)
        return SimpleNamespace(cancel=lambda: self._due.pop(key, None))

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        for key in [key for key, (when, _) in self._due.items() if when <= self.now]:
            self._due.pop(key)[1]()


class Sender:
    """A connection, as far as `Receiving` sees it."""

    def __init__(self, receiving: Receiving, holder: str | None = None) -> None:
        self._receiving = receiving
        self.share = receiving.budget.share(holder or f"alone {id(self)}")
        self.is_closed = self.is_begun = False
        self.held = 0

    def start(self, size: int) -> None:
        """The first bytes of a request of so many."""
        self.hold(20_000)
        if not self.is_closed and self._receiving.claim(self, size):
            self.begin_claimed()

    def hold(self, held: int) -> None:
        self.held = held
        self._receiving.hold(self, held, is_new=False)

    def bring(self, more: int) -> None:
        if self.is_begun and not self.is_closed:
            self.hold(self.held + more)

    def begin_claimed(self) -> None:
        self.is_begun = True
        self.hold(2 * MIB)

    def give_up(self) -> None:
        self.is_closed = True


class Bench:
    """Senders of one node, and the time."""

    def __init__(self, **settings: Any) -> None:
        self.loop = Loop()
        self.receiving = Receiving(BrokerSettings(**settings), cast(asyncio.AbstractEventLoop, self.loop))

    def sender(self, holder: str | None = None) -> Sender:
        return Sender(self.receiving, holder)

    def senders(self, count: int) -> list[Sender]:
        return [self.sender() for _ in range(count)]


def test_large_requests_share_a_budget_and_the_rest_wait() -> None:
    bench = Bench()
    senders = bench.senders(60)
    for sender in senders:
        sender.start(100 * MIB)
    for _ in range(99):
        for sender in senders:
            sender.bring(MIB)
        assert bench.receiving.unfinished_bytes <= 128 * MIB + 60 * 20_000
    assert [sender.is_closed for sender in senders].count(True) < 60


def test_a_slow_request_passes_beside_many_that_stop() -> None:
    bench = Bench()
    for sender in bench.senders(60):
        sender.start(100 * MIB)
    slow = bench.sender()
    slow.start(100 * MIB)
    for _ in range(60):
        bench.loop.pass_s(STALL_S)
        if slow.is_begun:
            break
    for _ in range(49):
        bench.loop.pass_s(2)
        slow.bring(2 * MIB)
        bench.sender().start(100 * MIB)
    assert (slow.held, slow.is_closed) == (100 * MIB, False)


def test_of_those_that_move_the_one_that_began_last_goes() -> None:
    bench = Bench()
    first, second, third = bench.senders(3)
    for sender in (first, second, third):
        sender.start(36 * MIB)
    first.bring(34 * MIB)
    second.bring(34 * MIB)
    fourth = bench.sender()
    fourth.start(36 * MIB)
    assert fourth.is_begun
    third.bring(34 * MIB)
    fourth.bring(30 * MIB)
    assert [sender.is_closed for sender in (first, second, third, fourth)] == [False, False, False, True]


def test_what_has_stopped_goes_before_what_began_last() -> None:
    bench = Bench()
    stopped, moving, last = bench.senders(3)
    for sender in (stopped, moving, last):
        sender.start(50 * MIB)
    stopped.bring(48 * MIB)
    bench.loop.pass_s(STALL_S)
    last.bring(8 * MIB)
    moving.bring(58 * MIB)
    assert [sender.is_closed for sender in (stopped, moving, last)] == [True, False, False]


def test_a_byte_now_and_then_is_no_progress() -> None:
    bench = Bench()
    trickling, honest = bench.senders(2)
    trickling.start(100 * MIB)
    trickling.bring(97 * MIB)
    for _ in range(int(STALL_S)):
        bench.loop.pass_s(1)
        trickling.bring(1000)
    honest.start(100 * MIB)
    assert (trickling.is_closed, honest.is_begun) == (True, True)


def test_one_who_waits_begins_when_another_does_not_move_or_is_done() -> None:
    bench = Bench()
    stopped, waiting, behind = bench.senders(3)
    stopped.start(100 * MIB)
    stopped.bring(97 * MIB)
    waiting.start(111 * MIB)
    behind.start(111 * MIB)
    assert not waiting.is_begun
    bench.loop.pass_s(STALL_S)
    assert (stopped.is_closed, waiting.is_begun, behind.is_begun) == (True, True, False)
    waiting.bring(109 * MIB)
    bench.receiving.release(waiting)
    assert behind.is_begun


def test_one_who_left_is_not_waited_for() -> None:
    bench = Bench()
    first, gone, last = bench.senders(3)
    first.start(100 * MIB)
    first.bring(97 * MIB)
    gone.start(100 * MIB)
    last.start(100 * MIB)
    bench.receiving.release(gone)
    bench.receiving.release(first)
    assert (gone.is_begun, last.is_begun) == (False, True)
    bench.receiving.release(last)
    assert bench.receiving.is_at_rest


def test_requests_in_work_leave_room_for_small_ones() -> None:
    bench = Bench()
    bench.receiving.budget.taken += 190 * MIB
    large = bench.sender()
    large.start(3 * MIB)
    alone = bench.sender()
    bench.receiving.budget.taken += 3 * MIB
    alone.start(5 * MIB)
    assert (large.is_begun, alone.is_begun) == (True, False)  # the first was alone
    assert not bench.receiving.budget.is_exceeded
    bench.receiving.budget.give_back(100 * MIB)
    assert alone.is_begun


def test_one_request_larger_than_the_whole_budget_passes_alone() -> None:
    bench = Bench(node_bytes_max=10 * MIB)
    huge, second = bench.senders(2)
    huge.start(100 * MIB)
    huge.bring(98 * MIB)
    second.start(100 * MIB)
    assert (huge.is_closed, huge.held, second.is_begun) == (False, 100 * MIB, False)
    bench.receiving.release(huge)
    assert second.is_begun


def test_small_requests_have_a_budget_of_their_own() -> None:
    bench = Bench()
    large = bench.sender()
    large.start(100 * MIB)
    large.bring(98 * MIB)
    senders = bench.senders(2000)
    for sender in senders:
        sender.hold(SMALL)
    assert bench.receiving.unfinished_bytes <= 164 * MIB
    assert not large.is_closed
    assert [sender.is_closed for sender in senders[:1000]] == [False] * 1000
    bench.loop.pass_s(STALL_S)
    late = bench.sender()
    late.hold(SMALL)
    assert (late.is_closed, senders[0].is_closed) == (False, True)


def test_one_that_was_not_read_is_not_blamed() -> None:
    bench = Bench()
    paused, stopped, last = bench.senders(3)
    for sender in (paused, stopped, last):
        sender.start(50 * MIB)
    paused.bring(48 * MIB)
    stopped.bring(48 * MIB)
    bench.loop.pass_s(STALL_S)
    bench.receiving.touch(paused)
    last.bring(48 * MIB)
    assert [sender.is_closed for sender in (paused, stopped, last)] == [False, True, False]


@pytest.mark.parametrize("settings", [{}, {"unfinished_bytes_max": 8 * MIB, "reserved_bytes": 0}])
def test_nothing_is_left_when_all_have_gone(settings: dict[str, int]) -> None:
    bench = Bench(**settings)
    senders = bench.senders(20)
    for number, sender in enumerate(senders):
        sender.start((number + 1) * 5 * MIB)
        sender.bring(MIB)
    for sender in senders:
        bench.receiving.release(sender)
    assert bench.receiving.is_at_rest


def test_of_several_requests_of_the_largest_holder_the_last_goes() -> None:
    bench = Bench()
    few = [bench.sender("few") for _ in range(2)]
    many = [bench.sender("many") for _ in range(20)]
    late = bench.sender("late")
    for sender in (*few, *many, late):
        sender.start(3 * MIB)
        sender.bring(MIB)
    many[0].bring(30 * MIB)
    late.bring(15 * MIB)
    assert [sender.is_closed for sender in (*few, late)] == [False] * 3
    assert many[-1].is_closed


def test_a_holder_has_its_first_large_request_beside_one_that_has_all_but_the_reserve() -> None:
    bench = Bench()
    for _ in range(60):
        bench.sender("many").start(2 * MIB)
    waiting = bench.sender("many")
    waiting.start(2 * MIB)
    first, second = bench.sender("few"), bench.sender("few")
    first.start(4 * MIB)
    first.bring(2 * MIB)
    second.start(2 * MIB)
    assert [sender.is_begun for sender in (waiting, first, second)] == [False, True, False]


def test_of_those_that_wait_the_holder_of_least_is_next() -> None:
    bench = Bench()
    held = [bench.sender("many") for _ in range(2)]
    held[0].start(50 * MIB)
    held[0].bring(48 * MIB)
    held[1].start(50 * MIB)
    held[1].bring(48 * MIB)
    again, other = bench.sender("many"), bench.sender("other")
    again.start(61 * MIB)
    other.start(60 * MIB)
    assert not other.is_begun
    bench.receiving.release(held[0])
    assert [sender.is_begun for sender in (again, other)] == [False, True]


def test_a_holder_of_little_is_read_beside_one_that_has_all_but_the_reserve() -> None:
    budget = Receiving(BrokerSettings(), cast(asyncio.AbstractEventLoop, Loop())).budget
    many, few = budget.share("many"), budget.share("few")
    many.take(budget.open + 1)
    assert (many.may_read, few.may_read) == (False, True)
    few.take(budget.first + 1)
    assert not few.may_read
    few.give_back(1)
    assert few.may_read
    many.take(budget.bytes_max)
    assert not few.may_read


class Taker:
    """A connection that is read or not."""

    def __init__(self, share: RequestShare) -> None:
        self._share = share
        share.takers[self] = None
        self.is_read = True

    def limit(self) -> None:
        self.is_read = self._share.may_read
        if not self.is_read:
            self._share.await_room()

    consider = limit


def test_no_connection_of_a_holder_without_room_is_read_until_there_is_some() -> None:
    budget = ByteBudget(800)
    many, few = budget.share("many"), budget.share("few")
    takers, other = [Taker(many) for _ in range(3)], Taker(few)
    many.take(701)
    takers[0].limit()
    assert [taker.is_read for taker in (*takers, other)] == [False, False, False, True]
    many.give_back(1)
    assert all(taker.is_read for taker in takers)
    assert not budget.is_awaited
