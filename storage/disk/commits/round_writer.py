"""Makes planned rounds durable and applies them to the index; gives back files of which the index has all on disk.

A round whose payload is in one segment has its rows behind that payload: one write, one sync. Any other has its
payload, if there is one, written and synced first, then its rows in the commit log. The index learns of a round after
that, and writes it to its own files much later.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

from pqbroker.storage.disk.commits.commit_log import CommitLog
from pqbroker.storage.disk.free_space import NO_ROOM
from pqbroker.storage.disk.index import Index, TellsDamage
from pqbroker.storage.disk.pools import Pool
from pqbroker.storage.disk.round_plan import RoundPlan
from pqbroker.storage.engine import EngineError

_log = logging.getLogger(__name__)
_IDLE_SECONDS = 0.05
"""Without a commit, after which the log's end is written a second time."""
SPARE_ROWS_BYTES = 128 << 10
"""Rows that the index keeps in memory on a disk that is nearly full: a flush of them fits where a start does."""
_FLUSH_SECONDS = 1.0
"""Between flushes of the index that are only made to give back segments."""


class RoundWriter:
    """The round writer of one open cell; it belongs to the commit thread. `sync_seconds`: 0 for every round, None for
    never by itself."""

    def __init__(self, index: Index, log: CommitLog, pools: Sequence[Pool], sync_seconds: float | None) -> None:
        self.syncs = 0
        """Rounds, or several at once, that were synced."""
        self.number = self._synced_number = log.last_number
        """The last round that was written; none before it is missing."""
        self.is_held = False
        """A backup is being made: no file is removed."""
        self._index = index
        self._log = log
        self._pools = pools
        self._sync_seconds = sync_seconds
        self._sync_due = 0.0
        self._flush_due = 0.0
        self._is_writing = False
        """True while a round has been written in part, or not yet synced everywhere that it has to be."""
        self._side_by_side: ThreadPoolExecutor | None = None
        """Threads that sync further pools; none until there is a second."""

    @property
    def is_unsynced(self) -> bool:
        return self._synced_number < self.number

    @property
    def is_sync_due(self) -> bool:
        return self.is_unsynced and self._sync_seconds is not None and time.monotonic() >= self._sync_due

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` has something to do; None when it has nothing."""
        if self._synced_number < self.number and self._sync_seconds is not None:
            return max(0.0, self._sync_due - time.monotonic())
        if self._log.end.number < self._synced_number:
            return _IDLE_SECONDS
        return _FLUSH_SECONDS / 20 if self._index.is_flushing or self._has_emptied() else None

    def write_payload(self, plan: RoundPlan) -> bool:
        """Write the round's payload, with its rows if they stand behind it, and sync where each round is.

        False when there was no room, and nothing of it is left.
        """
        self._is_writing = True
        behind = plan.behind
        if behind is not None:
            head = self._log.header(
                behind.content, number=plan.number, payload_bytes=behind.payload_bytes, zeros=behind.zeros
            )
            rows = (head, behind.content, behind.zeros) if behind.zeros else (head, behind.content)
            behind.segment.buffers += rows
            behind.segment.last_rows = plan.number
        pending = [pool for pool in self._pools if pool.pending()]
        try:
            for pool in pending:
                pool.write()
        except OSError as failure:
            if failure.errno not in NO_ROOM:
                raise
            _log.warning("no room for blobs, the writes of this round are refused: %s", failure)
            for pool in self._pools:
                pool.undo()
            return False
        if self._sync_seconds == 0:
            self._sync_pools(pending)
        return True

    def write_rows(self, plan: RoundPlan) -> None:
        """Write the round's rows, unless they stand behind its payload, and sync where each round is."""
        self._is_writing = True
        if plan.behind is not None:
            self._log.note(plan.number)
        else:
            self._log.write(plan.number, plan.changes.encoded())
            if self._sync_seconds == 0:
                self._log.sync()
        if self._sync_seconds == 0:
            self.syncs += 1
            self._synced_number = plan.number
        elif not self.is_unsynced:
            self._sync_due = time.monotonic() + (self._sync_seconds or 0)
        self.number = plan.number
        self._is_writing = False

    def apply(self, plan: RoundPlan) -> None:
        """The round is ours: the index learns of it, and the pools."""
        self._index.write(plan.changes, plan.number)
        has_emptied = False
        for pool in self._pools:
            if pool.touched:
                pool.settle(plan.number)
            has_emptied = has_emptied or bool(pool.emptied)
        is_unsynced = self._synced_number < self.number
        if is_unsynced and (self.is_sync_due or (self._sync_seconds is None and has_emptied)):
            self.sync()
        elif has_emptied or self._index.is_flushing:
            self._give_back()

    def tend(self) -> None:
        """Sync rounds that are due and give back space, while nothing is committed."""
        if self.is_sync_due:
            self.sync()
        else:
            self._give_back()
        self._index.tend()
        self._log.end.tell(self._synced_number)

    def make_spare(self) -> None:
        """The disk is nearly full: have the index write what it has while there is room, so that the log holds little.

        A start with less room than that takes needs it all the same before any segment goes.
        """
        if not self.is_held and not self._index.is_flushing and self._index.unwritten_bytes >= SPARE_ROWS_BYTES:
            self._index.flush()

    def sync(self) -> None:
        """Make everything written so far durable."""
        self._sync_pools(self._pools)
        self._log.sync()
        self.syncs += 1
        self._synced_number = self.number
        self._give_back()

    def close(self) -> None:
        """Sync and close all files. OSError.

        Where there is room for it, the index gets all, and the log is left empty: then nothing that happens to the
        directory while it is closed can be damage to rounds that only the log has.
        """
        if self.is_unsynced:
            self.sync()
        self._log.end.tell(self._synced_number)
        with suppress(EngineError), TellsDamage(self._index.tell):
            self._index.flush(wait=True)
        if self._index.flushed() >= self.number:
            self._log.begin_again()
        self._give_back()
        for pool in self._pools:
            pool.close()
        self._log.close()

    def let_go(self, *, is_ours: bool) -> None:
        """Close all files after a failure that has been reported; a second one is ignored.

        What a sync that failed left of a round is taken back, while the cell is ours: the system may show it to the
        next opening, though it never reaches the disk.
        """
        takes_back = self._is_writing and is_ours
        for pool in self._pools:
            with suppress(OSError):
                if takes_back:
                    pool.undo()
                pool.close()
        with suppress(OSError):
            self._log.let_go(takes_back=takes_back)

    def end(self) -> None:
        """End the threads that sync."""
        if self._side_by_side is not None:
            self._side_by_side.shutdown()

    def tell(self, told: str) -> EngineError:
        """Return the EngineError for an error of the index, which is a plain Exception of this text."""
        return self._index.tell(told)

    def _has_emptied(self) -> bool:
        return any(pool.emptied for pool in self._pools)

    def _give_back(self) -> None:
        """Remove log files and emptied segments of which the index has all on disk.

        Those that still wait have it write what it has, at most once a second: deletes are to give back room.
        """
        if self.is_held:
            return
        flushed = self._index.flushed()
        self._log.forget(flushed)
        for pool in self._pools:
            pool.unlink_emptied(self._synced_number, flushed)
        if self._has_emptied() and not self._index.is_flushing and time.monotonic() >= self._flush_due:
            self._flush_due = time.monotonic() + _FLUSH_SECONDS
            self._index.flush()

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
