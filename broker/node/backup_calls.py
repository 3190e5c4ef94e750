"""Backups over nodes: the first one makes a backup, and each node copies its own cells into it (`CopySteps`).

A copy is asked for step by step: `begun`, `taken`, `ended`. An answer comes when the copy is that far, or after a few
seconds, when it is asked again: a disk may take minutes. While the moments are taken, commits of several cells are held
back at every node. Nothing outlives the link, or a first node that asks for nothing more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from enum import StrEnum
from typing import Any, Final

from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.storage.copy_steps import CopiedBytes, CopySteps
from pqbroker.storage.engine import BackupRefused, EngineCannot, ShardLost
from pqbroker.storage.ids import CellId

ASKED_AGAIN_S: Final = 5.0
"""Seconds after which an answer comes though the copy is not as far as it is to be."""
LEFT_S: Final = 30.0
"""Seconds without a question after which a copy, or a pause of commits, is given up."""

NAME_SHOWN: Final = 100

AskNode = Callable[[Any], Awaitable[Any]]
"""Asks a node for something of a backup, and returns the head of its answer. BackupRefused."""


class BackupStep(StrEnum):
    """Steps that the first node asks for: of the copy of a cell, and of the pause of commits."""

    BEGUN = "begun"
    TAKEN = "taken"
    ENDED = "ended"
    LEAVE = "leave"
    PAUSE = "pause"
    RESUME = "resume"


class CopyElsewhere:
    """A cell of another node, a `CellElsewhere`."""

    def __init__(self, ask: AskNode, cell: CellId) -> None:
        self._ask = ask
        self._cell = cell

    async def copy(self, name: str, steps: CopySteps) -> CopiedBytes:
        try:
            await self._reach(name, BackupStep.BEGUN)
            steps.begun.set()
            await steps.may_take.wait()
            await self._reach(name, BackupStep.TAKEN)
            steps.taken.set()
            await steps.may_end.wait()
            told = await self._reach(name, BackupStep.ENDED)
            return CopiedBytes(*map(int, told))
        except (TypeError, ValueError) as bad:
            raise BackupRefused(f"a node has answered what this version does not know: {bad}") from bad
        except BaseException:
            self._leaving = asyncio.ensure_future(self._leave(name))
            raise

    async def _reach(self, name: str, goal: BackupStep) -> Any:
        while True:
            told = await self._ask([goal, name, self._cell])
            if told is not None:
                return told

    async def _leave(self, name: str) -> None:
        try:
            await self._ask([BackupStep.LEAVE, name, self._cell])
        except BackupRefused:
            return  # it ends by itself


@asynccontextmanager
async def commits_paused(nodes: "list[AskNode]") -> AsyncIterator[None]:
    """Hold commits of several cells back at these nodes. BackupRefused, also at the end where a node did not hold them
    back to the end: moments taken meanwhile may have parts of a commit."""
    try:
        for ask in nodes:
            await ask([BackupStep.PAUSE])
        yield
        for ask in nodes:
            if await ask([BackupStep.RESUME]) is not True:
                raise BackupRefused(
                    "a node has let commits of several cells go on before all cells were copied: try again when disks"
                    " are less busy"
                )
    except BaseException:
        for ask in nodes:
            with suppress(BackupRefused):  # it ends by itself
                await ask([BackupStep.RESUME])
        raise


class _Copying:
    """The copy of one cell in work. `asked_at`: when it was asked for last."""

    def __init__(self, steps: CopySteps, task: "asyncio.Task[CopiedBytes]", asked_at: float) -> None:
        self.steps = steps
        self.task = task
        self.asked_at = asked_at

    def note_asked(self, now: float) -> None:
        self.asked_at = now

    def step(self, goal: BackupStep) -> asyncio.Event | None:
        """Return what is set at a step; None: the copy is to end."""
        return {BackupStep.BEGUN: self.steps.begun, BackupStep.TAKEN: self.steps.taken}.get(goal)

    def has_reached(self, goal: BackupStep) -> bool:
        reached = self.step(goal)
        return reached is not None and reached.is_set()


class BackupCalls:
    """Copies for backups that the first node makes. `serving`: the opening that is current."""

    def __init__(self, serving: Callable[[], OpenCell]) -> None:
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._copies: dict[tuple[str, int], _Copying] = {}
        self._pause: AbstractAsyncContextManager[bool] | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    async def answer(self, asked: Any) -> Any:
        """Return how far a copy is; None: not as far as it is to be. PeerRefused: nothing is left of it."""
        try:
            goal, *rest = asked
            if goal == BackupStep.PAUSE:
                return await self._hold_commits()
            if goal == BackupStep.RESUME:
                return await self._let_commits()
            name, cell = rest
            return await self._copy(BackupStep(goal), str(name), CellId(int(cell)))
        except (TypeError, ValueError) as bad:
            raise PeerRefused(f"a step of a backup was expected: {bad}") from bad

    async def leave(self) -> None:
        """Give up all copies and the pause: the first node is gone."""
        for copying in self._copies.values():
            copying.task.cancel()
        self._copies.clear()
        await self._let_commits()

    async def _copy(self, goal: BackupStep, name: str, cell: CellId) -> Any:
        if goal == BackupStep.BEGUN and (name, cell) not in self._copies:
            self._begin(name, cell)
        copying = self._copies.get((name, cell))
        if copying is None:
            raise PeerRefused(f"no copy of cell {cell} is made here for a backup {name[:NAME_SHOWN]!r}")
        if goal == BackupStep.LEAVE:
            self._give_up(name, cell)
            return True
        copying.note_asked(self._loop.time())
        await _advance(goal, copying)
        if copying.task.done():
            self._copies.pop((name, cell), None)
            return _result_of(copying.task)
        return True if copying.has_reached(goal) else None

    def _begin(self, name: str, cell: CellId) -> None:
        """Begin the copy of a cell that is open here. PeerRefused."""
        host = self._serving().cells.host(cell)
        if host is None or host.cell.lost.done():
            raise PeerRefused(f"cell {cell} is not open here: try again when `pqbroker cell list` shows all as good")
        steps = CopySteps()
        task = self._loop.create_task(host.cell.copy_into(name, steps))
        self._copies[name, cell] = _Copying(steps, task, self._loop.time())
        self._loop.call_later(LEFT_S, self._look, name, cell)

    def _look(self, name: str, cell: CellId) -> None:
        """Give a copy up that nobody has asked for lately; one that has ended is kept as long for a question."""
        copying = self._copies.get((name, cell))
        if copying is None:
            return
        if self._loop.time() - copying.asked_at >= LEFT_S:
            self._give_up(name, cell)
        else:
            self._loop.call_later(LEFT_S, self._look, name, cell)

    def _give_up(self, name: str, cell: CellId) -> None:
        self._copies.pop((name, cell)).task.cancel()

    async def _hold_commits(self) -> bool:
        """Hold commits of several cells back, until it is asked otherwise. PeerRefused."""
        await self._let_commits()
        pause = self._serving().commits.pause()
        is_quiet = await pause.__aenter__()
        self._pause = pause
        self._giving_up = self._loop.call_later(LEFT_S, lambda: asyncio.ensure_future(self._let_commits()))
        if not is_quiet:
            await self._let_commits()
            raise PeerRefused(
                "commits of several cells are not finished everywhere, so a backup would hold parts of them: try again"
            )
        return True

    async def _let_commits(self) -> bool:
        """Return True if commits were held back until now."""
        pause, self._pause = self._pause, None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if pause is not None:
            await pause.__aexit__(None, None, None)
        return pause is not None


async def _advance(goal: BackupStep, copying: _Copying) -> None:
    """Have a copy come to a step; return when it has come to it, has ended, or after a while."""
    steps, task = copying.steps, copying.task
    if goal in (BackupStep.TAKEN, BackupStep.ENDED):
        steps.may_take.set()
    if goal == BackupStep.ENDED:
        steps.may_end.set()
    reached = copying.step(goal)
    waiting = [task] if reached is None else [task, asyncio.ensure_future(reached.wait())]
    try:
        await asyncio.wait(waiting, timeout=ASKED_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting[1:]:
            one.cancel()


def _result_of(task: "asyncio.Task[CopiedBytes]") -> Any:
    """PeerRefused where the copy has failed."""
    try:
        return list(task.result())
    except asyncio.CancelledError:
        raise PeerRefused("the copy was given up") from None
    except (BackupRefused, EngineCannot, ShardLost) as refused:
        raise PeerRefused(str(refused)) from refused
