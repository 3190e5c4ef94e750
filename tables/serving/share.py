"""Things that the sorted tables of a node have in common."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.transactions.unfinished import Unfinished
from pqbroker.storage.counters import KeyValueCounters
from pqbroker.tables.serving.open_reads import OpenReads
from pqbroker.tables.serving.spent_stores import SpentStores
from pqbroker.tables.serving.tasks import TaskTotals

if TYPE_CHECKING:
    from pqbroker.tables.serving.change_feed import FeedTopics
    from pqbroker.tables.serving.merging import Merge
    from pqbroker.tables.serving.open_chunk import KeptBlocks
    from pqbroker.tables.serving.tablet import SortedTablet
    from pqbroker.tables.work.pool import WorkerPool


LOCK_WAIT_S: Final = 5.0
"""Seconds that a prepared row keeps others waiting (C.1)."""


class SortedSettings(NamedTuple):
    """Settings of the node that sorted tables go by. Sizes in bytes."""

    inline_bytes_max: int
    """Smaller values are rows of a KV tablet."""
    columns_max: int
    stores_bytes_max: int
    blocks_bytes_max: int
    flushes_max: int
    compactions_max: int
    partitionings_max: int
    merge_rate: int
    """Bytes a second that are written to chunks."""
    memory_bytes_max: int
    """Memory of a worker."""
    chunk_bytes_max: int
    backoff_ms: int
    worker_idle_s: float


class WriteRate:
    """Bytes or records a second that background work may write; what was taken is paid for by waiting."""

    __slots__ = ("_free_s", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._free_s = 0.0

    async def take(self, count: int) -> None:
        """Return when so much may be written."""
        now_s = asyncio.get_running_loop().time()
        begin_s = max(now_s, self._free_s)
        self._free_s = begin_s + count / self._per_s
        if begin_s > now_s:
            await asyncio.sleep(begin_s - now_s)


class MergeCounters:
    """Counters of the tasks of a node's sorted tables, and of the processes that run them."""

    __slots__ = ("tasks", "workers_lost", "workers_started")

    def __init__(self) -> None:
        self.workers_started = 0
        self.workers_lost = 0
        self.tasks = TaskTotals()


class ChangeCounters:
    """Counters of all change feeds since the start."""

    __slots__ = ("bytes_written", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes_written = 0


def _nothing_runs() -> None:
    """Do nothing: there is no table yet."""


async def _nothing_to_leave(_: "SortedTablet") -> None:
    """Do nothing: there is no background work yet."""


def _as_tablet_says(tablet: "SortedTablet") -> None:
    """Ask the tablet alone: there is no table."""
    tablet.check_writable()


@dataclass(slots=True)
class SortedShare:
    """Things of one opening of the node's cells."""

    time: NodeTime
    settings: SortedSettings
    key_values: KeyValueCounters
    rate: WriteRate = field(init=False)
    counters: MergeCounters = field(default_factory=MergeCounters)
    look_soon: Callable[[], None] = _nothing_runs
    """Has background work look at the tablets in the loop's next turn."""
    leave: "Callable[[SortedTablet], Awaitable[None]]" = _nothing_to_leave
    """Ends the background work of a tablet."""
    check_takes_rows: "Callable[[SortedTablet], None]" = _as_tablet_says
    """Checks that a tablet, and its table, takes rows: TableError as `SortedTable.check_takes_rows`, TABLE_CHANGED."""
    undropped: "list[Merge]" = field(default_factory=list)
    """Merges that have failed, and whose pieces could not be removed yet."""
    spent: SpentStores = field(default_factory=SpentStores)
    reads: OpenReads = field(default_factory=OpenReads)
    unfinished: Unfinished = field(default_factory=Unfinished)
    """Participants with something of a transaction that is not finished."""
    lock_wait_s: float = LOCK_WAIT_S
    """Seconds that a write waits for a locked row, and readers and unmounts for the end of a transaction."""
    topics: "FeedTopics | None" = None
    """Topics that change feeds write to; None: there are none."""
    barred_feeds: dict[str, str] = field(default_factory=dict)
    """Causes for which topics take no changes: at the start of the node the creators of these feeds lacked rights."""
    changes: ChangeCounters = field(default_factory=ChangeCounters)
    stores_bytes: int = 0
    """Memory of all stores, as of the last look."""
    stores_lists: int = 0
    """Keys with several versions in all stores, as of the last look."""
    stores_blocks: int = 0
    """Blocks of memory of all stores, as of the last look."""
    _kept: "KeptBlocks | None" = None
    _workers: "WorkerPool | None" = None

    def __post_init__(self) -> None:
        self.rate = WriteRate(self.settings.merge_rate)

    @property
    def kept(self) -> "KeptBlocks":
        """Return the blocks that lookups keep; made with the first table."""
        if self._kept is None:
            from pqbroker.tables.serving.open_chunk import KeptBlocks

            self._kept = KeptBlocks(self.settings.blocks_bytes_max)
        return self._kept

    @property
    def used_workers(self) -> "WorkerPool | None":
        """Return the processes that merge; None: nothing was merged yet."""
        return self._workers

    @property
    def used_blocks(self) -> "KeptBlocks | None":
        """Return the blocks that lookups keep; None: there was no table yet."""
        return self._kept

    @property
    def workers(self) -> "WorkerPool":
        """Return the processes that merge; made with the first merge."""
        if self._workers is None:
            from pqbroker.tables.work.pool import WorkerPool

            self._workers = WorkerPool(self.counters)
        return self._workers

    async def close(self) -> None:
        """End the processes."""
        if self._workers is not None:
            await self._workers.close()
