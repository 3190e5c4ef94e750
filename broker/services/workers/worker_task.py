"""One task of a client in a worker: a query or a search, from its wait for a slot to its last piece.

    none      piece        -> waiting for a slot, as long as the task may take
    none      piece, and no more may wait -> refused
    waiting   its turn     -> asked: a worker has the question; one that rested may have died, then another one gets it
    asked     piece        -> answered, piece by piece
    any       its deadline, a lost worker, a refusal -> refused
    any       close        -> ended: the worker is free, stopped or dead, the slot is given back
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pqbroker.broker.ground.holder_queue import QueueFull
from pqbroker.broker.services.workers.task_pool import FAILED, LEFT, TaskPool
from pqbroker.protocol.errors import KafkaError
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess
from pqbroker.tables.work.refusal import QueryRefused


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of one task. `holder`: its client, as `holder_of` names it."""

    holder: str
    running_max: int
    """Tasks of the pool that run at once."""
    time_s: float
    """Time that it may take, the wait for its slot included."""
    memory_bytes_max: int
    """Memory of its worker, of which one that waits for the next task may hold half."""
    idle_s: float
    """Time that its worker waits for the next task."""
    waiting_max: int
    """Tasks of the pool that wait for a slot."""
    grace_s: float = 0.0
    """Time beyond `time_s` in which the worker may end by itself."""


@dataclass(frozen=True, slots=True)
class TaskRefusals:
    """Refusals of one kind of task, each made where it is raised."""

    words: str
    """Tasks of this kind, as `SQL queries`."""
    code: str
    """Code of the refusals of a task that has no slot."""
    setting: str
    """Beginning of the settings `.max`, tasks at once, and `.waiting.max`, tasks that wait."""
    too_long: Callable[[], QueryRefused]
    lost: Callable[[int], QueryRefused]
    """Refuses a task whose worker ended with this status."""

    def too_many(self, limits: TaskLimits, running: int) -> QueryRefused:
        """Refuse a task that got no slot in its time, while this many had one."""
        most = limits.running_max
        waited = f", and this one has waited {limits.time_s * 1000:.0f} ms for its turn" if most else ""
        return QueryRefused(
            self.code, f"{running} {self.words} are under way, of at most {self.setting}.max = {most}{waited}",
            f"Try again when one has ended, or raise {self.setting}.max.",
        )  # fmt: skip

    def queue_full(self, limits: TaskLimits, waiting: int) -> QueryRefused:
        """Refuse a task that may not wait for a slot, while this many do."""
        return QueryRefused(
            self.code,
            f"{waiting} {self.words} wait for their turn, of at most {self.setting}.waiting.max = {limits.waiting_max};"
            " the last eighth is for addresses of which none waits",
            f"Try again when some have ended, or raise {self.setting}.waiting.max.",
        )  # fmt: skip


class WorkerTask:
    """One task: ask for piece after piece; `close` has to follow."""

    def __init__(self, pool: TaskPool, limits: TaskLimits, refusals: TaskRefusals) -> None:
        self._pool = pool
        self._limits = limits
        self._refusals = refusals
        self._began_s = asyncio.get_running_loop().time()
        self._has_slot = False
        self._worker: WorkerProcess | None = None
        self.last: Message | None = None
        """Final message of the worker; None until it comes."""

    @property
    def left_s(self) -> float:
        """Return how much of its time is left."""
        return self._began_s + self._limits.time_s - asyncio.get_running_loop().time()

    async def piece(
        self, ask: Callable[[WorkerProcess], Awaitable[None]], follow: Callable[[WorkerProcess], Awaitable[Message]]
    ) -> bytes | None:
        """Return the next piece of the answer; None at its end. QueryRefused, and what `follow` raises.

        `ask` gives the question to a worker; `follow` answers what the worker asks, up to its next message for the
        client.
        """
        if not self._has_slot:
            await self._take_slot()
        limits = self._limits
        try:
            async with asyncio.timeout_at(self._began_s + limits.time_s + limits.grace_s):
                message = await (self._begin(ask, follow) if self._worker is None else follow(self._worker))
        except WorkerGone as gone:
            raise self._refusals.lost(await self._end(gone.worker)) from None
        except TimeoutError:
            raise self._refusals.too_long() from None
        if message.kind == "result":
            return bytes(message.payload)
        self.last = message
        if message.kind == "refused":
            raise QueryRefused(**message.document)
        return None

    async def close(self, error: BaseException | None) -> None:
        """Leave the worker free or dead; `error` ended the task. The slot is given back even where the wait for the
        worker is cancelled."""
        try:
            if self._worker is not None:
                await self._free(self._worker)
        finally:
            if self._has_slot:
                self._pool.slots.end(self._limits.holder)
            counters = self._pool.counters
            seconds = asyncio.get_running_loop().time() - self._began_s
            counters.count_end(counters.done if error is None else _outcome(error), seconds)

    async def _take_slot(self) -> None:
        """Wait for a slot, as long as the task may take."""
        limits, slots = self._limits, self._pool.slots
        try:
            async with asyncio.timeout_at(self._began_s + limits.time_s if limits.running_max else 0):
                await slots.begin(limits.holder, limits.running_max, limits.waiting_max)
        except QueueFull:
            raise self._refusals.queue_full(limits, slots.waiting) from None
        except TimeoutError:
            raise self._refusals.too_many(limits, slots.running) from None
        self._has_slot = True

    async def _begin(
        self, ask: Callable[[WorkerProcess], Awaitable[None]], follow: Callable[[WorkerProcess], Awaitable[Message]]
    ) -> Message:
        """Give the question to a worker; return its first message. One that waited for a task may have died."""
        while True:
            self._worker = worker = await self._pool.take()
            try:
                await ask(worker)
                return await follow(worker)
            except WorkerGone:
                status = await self._end(worker)
                if worker.is_new or status == MEMORY_EXIT:
                    raise self._refusals.lost(status) from None

    async def _end(self, worker: WorkerProcess) -> int:
        """End a worker that has gone; return its status."""
        self._worker = None
        return await self._pool.end(worker)

    async def _free(self, worker: WorkerProcess) -> None:
        """Keep the worker for the next task, unless it does not stop, or holds too much memory."""
        idle_s, memory_bytes_max = self._limits.idle_s, self._limits.memory_bytes_max // 2
        if self.last is None:
            await self._pool.stop(worker, idle_s, memory_bytes_max)
        elif self.last.document.get("resident_bytes", 0) < memory_bytes_max:
            self._pool.give_back(worker, idle_s)
        else:
            await self._pool.end(worker)


def _outcome(error: BaseException) -> str:
    """Return how a task ended, as it is counted."""
    if isinstance(error, GeneratorExit | asyncio.CancelledError):
        return LEFT
    if isinstance(error, QueryRefused):
        return error.code.lower()
    return error.code.name.lower() if isinstance(error, KafkaError) else FAILED
