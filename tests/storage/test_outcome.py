"""An outcome: told once, in the call that settles it, to all who asked."""

import asyncio

import pytest

from pqbroker.storage.outcome import Outcome


async def test_listeners_are_told_in_the_call_that_settles_it() -> None:
    outcome: Outcome[int] = Outcome()
    told: list[tuple[str, int]] = []
    for name in ("a", "b"):
        outcome.add_done_callback(lambda done, name=name: told.append((name, done.result())))  # type: ignore[misc]
    assert not outcome.done()
    outcome.set_result(7)
    assert told == [("a", 7), ("b", 7)]


async def test_a_listener_that_comes_late_is_told_in_the_next_turn() -> None:
    outcome: Outcome[int] = Outcome.failed(ValueError("no"))
    told: list[BaseException | None] = []
    outcome.add_done_callback(lambda done: told.append(done.exception()))
    assert told == []
    await asyncio.sleep(0)
    assert [str(error) for error in told] == ["no"]


async def test_it_is_awaited_for_its_result_or_its_error() -> None:
    good: Outcome[int] = Outcome()
    bad: Outcome[int] = Outcome()
    waiting = asyncio.gather(good, bad, bad.wait(), return_exceptions=True)
    await asyncio.sleep(0)
    good.set_result(1)
    bad.set_exception(ValueError("no"))
    result, error, waited = await waiting
    assert (result, str(error), waited) == (1, "no", None)
    assert await good == 1
    with pytest.raises(ValueError, match="no"):
        await bad


async def test_a_caller_who_is_cancelled_changes_nothing() -> None:
    outcome: Outcome[int] = Outcome()
    caller = asyncio.ensure_future(outcome.wait())
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    outcome.set_result(1)
    assert await outcome == 1


async def test_it_is_settled_once() -> None:
    outcome: Outcome[int] = Outcome()
    outcome.set_result(1)
    with pytest.raises(AssertionError):
        outcome.set_exception(ValueError())
