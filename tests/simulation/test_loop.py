"""The loop whose time is a number."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.run import collected_once


def _run(work: Coroutine[Any, Any, Any], thread_seconds: Callable[[], float] = float) -> tuple[Any, VirtualLoop]:
    loop = VirtualLoop(thread_seconds)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work), loop


def test_a_year_of_sleep_takes_no_time() -> None:
    _, loop = _run(asyncio.sleep(365 * 86_400))
    assert loop.time() == pytest.approx(365 * 86_400)


def test_what_is_due_first_comes_first() -> None:
    async def work() -> list[int]:
        order: list[int] = []
        for number in (3, 1, 2):
            asyncio.get_running_loop().call_later(number, order.append, number)
        await asyncio.sleep(4)
        return order

    assert _run(work())[0] == [1, 2, 3]


def test_a_threads_work_is_done_on_the_loop_and_takes_the_time_it_is_said_to() -> None:
    def divide(by: int) -> float:
        return 1 / by

    async def work() -> float:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divide, 0)
        return await asyncio.to_thread(divide, 2)

    half, loop = _run(work(), lambda: 5.0)
    assert half == 0.5
    assert loop.time() == pytest.approx(10)


def test_waiting_for_nobody_is_found_out() -> None:
    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        _run(work())


def test_never_waiting_is_found_out() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < 1:  # noqa: ASYNC110 - a defect is what is wanted
            await asyncio.sleep(0)

    with pytest.raises(Stuck):
        _run(work())


def test_a_callback_that_fails_is_a_defect() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_soon(int, "one")
        await asyncio.sleep(1)

    _, loop = _run(work())
    assert len(loop.defects) == 1


def test_a_task_that_failed_and_was_forgotten_is_a_defect_once_all_is_collected() -> None:
    defects: list[str] = []

    async def fail(holder: list[object]) -> None:
        holder.append(asyncio.current_task())
        raise AssertionError("forgotten")

    async def work() -> None:
        asyncio.get_running_loop().create_task(fail([]))
        await asyncio.sleep(1)

    with collected_once(), asyncio.Runner(loop_factory=lambda: VirtualLoop(defects=defects)) as runner:
        runner.run(work())
        assert not defects
    assert "forgotten" in "".join(defects)


def test_a_run_is_collected_and_what_is_older_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="stop"), collected_once():
        raise ValueError("stop")
    assert gc.get_threshold() == before


def test_timers_that_were_taken_back_do_not_run_whatever_their_number() -> None:
    async def work() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(1 + number % 7, order.append, number) for number in range(1000)]
        for timer in timers[5:]:
            timer.cancel()
        await asyncio.sleep(10)
        return order

    assert _run(work())[0] == [0, 1, 2, 3, 4]
