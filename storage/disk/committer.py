"""The commit thread of a cell: rounds of group commit, and the three outcomes. What is written is `commits`'.

States of the thread and what ends them:
    opening   -> serving   the index is open and whole
    opening   -> ended     EngineError: the opener gets it
    serving   -> ended     `close`: everything queued is made durable first
    serving   -> lost      fenced, or anything failed after the first byte: nothing more is acknowledged
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pqbroker.storage.disk.commits.commit_log import CommitLog
from pqbroker.storage.disk.free_space import wants_room
from pqbroker.storage.disk.pools import Pool
from pqbroker.storage.disk.round_plan import RoundPlan, RoundPlanner
from pqbroker.storage.disk.segment_check import Leftovers
from pqbroker.storage.engine import (
    Batch,
    CommitRefused,
    DiskFull,
    EngineError,
    RoomAgain,
    ShardLost,
    StoreFailed,
    StoreFull,
)
from pqbroker.storage.faults import Faults, Loss
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.turn_queue import Failures, Queued

_log = logging.getLogger(__name__)
SLOW_ROUND_S = 1.0
"""Seconds from which a round is slow, and for which one that has ended is still reported."""


@dataclass(slots=True)
class Counters:
    """Counts of what the thread has done since its start."""

    commits: int = 0
    rounds: int = 0
    bytes_written: int = 0
    refused: int = 0


class WritesRounds(Protocol):
    """Makes rounds durable and applies them; see `RoundWriter`."""

    number: int
    syncs: int
    is_held: bool

    @property
    def patience(self) -> float | None: ...

    def write_payload(self, plan: RoundPlan) -> bool: ...

    def write_rows(self, plan: RoundPlan) -> None: ...

    def apply(self, plan: RoundPlan) -> None: ...

    def tend(self) -> None: ...

    def make_spare(self) -> None: ...

    def close(self) -> None: ...

    def let_go(self, *, is_ours: bool) -> None: ...

    def end(self) -> None: ...

    def tell(self, told: str) -> EngineError: ...


class LooksForRoom(Protocol):
    """Says whether there is room for a round; see `CellSpace`."""

    @property
    def look_seconds(self) -> float: ...

    @property
    def is_full(self) -> bool: ...

    def look(self) -> None:
        """Raises ShardLost where what is free asks for another opening of the cell."""

    def colour(self, pool: str) -> Colour: ...

    def take_all(self, size: int) -> bool: ...

    def take(self, batch: Batch) -> bool: ...

    def refusal(self, batch: Batch) -> DiskFull: ...


@dataclass(frozen=True, slots=True)
class OpenCell:
    """Parts of an open cell that the thread works on. `log`: None where it is open for reading only."""

    log: CommitLog | None
    writer: WritesRounds
    planner: RoundPlanner
    space: LooksForRoom
    pools: Sequence[Pool]
    leftovers: Leftovers


@dataclass(frozen=True, slots=True)
class Pace:
    """Limit of a round, and when rounds are synced: `sync_seconds` is 0 for every round, None for never."""

    round_bytes_max: int
    sync_seconds: float | None


@dataclass(frozen=True, slots=True)
class Ownership:
    """The cell as the thread owns it: how it is opened, whose it is, and who learns what became of it."""

    path: Path
    open_cell: Callable[[], OpenCell]
    is_ours: Callable[[], bool]
    why_not_ours: Callable[[], ShardLost]
    on_open: Callable[[OpenCell | EngineError], None]
    """Called in the loop's thread, as the others are."""
    on_round: Callable[[list[Queued], Failures], None]
    """A round, and which of it is refused."""
    on_lost: Callable[[ShardLost, list[Queued]], None]


class Committer(threading.Thread):
    """Owns everything that writes in one cell. `submitted`: commits, in order, those of one turn as one item."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        submitted: "queue.SimpleQueue[list[Queued] | None]",
        ownership: Ownership,
        pace: Pace,
        faults: Faults | None,
    ) -> None:
        super().__init__(name="commit", daemon=True)
        self.counters = Counters()
        self._loop = loop
        self._ownership = ownership
        self._pace = pace
        self._faults = faults
        self._queue = submitted
        self._waiting: list[Queued] = []
        """Taken from the queue, and not in a round yet."""
        self._errands: deque[tuple[Callable[[OpenCell], Any], Callable[[Any], None]]] = deque()
        self._is_finished = False
        """Nothing comes any more."""
        self._round: list[Queued] = []
        self._cell: OpenCell | None = None
        self._round_began = 0.0
        """Time when the round under way was begun; 0 between rounds."""
        self._slow_round = (0.0, float("-inf"))
        """Seconds of the last slow round, and when it ended."""

    @property
    def round_seconds(self) -> float:
        """Seconds of the round under way, or of a slow one that has just ended; see `Shard`."""
        began, (seconds, ended) = self._round_began, self._slow_round
        now = time.monotonic()
        return now - began if began else seconds if now - ended < SLOW_ROUND_S else 0.0

    def finish(self) -> None:
        """End the thread once everything submitted is durable."""
        if self._faults is not None:
            self._faults.release()
        self._queue.put(None)

    def between_rounds(self, errand: Callable[[OpenCell], Any], told: Callable[[Any], None]) -> None:
        """Have `errand` called in this thread while no round is in work, and `told`, with what it returned, in the
        loop's: neither once the thread has ended. An errand that raises loses the cell."""
        self._errands.append((errand, told))
        self._queue.put([])

    def drain(self) -> list[Queued]:
        """Return what is queued and will not be taken any more, after a loss."""
        while not self._queue.empty():
            self._take(self._queue.get())
        return self._waiting

    def run(self) -> None:
        try:
            self._cell = self._ownership.open_cell()
            self._post(self._ownership.on_open, self._cell)
            self._serve(self._cell)
            self._cell.writer.close()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the cell is lost
            self._fail(failure)
        finally:
            if self._cell is not None:
                self._cell.writer.end()

    def _serve(self, cell: OpenCell) -> None:
        while self._wait(cell):
            self._round = self._gather()
            self._round_began = began = time.monotonic()
            self._commit(cell, self._round)
            self._round_began, ended = 0.0, time.monotonic()
            if ended - began >= SLOW_ROUND_S:
                self._slow_round = (ended - began, ended)

    def _wait(self, cell: OpenCell) -> bool:
        """Return True if anything is to be committed; meanwhile sync what is due and look at the room that is free."""
        while True:
            while self._errands:
                errand, told = self._errands.popleft()
                self._post(told, errand(cell))
            if self._waiting or self._is_finished:
                return bool(self._waiting)
            try:
                self._take(self._queue.get(timeout=self._patience(cell)))
            except queue.Empty:
                cell.writer.tend()
                cell.space.look()
                if cell.space.is_full:
                    cell.writer.make_spare()

    def _take(self, item: list[Queued] | None) -> None:
        if item is None:
            self._is_finished = True
        elif self._waiting:
            self._waiting += item
        else:
            self._waiting = item

    def _patience(self, cell: OpenCell) -> float:
        """Seconds to wait for an item before there is something else to do."""
        look, soon = cell.space.look_seconds, cell.writer.patience
        return look if soon is None else min(look, soon)

    def _gather(self) -> list[Queued]:
        """A round: all that came, at least one commit, up to the limit of bytes."""
        while not self._queue.empty():
            self._take(self._queue.get())
        taken, self._waiting = self._waiting, []
        size = 0
        for count, (batch, _) in enumerate(taken):
            size += batch.bytes
            if size > self._pace.round_bytes_max and count:
                self._waiting = taken[count:]
                return taken[:count]
        return taken

    def _commit(self, cell: OpenCell, queued: list[Queued]) -> None:
        """Commit one round, up to its outcomes."""
        refused = self._without_room(cell, queued)
        loss = None if self._faults is None else self._meet_faults(self._faults, queued, refused)
        number = cell.writer.number + 1
        plan = cell.planner.plan(queued, refused, number)
        while plan.in_segments and not cell.writer.write_payload(plan):
            full = {position: cell.space.refusal(queued[position][0]) for position in plan.in_segments}
            refused = {**plan.refused, **full}
            plan = cell.planner.plan(queued, refused, number)
        if len(plan.refused) < len(queued):
            self._complete(cell, plan, loss)
            self.counters.commits += len(queued) - len(plan.refused)
            self.counters.rounds += 1
            self.counters.bytes_written += plan.bytes
        self.counters.refused += len(plan.refused)
        self._round = []
        self._post(self._ownership.on_round, queued, plan.refused)

    def _complete(self, cell: OpenCell, plan: RoundPlan, loss: Loss | None) -> None:
        """Make the round durable, behind whose payload is written, and apply it while the cell is ours."""
        cell.writer.write_rows(plan)
        if not self._ownership.is_ours():
            raise self._ownership.why_not_ours()
        if loss is not None:
            raise StoreFailed("a fault on cue")
        cell.writer.apply(plan)

    def _meet_faults(
        self, faults: Faults, queued: Sequence[Queued], refused: dict[int, CommitRefused]
    ) -> Loss | None:
        """Meet the faults that tests want of the round: some commits refused, or the cell lost, now (StoreFailed) or
        once all is durable."""
        faults.wait()
        loss = None
        for position, (batch, _) in enumerate(queued):
            fault = faults.meet(batch)
            if isinstance(fault, CommitRefused):
                refused[position] = fault
            loss = fault if isinstance(fault, Loss) else loss
        if loss is not None and not loss.stored:
            raise StoreFailed("a fault on cue")
        return loss

    def _without_room(self, cell: OpenCell, queued: Sequence[Queued]) -> dict[int, CommitRefused]:
        """Refusals of the commits that would eat the reserve."""
        size = 0
        for batch, _ in queued:
            size += batch.bytes
        if cell.space.take_all(size):
            return {}
        return {
            position: cell.space.refusal(batch)
            for position, (batch, _) in enumerate(queued)
            if not cell.space.take(batch)
        }

    def _fail(self, failure: Exception) -> None:
        """Report a failure of opening or serving, of any kind."""
        if self._cell is None:
            cure = "" if wants_room(failure) else "; restore a copy"
            known = isinstance(failure, EngineError)
            told = failure if known else EngineError(f"the index cannot be opened: {failure}{cure}")
            self._post(self._ownership.on_open, told)
            return
        told = self._cell.writer.tell(str(failure)) if type(failure) is Exception else failure
        is_ours = self._ownership.is_ours()
        reason: ShardLost
        if isinstance(failure, ShardLost) and (is_ours or not isinstance(failure, RoomAgain)):
            reason = failure
        elif not is_ours:
            reason = self._ownership.why_not_ours()
        else:
            kind = StoreFull if wants_room(failure) else StoreFailed
            reason = kind(f"{type(told).__name__}: {told}")
        if not isinstance(reason, RoomAgain):
            _log.error("the cell at %s is lost: %s", self._ownership.path, reason, exc_info=failure)
        self._cell.writer.let_go(is_ours=is_ours)
        self._post(self._ownership.on_lost, reason, self._round)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)
