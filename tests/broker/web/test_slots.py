"""Slots of HTTP connections: who is closed for whom, and when. Time is a number."""

import pytest

from pqbroker.broker.web.slots import HeldBytes, Slot, Slots, State

LIMIT_BYTES = 100


class Bench:
    """Slots of two kinds; names of connections that were closed."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.count_max = 2
        """Slots of each kind."""
        self.closed: list[str] = []
        self.held = HeldBytes(lambda: LIMIT_BYTES)
        self.slots, self.other = (Slots(self._clock, self.held, lambda: self.count_max) for _ in range(2))
        self.held.counted = (self.slots, self.other)

    def enter(self, name: str, slots: Slots | None = None, holder: str = "") -> Slot:
        slot = (self.slots if slots is None else slots).enter(lambda: self.closed.append(name), State.ARRIVED, holder)
        assert slot is not None
        return slot

    def refuses(self, holder: str = "") -> bool:
        return self.slots.enter(lambda: None, State.ARRIVED, holder) is None

    def _clock(self) -> float:
        self.now_s += 1
        return self.now_s


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_who_is_worked_for_keeps_its_place(bench: Bench) -> None:
    bench.enter("arrived")
    bench.enter("working").work()
    assert bench.refuses()
    assert bench.closed == []


def test_one_address_cannot_have_all_places(bench: Bench) -> None:
    bench.count_max = 16
    theirs = [bench.enter(f"theirs {number}", holder="theirs") for number in range(14)]
    for slot in theirs:
        slot.work()
    assert bench.refuses("theirs")
    ours, another = bench.enter("ours", holder="ours"), bench.enter("another's", holder="another's")
    ours.work()
    another.rest()
    assert bench.refuses("theirs"), "an address over its share closes nobody else's connection"
    theirs[3].rest()
    bench.enter("theirs again", holder="theirs")
    assert bench.closed == ["theirs 3"]
    for slot in (ours, another, theirs[5]):
        slot.leave()
    assert not bench.refuses("theirs")


def test_an_idle_connection_goes_before_a_slow_one_and_the_longest_waiting_first(bench: Bench) -> None:
    slow, idle = bench.enter("slow"), bench.enter("idle")
    slow.wait()
    idle.rest()
    bench.enter("a").rest()
    assert bench.closed == ["idle"]
    bench.enter("b").wait()
    assert bench.closed == ["idle", "a"]
    bench.enter("c")
    assert bench.closed == ["idle", "a", "slow"]


def test_a_byte_now_and_then_does_not_make_a_slow_connection_younger(bench: Bench) -> None:
    dripping, later = bench.enter("dripping"), bench.enter("later")
    dripping.rest()
    dripping.hear()
    later.wait()
    dripping.hear()
    bench.enter("new")
    assert bench.closed == ["dripping"]


def test_a_closed_connection_does_not_come_back(bench: Bench) -> None:
    first = bench.enter("first")
    first.wait()
    assert first.hold(60)
    bench.enter("second")
    bench.enter("third")
    first.rest()
    first.leave()
    assert (len(bench.slots), bench.held.total) == (2, 0)


def test_bytes_are_made_room_for_by_closing_slow_connections_of_any_kind(bench: Bench) -> None:
    bench.count_max = 9
    slow, empty, working = bench.enter("slow", bench.other), bench.enter("empty", bench.other), bench.enter("working")
    assert slow.hold(50)
    slow.wait()
    empty.wait()
    working.work()
    assert working.hold(50)
    asking = bench.enter("asking")
    assert asking.hold(40)
    assert bench.closed == ["slow"]
    assert not asking.hold(20)
    assert bench.held.total == 90
    working.rest()
    assert asking.hold(20)


def test_what_takes_too_long_is_closed_each_by_its_own_time(bench: Bench) -> None:
    bench.count_max = 9
    bench.enter("slow").wait()
    bench.enter("idle", bench.other).rest()
    bench.enter("working").work()
    bench.now_s = 100
    bench.slots.close_overdue(50, 500)
    bench.other.close_overdue(50, 500)
    assert bench.closed == ["slow"]
    bench.now_s = 1000
    bench.other.close_overdue(50, 500)
    assert bench.closed == ["slow", "idle"]
