"""What has begun is made whole: kept, told, and not undone, when whoever asked for it has gone."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from pqbroker.storage.uninterrupted import Uninterrupted, uninterrupted


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    """What asyncio finds wrong, such as a task that is destroyed or a failure that nobody asked for."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


class Step:
    """Something that only the change itself waits for and holds; `ref` finds it as long as somebody does."""

    def __init__(self) -> None:
        self.ref: weakref.ref[asyncio.Future[int]] | None = None

    async def change(self) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.ref = weakref.ref(future)
        return await future

    @property
    def future(self) -> "asyncio.Future[int]":
        gc.collect()
        assert self.ref is not None
        found = self.ref()
        assert found is not None, "nobody holds what was begun"
        return found


async def give_up(change: Coroutine[Any, Any, int]) -> None:
    """Begin a change, and be gone while it is under way."""

    async def ask() -> int:
        return await uninterrupted(change)

    caller = asyncio.ensure_future(ask())
    await turns()
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def step() -> Step:
    return Step()


async def test_who_waits_has_the_result_or_the_error(step: Step) -> None:
    change = uninterrupted(step.change())
    await turns()
    step.future.set_result(7)
    assert await change == 7
    change = uninterrupted(step.change())
    await turns()
    step.future.set_exception(ValueError("no room"))
    with pytest.raises(ValueError, match="no room"):
        await change


async def test_a_change_whose_caller_has_gone_is_kept_to_its_end(step: Step, complaints: list[Any]) -> None:
    ended: list[int] = []

    async def change() -> int:
        ended.append(await step.change())
        return 0

    await give_up(change())
    step.future.set_result(7)
    await turns()
    assert ended == [7]
    assert complaints == []


async def test_a_failure_that_nobody_waits_for_is_told_once(
    step: Step, complaints: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await give_up(step.change())
    step.future.set_exception(ValueError("no room"))
    await turns()
    gc.collect()
    assert complaints == []
    assert [record.getMessage() for record in caplog.records] == [
        "a change failed after its client had gone: no room"
    ]


async def test_of_several_who_wait_one_may_go(step: Step, complaints: list[Any]) -> None:
    task = asyncio.get_running_loop().create_task(step.change())

    async def wait() -> int:
        return await Uninterrupted(task)

    first, second = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
    await turns()
    first.cancel()
    await turns()
    step.future.set_result(7)
    assert await second == 7
    assert first.cancelled()
    assert complaints == []
