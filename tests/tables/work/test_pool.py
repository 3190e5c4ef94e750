"""A pool ends each process that it started, also one that is taken while the node stops."""

import asyncio

import pytest

from pqbroker.tables.work.pool import WorkerPool
from pqbroker.tables.work.process import WorkerProcess


class Counters:
    workers_started = 0
    workers_lost = 0


class Worker:
    """A worker that is no process, and knows whether it was ended."""

    has_ended = False
    is_ended = False

    async def end(self) -> int:
        await asyncio.sleep(0)
        self.is_ended = True
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Workers that were started; each start takes two turns of the loop."""
    workers: list[Worker] = []

    async def start(_: type[WorkerProcess]) -> Worker:
        await asyncio.sleep(0)
        workers.append(Worker())
        await asyncio.sleep(0)
        return workers[-1]

    monkeypatch.setattr(WorkerProcess, "start", classmethod(start))
    return workers


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_worker_taken_while_the_node_stops_is_ended(
    started: list[Worker], turns: int, is_cancelled: bool
) -> None:
    workers = WorkerPool(Counters())
    taking = asyncio.create_task(workers.take())
    await _turns(turns)
    if is_cancelled:
        taking.cancel()
    await workers.close()
    assert all(worker.is_ended for worker in started)
    await asyncio.wait([taking])
    assert all(worker.is_ended for worker in started)
    assert not workers.running


async def test_a_closed_pool_starts_nothing(started: list[Worker]) -> None:
    workers = WorkerPool(Counters())
    await workers.close()
    with pytest.raises(OSError, match="the node stops"):
        await workers.take()
    assert not started


async def test_a_worker_that_nobody_waits_for_is_ended(started: list[Worker]) -> None:
    workers = WorkerPool(Counters())
    for turns in range(8):
        taking = asyncio.create_task(workers.take())
        await _turns(turns)
        taking.cancel()
        await asyncio.wait([taking])
        if not taking.cancelled():
            await workers.end(taking.result())
    await _turns(6)
    assert started
    assert all(worker.is_ended for worker in started)
    assert not workers.running


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
