"""The loop whose time is a number."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Stuck, VirtualLoop


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
