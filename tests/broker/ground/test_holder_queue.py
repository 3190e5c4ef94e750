"""Queues of requests: each address has its share, and those that wait take turns."""

import asyncio

import pytest

from pqbroker.broker.ground.holder_queue import HolderQueue, QueueFull


class Queries:
    """Slots, and the tasks of queries that have asked for one."""

    def __init__(self, most: int) -> None:
        self.slots = HolderQueue(has_reserve=True)
        self.most = most

    async def ask(self, holder: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(self.slots.begin(holder, self.most))
        await settled()
        return task

    async def end(self, holder: str) -> None:
        self.slots.end(holder)
        await settled()


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_one_address_leaves_a_place_to_others() -> None:
    queries = Queries(2)
    many = [await queries.ask("many") for _ in range(3)]
    assert [task.done() for task in many] == [True, False, False]
    assert (await queries.ask("few")).done()
    assert (queries.slots.running, queries.slots.waiting) == (2, 2)


async def test_of_many_places_an_eighth_is_for_addresses_that_have_none() -> None:
    queries = Queries(64)
    many = [await queries.ask("many") for _ in range(60)]
    assert [task.done() for task in many].count(True) == 56
    assert (await queries.ask("few")).done()
    assert not (await queries.ask("few")).done()


async def test_a_single_place_goes_from_address_to_address() -> None:
    queries = Queries(1)
    assert (await queries.ask("many")).done()
    many = [await queries.ask("many") for _ in range(3)]
    few = await queries.ask("few")
    await queries.end("many")
    assert ([task.done() for task in many], few.done()) == ([True, False, False], False)
    await queries.end("many")
    assert ([task.done() for task in many], few.done()) == ([True, False, False], True)
    await queries.end("few")
    assert [task.done() for task in many] == [True, True, False]


async def test_an_address_over_its_share_is_passed_over_and_keeps_its_turn() -> None:
    queries = Queries(2)
    assert (await queries.ask("many")).done()
    assert (await queries.ask("few")).done()
    many, few, other = await queries.ask("many"), await queries.ask("few"), await queries.ask("other")
    await queries.end("few")
    assert (many.done(), few.done(), other.done()) == (False, True, False)  # it has none, and came before the other
    await queries.end("few")
    assert (many.done(), other.done()) == (False, True)
    await queries.end("other")
    assert not many.done()
    await queries.end("many")
    assert many.done()


async def test_one_that_has_gone_is_passed_over() -> None:
    queries = Queries(1)
    assert (await queries.ask("a")).done()
    gone, waiting = await queries.ask("b"), await queries.ask("c")
    gone.cancel()
    await queries.end("a")  # also where nobody has seen yet that it was cancelled
    assert waiting.done()
    assert queries.slots.waiting == 0
    again = await queries.ask("d")
    again.cancel()
    await settled()
    assert queries.slots.waiting == 0


async def test_one_that_goes_when_its_turn_has_come_gives_it_on() -> None:
    queries = Queries(1)
    assert (await queries.ask("a")).done()
    gone, waiting = await queries.ask("b"), await queries.ask("c")
    queries.slots.end("a")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await settled()
    assert waiting.done()
    assert queries.slots.running == 1


async def test_fewer_places_end_no_query_and_begin_none() -> None:
    queries = Queries(2)
    assert (await queries.ask("a")).done()
    assert (await queries.ask("b")).done()
    queries.most = 1
    waiting = await queries.ask("c")
    await queries.end("a")
    assert not waiting.done()
    await queries.end("b")
    assert waiting.done()


async def is_refused(slots: HolderQueue, holder: str, most: int, waiting_max: int) -> bool:
    task = asyncio.create_task(slots.begin(holder, most, waiting_max))
    await settled()
    return task.done() and isinstance(task.exception(), QueueFull)


async def test_places_to_wait_are_shared_by_address() -> None:
    slots = HolderQueue(has_reserve=True)
    holders = ["many"] * 4 + ["few"] * 2
    asked = [(holder, await is_refused(slots, holder, 1, 3)) for holder in holders]
    assert asked == [
        ("many", False), ("many", False), ("many", False), ("many", True), ("few", False), ("few", True),
    ]  # fmt: skip
    assert await is_refused(slots, "other", 1, 3)
    assert (slots.running, slots.waiting) == (1, 3)
    for holder in ("many", "many", "few", "many"):
        slots.end(holder)
        await settled()
    assert (slots.running, slots.waiting) == (0, 0)


async def test_without_places_to_wait_a_request_runs_or_is_refused() -> None:
    slots = HolderQueue(has_reserve=True)
    assert [await is_refused(slots, holder, 2, 0) for holder in ("a", "b", "c")] == [False, False, True]
    slots.end("a")
    assert not await is_refused(slots, "c", 2, 0)
    assert (slots.running, slots.waiting) == (2, 0)
