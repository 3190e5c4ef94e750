"""Long work in slices: everything else has its turn between them."""

import asyncio
from collections.abc import Generator
from functools import partial

import pytest

from pqbroker.broker.ground.turns import SLICE_S, Turns

STEPS_PER_SLICE = 4


class Clock:
    """Seconds, moved by the work that is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, slices: int, log: list[str], name: str) -> Generator[None, None, str]:
        """So many slices of work, a fraction of a slice at a step."""
        for _ in range(slices * STEPS_PER_SLICE):
            self.now += SLICE_S / STEPS_PER_SLICE
            log.append(name)
            yield
        return name


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def turns(clock: Clock) -> Turns:
    return Turns(asyncio.get_running_loop(), clock)


async def test_long_work_is_done_in_slices(turns: Turns, clock: Clock) -> None:
    log: list[str] = []
    long = asyncio.create_task(turns.finish(clock.work(10, log, "long")))
    most = 0
    while not long.done():
        before = len(log)
        await asyncio.sleep(0)
        most = max(most, len(log) - before)
    assert await long == "long"
    assert most == STEPS_PER_SLICE


async def test_two_long_works_have_slices_in_turn(turns: Turns, clock: Clock) -> None:
    log: list[str] = []
    await asyncio.gather(*(turns.finish(clock.work(10, log, name)) for name in ("a", "b")))
    slices = [log[first : first + STEPS_PER_SLICE] for first in range(STEPS_PER_SLICE + 1, 40, STEPS_PER_SLICE)]
    assert [names[0] for names in slices] == (["a", "b"] * 5)[: len(slices)]
    assert all(len(set(names)) == 1 for names in slices)


async def test_what_begins_in_one_turn_shares_a_slice(turns: Turns, clock: Clock) -> None:
    end = turns.slice_end()
    clock.now += SLICE_S / 2
    assert turns.slice_end() == end
    await asyncio.sleep(0)
    assert turns.slice_end() == end + SLICE_S / 2


async def test_whoever_gives_up_its_turn_keeps_nobody_waiting(turns: Turns) -> None:
    waiting = [asyncio.create_task(turns.turn()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait_for(waiting[2], 10)
    assert waiting[1].done()


async def test_of_what_begins_alone_one_begins_in_each_turn(turns: Turns) -> None:
    log: list[int] = []
    for number in range(3):
        turns.begin(partial(log.append, number))
    seen = [list(log)]
    while len(log) < 3:
        await asyncio.sleep(0)
        seen.append(list(log))
    assert seen == [[0], [0, 1], [0, 1, 2]]


async def test_what_begins_alone_waits_behind_long_work_that_waits(turns: Turns) -> None:
    log: list[str] = []

    async def wait(name: str) -> None:
        await turns.turn()
        log.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in "ab"]
    await asyncio.sleep(0)
    turns.begin(partial(log.append, "c"))
    await asyncio.gather(*waiting, turns.alone())
    assert log == ["a", "b", "c"]


async def test_work_has_a_slice_beside_what_begins_alone(turns: Turns, clock: Clock) -> None:
    clock.now += 10 * SLICE_S
    turns.begin(int)
    assert turns.slice_end() == clock.now + SLICE_S


async def test_whoever_gives_up_beginning_alone_keeps_nobody_waiting(turns: Turns) -> None:
    waiting = [asyncio.create_task(turns.alone()) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait_for(waiting[3], 10)
    assert waiting[2].done()


async def test_of_many_calls_each_turn_makes_as_many_as_fit_a_slice(turns: Turns, clock: Clock) -> None:
    log: list[int] = []

    def call(number: int) -> None:
        clock.now += SLICE_S / STEPS_PER_SLICE
        log.append(number)

    for number in range(3 * STEPS_PER_SLICE):
        turns.call_soon(partial(call, number))
    for turn in range(4):
        assert log == list(range(turn * STEPS_PER_SLICE))
        await asyncio.sleep(0)
    turns.call_soon(partial(call, -1))
    await asyncio.sleep(0)
    assert log[-1] == -1


async def test_a_call_made_by_a_call_has_a_later_turn(turns: Turns) -> None:
    log: list[str] = []
    turns.call_soon(lambda: turns.call_soon(lambda: log.append("again")))
    turns.call_soon(lambda: log.append("other"))
    await asyncio.sleep(0)
    assert log == ["other"]
    await asyncio.sleep(0)
    assert log == ["other", "again"]


async def test_a_call_that_fails_stops_no_other(turns: Turns) -> None:
    log: list[str] = []
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    defect = RuntimeError("a defect")

    def fail() -> None:
        raise defect

    turns.call_soon(fail)
    turns.call_soon(lambda: log.append("other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (log, errors) == (["other"], [defect])
