"""A pool of worker processes: one for each task under way, and for a time those that wait for the next.

    none      take      -> busy (started)
    idle      take      -> busy
    busy      give back -> idle
    busy      stop      -> idle (its caller no longer waits)
    busy      stop      -> none (killed: it does not stop)
    busy      end       -> none (killed: it has ended by itself)
    idle      its time without a task is over -> none
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from pqbroker.tables.work.process import WorkerProcess

_T = TypeVar("_T")


class PoolCounters(Protocol):
    """Counters of a pool's processes: those that were started, and those that ended by themselves."""

    workers_started: int
    workers_lost: int


class WorkerPool:
    """Made before it is known whether there will ever be a task: nothing is started until one comes."""

    __slots__ = ("_busy", "_counters", "_idle", "_is_closed", "_pending")

    def __init__(self, counters: PoolCounters) -> None:
        self._counters = counters
        self._busy: set[WorkerProcess] = set()
        self._idle: dict[WorkerProcess, asyncio.TimerHandle] = {}
        self._pending: set[asyncio.Task[Any]] = set()
        """Starts and ends under way."""
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """Return the ids of all worker processes that exist."""
        return [worker.pid for worker in (*self._busy, *self._idle)]

    @property
    def running(self) -> int:
        """Workers that have something to do."""
        return len(self._busy)

    async def take(self) -> WorkerProcess:
        """A worker for one task: one that waits, else a new one. OSError: the system has no room, or the node stops."""
        while self._idle:
            worker, timer = self._idle.popitem()
            timer.cancel()
            if worker.is_alive:
                self._busy.add(worker)
                return worker
            self._counters.workers_lost += 1
            self._end(worker)
        starting = self._start(self._begin())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._end_unwanted)
            raise

    def give_back(self, worker: WorkerProcess, idle_s: float) -> None:
        """The worker has done its task."""
        worker.is_new = False
        self._busy.discard(worker)
        self._idle[worker] = asyncio.get_running_loop().call_later(idle_s, self._let_go, worker)

    async def stop(self, worker: WorkerProcess, idle_s: float, memory_bytes_max: int) -> None:
        """Make the worker leave its task, and keep it for the next one; kill it where it does not, or holds more than
        that."""
        await asyncio.shield(self._start(self._stop(worker, idle_s, memory_bytes_max)))

    async def end(self, worker: WorkerProcess) -> int:
        """Kill the worker, if it has not ended: how it ended."""
        self._busy.discard(worker)
        self._counters.workers_lost += worker.has_ended
        return await asyncio.shield(self._end(worker))

    async def close(self) -> None:
        """End all workers, and those that are being started. A later `take` is refused."""
        self._is_closed = True
        for worker, timer in self._idle.items():
            timer.cancel()
            self._end(worker)
        for worker in self._busy:
            self._end(worker)
        self._idle.clear()
        self._busy.clear()
        while self._pending:
            await asyncio.wait(self._pending)

    async def _begin(self) -> WorkerProcess:
        """Start a worker, which is busy from then on."""
        if not self._is_closed:
            worker = await WorkerProcess.start()
            self._counters.workers_started += 1
            if not self._is_closed:
                self._busy.add(worker)
                return worker
            await worker.end()
        raise OSError("the node stops")

    def _let_go(self, worker: WorkerProcess) -> None:
        del self._idle[worker]
        self._end(worker)

    async def _stop(self, worker: WorkerProcess, idle_s: float, memory_bytes_max: int) -> None:
        memory_bytes = await worker.stop()
        if worker not in self._busy:  # the node stops
            return
        if memory_bytes is not None and memory_bytes < memory_bytes_max:
            self.give_back(worker, idle_s)
        else:
            self._busy.discard(worker)
            await worker.end()

    def _end(self, worker: WorkerProcess) -> "asyncio.Task[int]":
        return self._start(worker.end())

    def _start(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        task = asyncio.get_running_loop().create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    def _end_unwanted(self, starting: "asyncio.Task[WorkerProcess]") -> None:
        """End a worker that was started, if its query has gone."""
        if starting.cancelled() or starting.exception() is not None:
            return
        worker = starting.result()
        if worker in self._busy:
            self._busy.discard(worker)
            self._end(worker)
