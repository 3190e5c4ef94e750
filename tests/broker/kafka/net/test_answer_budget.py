"""The node's budget of answers: who waits for it, that none waits for ever, and whose connection is cut for others."""

import asyncio

import pytest

from pqbroker.broker.kafka.apis import answer_budget
from pqbroker.broker.kafka.apis.answer_budget import FIRST_BYTES, SMALL_ANSWER_BYTES, UNTAKEN_S, AnswerBudget, Untaken
from pqbroker.conf.shares import reserve_of

MAX = 800
OPEN = MAX - reserve_of(MAX)
LARGE = 32 * FIRST_BYTES


class Now:
    """A clock that is a number."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Client:
    """A connection's client: it leaves `left` bytes of its answers, of which those in files take no memory."""

    def __init__(self, answers: AnswerBudget, holder: str, left: int = 0, in_files: int = 0) -> None:
        self.left, self.in_files = left, in_files
        self.is_cut = False
        self.untaken = Untaken(answers, holder)
        if left:
            self.untaken.begin(self, 0.0)

    def unsent(self) -> tuple[int, int]:
        return self.left - self.in_files, self.left

    def cut_for_others(self) -> None:
        self.is_cut = True
        self.untaken.end()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def budget(now: Now) -> AnswerBudget:
    return AnswerBudget(MAX, now)


@pytest.fixture
def large(now: Now) -> AnswerBudget:
    """A budget whose reserve is four first parts."""
    return AnswerBudget(LARGE, now)


async def waits(budget: AnswerBudget, request: object, holder: str = "a") -> "asyncio.Task[None]":
    """A request that asks for room, after it had time to get it."""
    task = asyncio.create_task(budget.room(request, holder))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_over_the_limit_one_goes_on_and_others_wait_for_its_end(budget: AnswerBudget) -> None:
    for request in (1, 2):
        budget.grow(request, "a", 500)
    first, second = await waits(budget, 1), await waits(budget, 2)
    assert (first.done(), second.done()) == (True, False)
    budget.end(1)
    await asyncio.wait_for(second, 10)
    assert budget.made == 500


async def test_bytes_that_clients_do_not_take_hold_back_everybody(budget: AnswerBudget) -> None:
    client = Client(budget, "a", 801)
    budget.grow(1, "b", 1)
    waiting = await waits(budget, 1, "b")
    assert not waiting.done()
    client.untaken.end()
    await asyncio.wait_for(waiting, 10)
    assert budget.unsent == 0


async def test_the_next_goes_on_when_the_favoured_one_ends_though_there_is_no_room(budget: AnswerBudget) -> None:
    for request in (1, 2, 3):
        budget.grow(request, "a", 1500)
    tasks = [await waits(budget, request) for request in (1, 2, 3)]
    budget.end(1)
    await asyncio.wait_for(tasks[1], 10)
    assert not tasks[2].done()
    budget.end(2)
    await asyncio.wait_for(tasks[2], 10)
    budget.end(3)
    budget.end(3)
    assert (budget.made, budget.is_exceeded) == (0, False)


async def test_one_that_gives_up_waiting_is_forgotten(budget: AnswerBudget) -> None:
    for request in (1, 2):
        budget.grow(request, "a", 1500)
    await waits(budget, 1)
    waiting = await waits(budget, 2)
    waiting.cancel()
    budget.end(2)
    budget.end(1)
    assert not budget.is_exceeded


def test_one_holder_has_all_but_the_reserve_and_another_its_first_part_of_it(large: AnswerBudget) -> None:
    for number in range(28):
        assert large.left_to("a") == (28 - number) * FIRST_BYTES
        large.grow(number, "a", FIRST_BYTES)
    assert large.left_to("a") < 0
    assert large.is_exceeded
    assert large.left_to("b") == FIRST_BYTES
    large.grow("b's", "b", FIRST_BYTES)
    assert large.left_to("b") == 0


def test_a_reserve_that_is_used_up_has_nothing_for_anybody(large: AnswerBudget) -> None:
    large.grow(1, "a", 28 * FIRST_BYTES)
    for number in range(4):
        large.grow(f"first {number}", str(number), FIRST_BYTES)
    assert large.left_to("another") == 0


async def test_the_holder_of_least_goes_on_first(budget: AnswerBudget) -> None:
    for request, holder, size in ((1, "a", 900), (2, "b", 500), (3, "c", 300), (4, "d", 400)):
        budget.grow(request, holder, size)
    await waits(budget, 1, "a")
    tasks = {holder: await waits(budget, request, holder) for request, holder in ((2, "b"), (3, "c"), (4, "d"))}
    budget.end(1)
    await asyncio.sleep(0.01)
    assert [holder for holder, task in tasks.items() if task.done()] == ["c"]
    budget.end(3)
    await asyncio.sleep(0.01)
    assert [holder for holder, task in tasks.items() if task.done()] == ["c", "d"]


async def test_while_somebody_waits_the_largest_holders_idle_connection_is_cut(large: AnswerBudget, now: Now) -> None:
    small = Client(large, "b", 10 * FIRST_BYTES)
    others = [Client(large, "a", size * FIRST_BYTES) for size in (9, 4, 9)]
    now.seconds = UNTAKEN_S
    waiting = await waits(large, 1, "c")
    assert waiting.done()
    assert [one.is_cut for one in (small, *others)] == [False, True, False, False]
    assert large.unsent == 23 * FIRST_BYTES


async def test_nobody_is_cut_while_nobody_waits(large: AnswerBudget, now: Now) -> None:
    client = Client(large, "a", LARGE)
    now.seconds = 100 * UNTAKEN_S
    large.look()
    assert large.is_exceeded
    assert not client.is_cut


async def test_a_client_that_takes_something_is_not_cut(
    large: AnswerBudget, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_budget, "UNTAKEN_LOOK_S", 0.01)
    client = Client(large, "a", 2 * LARGE)
    client.left -= 1
    now.seconds = UNTAKEN_S
    waiting = await waits(large, 1, "b")
    assert not client.is_cut
    assert large.unsent == 2 * LARGE - 1
    client.left -= 1
    now.seconds = 1.9 * UNTAKEN_S
    await asyncio.sleep(0.05)
    assert not waiting.done()
    now.seconds = 2.9 * UNTAKEN_S
    await asyncio.wait_for(waiting, 10)
    assert client.is_cut


async def test_what_is_left_in_files_takes_no_memory(budget: AnswerBudget) -> None:
    client = Client(budget, "a", 900, in_files=850)
    assert budget.unsent == 50
    assert client.untaken.is_stalled(now=5.0, stall_s=5.0)


def test_a_peer_that_takes_less_than_a_small_answer_is_stalled(budget: AnswerBudget) -> None:
    size = 10 * SMALL_ANSWER_BYTES
    client = Client(budget, "a", size)
    assert not client.untaken.is_stalled(now=4.0, stall_s=5.0)
    client.left = size - SMALL_ANSWER_BYTES
    assert not client.untaken.is_stalled(now=4.5, stall_s=5.0)
    client.left -= SMALL_ANSWER_BYTES - 1
    assert not client.untaken.is_stalled(now=9.0, stall_s=5.0)
    assert client.untaken.is_stalled(now=9.5, stall_s=5.0)


def test_a_peer_that_has_taken_everything_is_not(budget: AnswerBudget) -> None:
    assert not Client(budget, "a").untaken.is_stalled(now=100.0, stall_s=5.0)
