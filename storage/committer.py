"""The commit thread of a cell: rounds of group commit, payload first and index second, and the three outcomes.

States of the thread and what ends them:
    opening   -> serving   the index is open and whole
    opening   -> ended     EngineError: the opener is told
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost, StoreFailed
from pqbroker.storage.faults import Faults, Loss
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.plan import IndexBatch, Plan, Planner, Queued, full
from pqbroker.storage.pools import Pool
from pqbroker.storage.recovery import Leftovers
from pqbroker.storage.room import NO_ROOM, Rooms

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_ANXIOUS_LOOK_SECONDS = 0.2
"""Between looks at free space while nothing is committed: when all is green, and when a colour is to clear."""


class Index(Protocol):
    """The ordered rows below a disk shard. Its calls block; its errors are not told apart."""

    undurable: threading.Lock
    """Held while the index has rows that are not durable, so that scans do not see them."""

    def new_batch(self) -> IndexBatch: ...

    def write(self, changes: IndexBatch) -> None: ...

    def sync(self) -> None: ...

    def tell(self, told: str) -> EngineError:
        """What an error of `write` and `sync` means, a plain Exception of this text."""


class ReadableIndex(Index, Protocol):
    """What reading threads call besides."""

    def compact(self, *, is_on: bool) -> None: ...

    def get(self, keys: list[bytes]) -> list[bytes | None]: ...

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Counters:
    """What the thread has done since its start."""

    commits: int = 0
    rounds: int = 0
    bytes_written: int = 0
    syncs: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class OpenCell:
    """What the thread works on once the cell is open. `last_number` is the last durable round's."""

    index: Index
    pools: Sequence[Pool]
    planner: Planner
    last_number: int
    rooms: Rooms
    path: Path
    leftovers: Leftovers


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a round takes, and when it is synced: `sync_seconds` is 0 for every round, None for never."""

    round_bytes_max: int
    sync_seconds: float | None


class Committer(threading.Thread):
    """Owns everything that writes in one cell. `submit` and `finish` are called by the loop thread, in order."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        open_cell: Callable[[], OpenCell],
        is_ours: Callable[[], bool],
        why_not_ours: Callable[[], ShardLost],
        pace: Pace,
        faults: Faults | None,
        on_open: Callable[[OpenCell | EngineError], None],
        on_lost: Callable[[ShardLost, list[Queued]], None],
    ) -> None:
        super().__init__(name="commit", daemon=True)
        self.counters = Counters()
        self._loop = loop
        self._open_cell = open_cell
        self._is_ours = is_ours
        self._why_not_ours = why_not_ours
        self._pace = pace
        self._faults = faults
        self._on_open = on_open
        self._on_lost = on_lost
        self._queue: queue.SimpleQueue[Queued | None] = queue.SimpleQueue()
        self._waiting: list[Queued | None] = []
        """At most one item: taken from the queue, but too large for the round it came in."""
        self._round: list[Queued] = []
        self._cell: OpenCell | None = None
        self._number = 0
        self._unsynced = False
        self._sync_due = 0.0
        self._side_by_side: ThreadPoolExecutor | None = None
        """Threads that sync further pools; none until there is a second."""
        self.submit = self._queue.put

    def finish(self) -> None:
        """End the thread once everything submitted is durable."""
        if self._faults is not None:
            self._faults.release()
        self._queue.put(None)

    def drain(self) -> list[Queued]:
        """What is queued and will not be taken any more, after a loss."""
        left = [item for item in self._waiting if item is not None]
        while not self._queue.empty():
            item = self._queue.get()
            if item is not None:
                left.append(item)
        return left

    def run(self) -> None:
        try:
            self._cell = self._open_cell()
            self._number = self._cell.last_number
            self._post(self._on_open, self._cell)
            self._serve(self._cell)
            self._close(self._cell)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the cell is lost
            self._fail(failure)
        finally:
            if self._side_by_side is not None:
                self._side_by_side.shutdown()

    def _serve(self, cell: OpenCell) -> None:
        while True:
            item = self._next(cell)
            if item is None:
                return
            self._round = self._gather(item)
            self._commit(cell, self._round)

    def _next(self, cell: OpenCell) -> Queued | None:
        """The next item; while waiting for it, syncs what is due and looks at the room that is free."""
        if self._waiting:
            return self._waiting.pop()
        while True:
            try:
                return self._queue.get(timeout=self._patience(cell))
            except queue.Empty:
                if self._is_sync_due():
                    self._sync(cell)
                cell.rooms.look()

    def _patience(self, cell: OpenCell) -> float:
        """Seconds to wait for an item before there is something else to do."""
        look = _LOOK_SECONDS if cell.rooms.is_green else _ANXIOUS_LOOK_SECONDS
        if self._unsynced and self._pace.sync_seconds is not None:
            return min(look, max(0.0, self._sync_due - time.monotonic()))
        return look

    def _is_sync_due(self) -> bool:
        return self._unsynced and self._pace.sync_seconds is not None and time.monotonic() >= self._sync_due

    def _gather(self, item: Queued) -> list[Queued]:
        """A round: the item and what is queued behind it, up to the limit of bytes."""
        taken = [item]
        size = item[0].bytes
        waiting = self._queue
        while not waiting.empty():
            more = waiting.get()
            if more is None or size + more[0].bytes > self._pace.round_bytes_max:
                self._waiting.append(more)
                break
            size += more[0].bytes
            taken.append(more)
        return taken

    def _commit(self, cell: OpenCell, queued: list[Queued]) -> None:
        """One round, to its outcomes."""
        refused = self._without_room(cell, queued)
        loss = None if self._faults is None else self._meet_faults(self._faults, queued, refused)
        plan = cell.planner.plan(queued, refused, self._number + 1, cell.index.new_batch())
        while plan.in_segments and not self._write_payloads(cell, plan):
            refused = {**plan.refused, **{position: full(queued[position][0]) for position in plan.in_segments}}
            plan = cell.planner.plan(queued, refused, self._number + 1, cell.index.new_batch())
        if len(plan.refused) < len(queued):
            self._write_index(cell, plan)
            if loss is not None:
                raise StoreFailed("a fault on cue")
            self._settle(cell)
            self._number = plan.number
            self.counters.commits += len(queued) - len(plan.refused)
            self.counters.rounds += 1
            self.counters.bytes_written += plan.bytes
        self.counters.refused += len(plan.refused)
        self._round = []
        self._post(_resolve, deque((item[1], plan.refused.get(at)) for at, item in enumerate(queued)))

    def _meet_faults(
        self, faults: Faults, queued: Sequence[Queued], refused: dict[int, CommitRefused]
    ) -> Loss | None:
        """What tests want of the round: some refused, or the cell lost, now (StoreFailed) or once all is durable."""
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
        cell.rooms.look()
        return {
            position: full(batch) for position, (batch, _) in enumerate(queued) if not cell.rooms.take(batch)
        }

    def _write_payloads(self, cell: OpenCell, plan: Plan) -> bool:
        """Write and sync the round's payloads; False when there was no room and nothing of them is left."""
        pools = [pool for pool in cell.pools if pool.is_pending()]
        try:
            for pool in pools:
                pool.write()
        except OSError as failure:
            if failure.errno not in NO_ROOM:
                raise
            _log.warning("no room for blobs: %s", failure)
            for pool in cell.pools:
                pool.undo()
            return False
        if self._pace.sync_seconds == 0:
            self._sync_pools(pools)
        return True

    def _settle(self, cell: OpenCell) -> None:
        """The round is committed. What it emptied is unlinked once that is durable: not before the blobs it moved."""
        for pool in cell.pools:
            if pool.touched:
                pool.settle()
        if self._pace.sync_seconds is None and any(pool.emptied for pool in cell.pools):
            self._sync(cell)
        elif not self._unsynced:
            for pool in cell.pools:
                pool.unlink_emptied()

    def _write_index(self, cell: OpenCell, plan: Plan) -> None:
        with cell.index.undurable:
            cell.index.write(plan.changes)
            if self._pace.sync_seconds == 0:
                cell.index.sync()
                self.counters.syncs += 1
            elif not self._unsynced:
                self._unsynced = True
                self._sync_due = time.monotonic() + (self._pace.sync_seconds or 0)
        if not self._is_ours():
            raise self._why_not_ours()
        if self._is_sync_due():
            self._sync(cell)

    def _sync(self, cell: OpenCell) -> None:
        """Make everything written so far durable."""
        self._sync_pools(cell.pools)
        cell.index.sync()
        self.counters.syncs += 1
        self._unsynced = False
        for pool in cell.pools:
            pool.unlink_emptied()

    def _sync_pools(self, pools: Sequence[Pool]) -> None:
        first, *others = pools
        if others and self._side_by_side is None:
            self._side_by_side = ThreadPoolExecutor(thread_name_prefix="sync")
        syncs = [self._side_by_side.submit(pool.sync) for pool in others] if self._side_by_side else []
        try:
            first.sync()
        finally:
            wait(syncs)
        for done in syncs:
            done.result()

    def _close(self, cell: OpenCell) -> None:
        if self._pace.sync_seconds != 0:
            self._sync(cell)
        for pool in cell.pools:
            pool.close()

    def _fail(self, failure: Exception) -> None:
        """Whatever went wrong while opening or serving."""
        if self._cell is None:
            known = isinstance(failure, EngineError)
            told = failure if known else EngineError(f"the index cannot be opened: {failure}; restore a copy")
            self._post(self._on_open, told)
            return
        told = self._cell.index.tell(str(failure)) if type(failure) is Exception else failure
        reason: ShardLost
        if isinstance(failure, ShardLost):
            reason = failure
        elif not self._is_ours():
            reason = self._why_not_ours()
        else:
            reason = StoreFailed(f"{type(told).__name__}: {told}")
        _log.error("the cell at %s is lost: %s", self._cell.path, reason, exc_info=failure)
        self._post(self._on_lost, reason, self._round)
        for pool in self._cell.pools:
            with contextlib.suppress(OSError):  # the failure that counts is told already
                pool.close()

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)


def _resolve(told: deque[tuple[Outcome[None], CommitRefused | None]]) -> None:
    """On the loop: tell the outcomes, in order. One listener's failure is not the others'."""
    try:
        while told:
            outcome, refusal = told.popleft()
            if refusal is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(refusal)
    finally:
        if told:
            asyncio.get_running_loop().call_soon(_resolve, told)


def fail_all(queued: deque[Queued], reason: ShardLost) -> None:
    """On the loop: tell all that the shard is lost. One listener's failure is not the others'."""
    try:
        while queued:
            queued.popleft()[1].set_exception(reason)
    finally:
        if queued:
            asyncio.get_running_loop().call_soon(fail_all, queued, reason)
