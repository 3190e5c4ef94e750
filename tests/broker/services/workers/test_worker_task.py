"""One task in a worker: workers that die, and what it is counted as. Workers are scripted; no process is started."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from pqbroker.broker.services.workers.task_pool import TaskPool
from pqbroker.broker.services.workers.worker_task import TaskLimits, TaskRefusals, WorkerTask
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess
from pqbroker.tables.work.refusal import QueryRefused

LIMITS = TaskLimits("somebody", 1, 60.0, 1000, 60.0, 100)
DONE = Message("done", {}, b"")


class ScriptedWorker:
    """A worker that dies at its first question with a status; 0: it answers."""

    def __init__(self, status: int, *, is_new: bool = True) -> None:
        self.status = status
        self.is_new = is_new


class ScriptedPool(TaskPool):
    """Gives these workers in turn."""

    def __init__(self, workers: Sequence[ScriptedWorker]) -> None:
        super().__init__("done")
        self.left = list(workers)

    async def take(self) -> WorkerProcess:
        return cast(WorkerProcess, self.left.pop(0))

    async def end(self, worker: WorkerProcess) -> int:
        return cast(ScriptedWorker, worker).status

    def give_back(self, worker: WorkerProcess, idle_s: float) -> None:
        self.left.append(cast(ScriptedWorker, worker))


def refused(code: str) -> QueryRefused:
    return QueryRefused(code, "text", "cure")


REFUSALS = TaskRefusals(
    "tasks", "TOO_MANY", "pqbroker.tasks", lambda: refused("TOO_LONG"), lambda status: refused(f"LOST_{status}"),
)  # fmt: skip


async def ask(worker: WorkerProcess) -> None:
    if cast(ScriptedWorker, worker).status:
        raise WorkerGone(worker)


async def follow(_: WorkerProcess) -> Message:
    return DONE


async def run(pool: ScriptedPool) -> str | None:
    """Return the code that the task is refused with; None: it was answered."""
    task = WorkerTask(pool, LIMITS, REFUSALS)
    try:
        await task.piece(ask, follow)
    except QueryRefused as refusal:
        await task.close(refusal)
        return refusal.code
    await task.close(None)
    return None


@pytest.mark.parametrize(
    ("workers", "code", "ended"),
    [
        ([ScriptedWorker(0)], None, "done"),
        ([ScriptedWorker(9, is_new=False), ScriptedWorker(0)], None, "done"),
        ([ScriptedWorker(9), ScriptedWorker(0)], "LOST_9", "lost_9"),
        ([ScriptedWorker(MEMORY_EXIT, is_new=False), ScriptedWorker(0)], f"LOST_{MEMORY_EXIT}", f"lost_{MEMORY_EXIT}"),
    ],
    ids=["it answers", "a rested one had died", "a new one dies", "a rested one lacks memory"],
)
async def test_only_a_rested_worker_that_had_died_is_replaced(
    workers: list[ScriptedWorker], code: str | None, ended: str
) -> None:
    pool = ScriptedPool(workers)
    assert await run(pool) == code
    assert pool.counters.ended == {ended: 1}
    assert pool.slots.running == 0


async def test_a_task_without_slots_is_refused_at_once() -> None:
    task = WorkerTask(ScriptedPool([]), replace(LIMITS, running_max=0), REFUSALS)
    with pytest.raises(QueryRefused) as refusal:
        await task.piece(ask, follow)
    assert refusal.value.code == "TOO_MANY"
    assert refusal.value.message == "0 tasks are under way, of at most pqbroker.tasks.max = 0"


async def test_a_task_that_is_left_is_counted_so() -> None:
    pool = ScriptedPool([ScriptedWorker(0)])
    task = WorkerTask(pool, LIMITS, REFUSALS)
    assert await task.piece(ask, follow) is None
    await task.close(asyncio.CancelledError())
    assert pool.counters.ended == {"left": 1}
