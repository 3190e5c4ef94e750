"""The node's budget of answers: who waits for it, and that none waits for ever."""

import asyncio

from pqbroker.broker.net.answer_budget import SMALL_ANSWER_BYTES, AnswerBudget, Untaken

MAX = 1000


async def waits(budget: AnswerBudget, holder: object) -> "asyncio.Task[None]":
    """A holder that asks for room, after it had time to get it."""
    task = asyncio.create_task(budget.room(holder))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_over_the_limit_one_goes_on_and_others_wait_for_its_end() -> None:
    budget = AnswerBudget(MAX)
    for holder in ("a", "b"):
        budget.grow(holder, 600)
    first, second = await waits(budget, "a"), await waits(budget, "b")
    assert (first.done(), second.done()) == (True, False)
    budget.end("a")
    await asyncio.wait_for(second, 10)
    assert budget.made == 600


async def test_bytes_that_clients_do_not_take_hold_back_everybody() -> None:
    budget = AnswerBudget(MAX)
    untaken = Untaken(budget)
    untaken.become(1001, now=0.0)
    budget.grow("a", 1)
    waiting = await waits(budget, "a")
    assert not waiting.done()
    untaken.become(0, now=1.0)
    await asyncio.wait_for(waiting, 10)
    assert budget.unsent == 0


async def test_the_next_goes_on_when_the_favoured_one_ends_though_there_is_no_room() -> None:
    budget = AnswerBudget(MAX)
    for holder in ("a", "b", "c"):
        budget.grow(holder, 1500)
    tasks = [await waits(budget, holder) for holder in ("a", "b", "c")]
    budget.end("a")
    await asyncio.wait_for(tasks[1], 10)
    assert not tasks[2].done()
    budget.end("b")
    await asyncio.wait_for(tasks[2], 10)
    budget.end("c")
    budget.end("c")
    assert (budget.made, budget.is_exceeded) == (0, False)


async def test_one_that_gives_up_waiting_is_forgotten() -> None:
    budget = AnswerBudget(MAX)
    for holder in ("a", "b"):
        budget.grow(holder, 1500)
    await waits(budget, "a")
    waiting = await waits(budget, "b")
    waiting.cancel()
    budget.end("b")
    budget.end("a")
    assert not budget.is_exceeded


def test_a_peer_that_takes_less_than_a_small_answer_is_stalled() -> None:
    untaken = Untaken(AnswerBudget(MAX))
    size = 10 * SMALL_ANSWER_BYTES
    untaken.become(size, now=0.0)
    assert not untaken.is_stalled(size, now=4.0, stall_s=5.0)
    assert not untaken.is_stalled(size - SMALL_ANSWER_BYTES, now=4.5, stall_s=5.0)
    assert not untaken.is_stalled(size - SMALL_ANSWER_BYTES - 1, now=9.0, stall_s=5.0)
    assert untaken.is_stalled(size - SMALL_ANSWER_BYTES - 1, now=9.5, stall_s=5.0)


def test_a_peer_that_has_taken_everything_is_not() -> None:
    untaken = Untaken(AnswerBudget(MAX))
    assert not untaken.is_stalled(0, now=100.0, stall_s=5.0)
