"""Checks of passwords: one thread, keys in turns, a bounded queue."""

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from pqbroker.broker.services.logins import password_checks as checks_module
from pqbroker.broker.services.logins.password_checks import CheckKey, PasswordChecks, TooManyChecks

LOUD, QUIET = CheckKey("192.0.2.1", ""), CheckKey("192.0.2.2", "alice")


class Bench:
    """Checks whose first one is held."""

    def __init__(self, checks_max: int) -> None:
        self.checks = PasswordChecks(asyncio.get_running_loop(), lambda: checks_max)
        self.go_on = threading.Event()
        self.ran: list[str] = []

    def work(self, name: str) -> Callable[[], bool]:
        def run() -> bool:
            self.go_on.wait(10)
            self.ran.append(name)
            return name.endswith("right")

        return run

    def begin(self, key: CheckKey, name: str) -> "asyncio.Task[bool]":
        return asyncio.ensure_future(self.checks.run(key, self.work(name)))

    async def finish(self, tasks: "list[asyncio.Task[bool]]") -> list[bool]:
        self.go_on.set()
        found = [await task for task in tasks]
        self.checks.close()
        return found


async def test_keys_take_turns() -> None:
    bench = Bench(100)
    tasks = [bench.begin(LOUD, f"loud {number}") for number in range(4)] + [bench.begin(QUIET, "quiet, right")]
    await asyncio.sleep(0)
    assert await bench.finish(tasks) == [False] * 4 + [True]
    assert bench.ran.index("quiet, right") == 2


async def test_one_more_than_may_wait_is_refused() -> None:
    bench = Bench(8)
    tasks = [bench.begin(LOUD, str(number)) for number in range(7)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyChecks):
        await bench.checks.run(LOUD, bench.work("one more"))
    await bench.finish(tasks)


async def test_one_key_leaves_room_for_another() -> None:
    bench = Bench(8)
    tasks = [bench.begin(LOUD, str(number)) for number in range(20)]
    await asyncio.sleep(0)
    quiet = bench.begin(QUIET, "quiet, right")
    await asyncio.sleep(0)
    bench.go_on.set()
    assert await quiet
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(end, TooManyChecks) for end in ended) == 13
    bench.checks.close()


async def test_a_caller_that_leaves_frees_its_place() -> None:
    bench = Bench(8)
    tasks = [bench.begin(LOUD, str(number)) for number in range(7)]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait(tasks[1:])
    again = [bench.begin(LOUD, "again, right") for _ in range(6)]
    await asyncio.sleep(0)
    assert await bench.finish([tasks[0], *again]) == [False] + [True] * 6
    assert bench.ran == ["0"] + ["again, right"] * 6


async def test_an_error_of_a_check_reaches_its_caller_and_the_next_one_runs() -> None:
    bench = Bench(8)

    def fail() -> bool:
        raise UnicodeError("no password")

    failing = asyncio.ensure_future(bench.checks.run(LOUD, fail))
    following = bench.begin(LOUD, "right")
    bench.go_on.set()
    with pytest.raises(UnicodeError):
        await failing
    assert await following
    bench.checks.close()


async def test_an_error_whose_caller_has_left_is_no_traceback_in_the_log() -> None:
    """A client that sent a token of no form and closed its connection left one in the broker's log."""
    bench, logged = Bench(8), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(str(context["message"])))

    def fail() -> bool:
        bench.go_on.wait(10)
        raise UnicodeError("no password")

    failing = asyncio.ensure_future(bench.checks.run(LOUD, fail))
    following = bench.begin(LOUD, "right")
    await asyncio.sleep(0)
    failing.cancel()
    bench.go_on.set()
    assert await following
    await asyncio.wait([failing])
    del failing
    gc.collect()
    assert logged == []
    bench.checks.close()


class Clock:
    """Time as the thread sees it: its own processor time, which checks take, and that of the clock on the wall."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.computed_s = 100.0
        self.now_s = 1000.0
        self.rests_s: list[float] = []
        monkeypatch.setattr(checks_module, "thread_time", lambda: self.computed_s)
        monkeypatch.setattr(checks_module, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(checks_module, "sleep", self._sleep)

    def right(self) -> bool:
        """Compute for two seconds, on a machine that has the thread wait for five more."""
        self.computed_s += 2.0
        self.now_s += 7.0
        return True

    def wrong(self) -> bool:
        return not self.right()

    def unreadable(self) -> bool:
        raise UnicodeError(f"no password, {self.right()}")

    def _sleep(self, seconds: float) -> None:
        self.rests_s.append(seconds)
        self.now_s += seconds


async def test_the_thread_rests_for_as_long_as_a_wrong_check_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, checks = Clock(monkeypatch), PasswordChecks(asyncio.get_running_loop(), lambda: 8)
    for check in (clock.wrong, clock.unreadable, clock.right):
        with suppress(UnicodeError):
            await checks.run(LOUD, check)
    assert clock.rests_s == [2.0, 2.0]
    await checks.run(LOUD, clock.wrong)
    assert clock.rests_s == [2.0, 2.0], "one that was right has taken nothing from others in vain"
    clock.now_s += 2.0
    await checks.run(QUIET, clock.right)
    assert clock.rests_s == [2.0, 2.0], "it has rested before that one came"
    checks.close()
