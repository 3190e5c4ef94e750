"""Few requests decode at once, and an address with many that wait leaves others their turn."""

import asyncio

import pytest

from pqbroker.broker.ground.looks import Looks


async def begun(looks: Looks, holder: str) -> "asyncio.Task[None]":
    task = asyncio.create_task(looks.begin(holder))
    await asyncio.sleep(0)
    return task


async def turned() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_so_many_begin_and_the_rest_waits() -> None:
    looks = Looks(2)
    tasks = [await begun(looks, "a") for _ in range(3)]
    assert [task.done() for task in tasks] == [True, True, False]
    looks.end()
    await turned()
    assert tasks[2].done()


async def test_addresses_that_wait_take_turns() -> None:
    looks = Looks(1)
    await looks.begin("many")
    many = [await begun(looks, "many") for _ in range(3)]
    few = await begun(looks, "few")
    looks.end()
    await turned()
    assert ([task.done() for task in many], few.done()) == ([True, False, False], False)
    looks.end()
    await turned()
    assert ([task.done() for task in many], few.done()) == ([True, False, False], True)


async def test_one_that_has_gone_is_passed_over() -> None:
    looks = Looks(1)
    await looks.begin("a")
    gone, waiting = await begun(looks, "b"), await begun(looks, "c")
    gone.cancel()
    await turned()
    looks.end()
    await turned()
    assert waiting.done()


async def test_one_that_goes_when_its_turn_has_come_gives_it_on() -> None:
    looks = Looks(1)
    await looks.begin("a")
    gone, waiting = await begun(looks, "b"), await begun(looks, "c")
    looks.end()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await turned()
    assert waiting.done()


async def test_a_request_enters_and_leaves_also_by_an_error() -> None:
    looks = Looks(1)
    with pytest.raises(ValueError, match="broken"):
        async with looks.of("a"):
            raise ValueError("broken")
    async with looks.of("b"):
        waiting = await begun(looks, "c")
        assert not waiting.done()
