"""Few requests decode at once, and an address with many that wait leaves others their turn."""

import asyncio

import pytest

from pqbroker.broker.ground.looks import Look, Looks


class Entered:
    """A request that has asked to decode."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._task = asyncio.create_task(look.__aenter__())

    @property
    def has_begun(self) -> bool:
        return self._task.done()

    async def leave(self) -> None:
        await self._look.__aexit__(None, None, None)
        await settled()


async def ask(looks: Looks, holder: str) -> Entered:
    entered = Entered(looks.of(holder))
    await settled()
    return entered


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_so_many_begin_and_the_rest_waits() -> None:
    looks = Looks(2)
    all_of_one = [await ask(looks, "a") for _ in range(3)]
    assert [each.has_begun for each in all_of_one] == [True, True, False], "nothing is kept for others"
    await all_of_one[0].leave()
    assert all_of_one[2].has_begun


async def test_addresses_that_wait_take_turns() -> None:
    looks = Looks(1)
    first, *many = [await ask(looks, "many") for _ in range(4)]
    few = await ask(looks, "few")
    await first.leave()
    assert ([each.has_begun for each in many], few.has_begun) == ([True, False, False], False)
    await many[0].leave()
    assert ([each.has_begun for each in many], few.has_begun) == ([True, False, False], True)


async def test_a_request_enters_and_leaves_also_by_an_error() -> None:
    looks = Looks(1)
    look = looks.of("a")
    with pytest.raises(ValueError, match="broken"):
        async with look:
            raise ValueError("broken")
    async with look:
        waiting = await ask(looks, "c")
        assert not waiting.has_begun
    await settled()
    assert waiting.has_begun
