"""Background work of a node's sorted tables: rotation, flush, compaction, partitioning, balance of partitions.

A look each second, and after each task, takes the facts of every mounted tablet, and begins what is picked
(`tables/sorted/picking`), as far as there is room: flushes first, then the tablet with the least slack. A tablet runs
one flush at a time, and one task on a chunk. What fails backs off; nothing but flushes runs in a cell whose losses are
not accepted yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, timestamp_of
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, CommitRefused, ShardLost
from pqbroker.storage.kv.commands import KeyValueError
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.merging import (
    Merge,
    Merged,
    MergeFailed,
    MergeInput,
    MergeRules,
    MergeTablets,
    merge_document,
)
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.partition_balance import balanced_pivots
from pqbroker.tables.serving.preloading import MODE_NONE, let_go, next_chunk, preload
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.store_memory import look_at_memory
from pqbroker.tables.serving.stored_keys import chunk_data_key
from pqbroker.tables.serving.surveying import SurveyPace, stores_and_overlaps, surveyed
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.serving.tasks import FLUSH, MERGE, SPLIT, TASK_LEFT, TaskHistory, TaskRecord
from pqbroker.tables.serving.write_blocks import WriteBlocks
from pqbroker.tables.sorted.chunks import ChunkDamaged
from pqbroker.tables.sorted.picking.balancing import PartitionMerge, PartitionSplit, pick_merges, pick_splits
from pqbroker.tables.sorted.picking.major_timestamp import major_timestamp, major_timestamp_of_flush
from pqbroker.tables.sorted.picking.rotation import rotation_reason
from pqbroker.tables.sorted.picking.survey import ChunkTask, Survey, TaskKind, in_order
from pqbroker.tables.sorted.store import RowStore
from pqbroker.tables.sorted.versions import CleanUp

TABLES_LOOK_S: Final = 1.0
TABLETS_AT_ONCE: Final = 50
"""Tablets that a look surveys before the loop's other work has its turn."""
CHUNKS_NOTED: Final = 100
"""Chunks of a partition that the history names where it was split or merged."""
_FAILURES = (BlobCorrupt, BlobMissing, ChunkDamaged, CommitRefused, KeyValueError, MergeFailed, OSError, ShardLost)
_Work = Callable[[], Awaitable[object]]
_Naming = Callable[[Merged], Coroutine[Any, Any, Sequence[OpenChunk]]]
"""Names the chunks that a merge has staged."""
_log = logging.getLogger(__name__)


class Background:
    """`tablets` gives the tablets of all tables, each with whether it is frozen."""

    def __init__(self, share: SortedShare, tablets: Callable[[], Iterable[tuple[SortedTablet, bool]]]) -> None:
        self._share = share
        share.look_soon = self.look_soon
        share.leave = self.leave
        self._tablets = tablets
        self.history = TaskHistory()
        self.looks = 0
        """Looks that have ended."""
        self._wanted = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._preloading: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[Any], str] = {}
        """Kinds of the tasks under way."""
        self._namings: set[asyncio.Task[Any]] = set()
        """Requests on their way that name what was staged: they end even where their task is cancelled."""
        self._flushing: dict[SortedTablet, asyncio.Task[Any]] = {}
        self._pace = SurveyPace()
        self._backoffs: dict[SortedTablet, int] = {}
        """Times in milliseconds before which no flush of a tablet is tried again."""
        self.failures: dict[SortedTablet, str] = {}
        """Causes of the last flush of each tablet that failed."""
        self.blocks = WriteBlocks()
        """Tablets that took no writes at the last look."""

    def start(self) -> None:
        """Begin to look, unless that is begun."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def stop(self) -> None:
        """End everything; what is staged and not named goes at the next start."""
        tasks = [task for task in (self._looking, self._preloading, *self._running) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._share.close()

    def look_soon(self) -> None:
        """Look in the loop's next turn."""
        self._wanted.set()

    async def flush(self, tablet: SortedTablet) -> None:
        """Flush all rows of a tablet, of writes that wait too; no others come meanwhile. TableError FLUSH_FAILED,
        TRANSACTION_UNDER_WAY."""
        while tablet.is_serving and tablet.has_unflushed:
            await tablet.resumed()
            if not tablet.takes_tasks:
                continue
            if tablet not in self._flushing:
                tablet.rotate()
                if tablet.passive:
                    self._backoffs.pop(tablet, None)
                    self._begin_flush(tablet, tablet.passive[0])
            task = self._flushing.get(tablet)
            if task is None:
                await tablet.drained()
                continue
            await asyncio.wait([task])
            if tablet in self.failures:
                text = f"rows of {tablet.name} cannot be flushed: {self.failures[tablet]}"
                raise TableError("FLUSH_FAILED", text, "See to the cause, or give --force: the log keeps the rows.")

    def retry_ms(self, tablet: SortedTablet) -> int:
        """Return the time before which no flush of a tablet is tried again, in milliseconds since 1970; 0: any."""
        return self._backoffs.get(tablet, 0)

    def running_by_kind(self) -> dict[str, tuple[int, int]]:
        """Return the tasks under way by kind, each with the most at once."""
        settings = self._share.settings
        most = {
            FLUSH: settings.flushes_max, TaskKind.COMPACTION: settings.compactions_max,
            TaskKind.PARTITIONING: settings.partitionings_max, TaskKind.DISCARD: 1,
        }  # fmt: skip
        return {str(kind): (self._count(kind), count) for kind, count in most.items()}

    async def leave(self, tablet: SortedTablet) -> None:
        """End the tasks of a tablet within a second, and forget what of it has failed. What a task was about to name is
        named, or is not, when this returns: also where another caller has ended the task."""
        for task in self._of(tablet, self._running):
            task.cancel()
        while tasks := [*self._of(tablet, self._running), *self._of(tablet, self._namings)]:
            await asyncio.wait(tasks)
        self.failures.pop(tablet, None)
        self._backoffs.pop(tablet, None)

    def _of(self, tablet: SortedTablet, tasks: Iterable["asyncio.Task[Any]"]) -> list["asyncio.Task[Any]"]:
        return [task for task in tasks if not task.done() and task.get_name() == str(tablet.config.tablet_id)]

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            look = loop.create_task(self._look())
            try:
                await asyncio.wait([look])
            finally:
                look.cancel()  # if this is: no task begins any more
            if not look.cancelled() and (defect := look.exception()) is not None:
                _log.critical("background work of sorted tables was not picked; this is a defect", exc_info=defect)
            self._wanted.clear()
            try:
                async with asyncio.timeout(TABLES_LOOK_S):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        now_ms = self._share.time.clock()
        self._share.spent.look()
        undropped, self._share.undropped = self._share.undropped, []
        for merge in undropped:
            await merge.drop()
        found: list[tuple[Survey, SortedTablet, int]] = []
        served = [(tablet, is_frozen) for tablet, is_frozen in self._tablets() if tablet.is_serving]
        for number, (tablet, is_frozen) in enumerate(served):
            if number % TABLETS_AT_ONCE == TABLETS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if not tablet.takes_tasks or tablet.is_idle:
                continue
            self._look_at_stores(tablet, now_ms, is_frozen=is_frozen)
            if tablet.structure.chunks and not is_frozen and not tablet.is_held and self._pace.is_due(tablet):
                changes, begun_s = tablet.structure.changes, asyncio.get_running_loop().time()
                found.append((await surveyed(tablet, now_ms), tablet, changes))
                self._pace.note(tablet, changes, begun_s)
        await look_at_memory(self._share, [tablet for tablet, _ in served if tablet.is_serving])
        await self.blocks.look(served, TABLETS_AT_ONCE)
        tasks = {task.place: (task, tablet) for seen, tablet, _ in found for task in seen.tasks()}
        begun: set[SortedTablet] = set()
        for picked in in_order(task for task, _ in tasks.values()):
            task, tablet = tasks[picked.place]
            if self._has_room(task.kind) and tablet.takes_tasks and _is_possible(tablet, task):
                self._begin_task(tablet, task)
                begun.add(tablet)
        for seen, tablet, changes in found:
            is_of_now = tablet not in begun and changes == tablet.structure.changes
            await self._balance(tablet, seen if is_of_now else None, now_ms)
        for tablet, _ in served:
            self._look_at_memory_mode(tablet)
        self.looks += 1

    def _look_at_stores(self, tablet: SortedTablet, now_ms: int, *, is_frozen: bool) -> None:
        """Rotate the active store if that is due, and flush the oldest passive one."""
        reason = None if is_frozen else rotation_reason(tablet.stores_in_memory(), now_ms)
        if reason is not None:
            tablet.rotate(reason)
        attributes = tablet.config.attributes
        if tablet.passive and attributes.enable_store_flush and tablet not in self._flushing:
            is_due = now_ms >= self._backoffs.get(tablet, 0)
            running, most = self.running_by_kind()[FLUSH]
            if is_due and running < most:
                self._begin_flush(tablet, tablet.passive[0])

    def _look_at_memory_mode(self, tablet: SortedTablet) -> None:
        """Read a chunk of a table that is kept in memory; let go of those of one that is not any more."""
        mode, structure = tablet.config.attributes.in_memory_mode, tablet.structure
        if not tablet.takes_tasks or structure.settled_mode == mode:
            return
        if mode == MODE_NONE:
            let_go(tablet)
        chunk = next_chunk(tablet)
        if chunk is None:
            structure.settled_mode = mode
        elif self._preloading is None:
            self._preloading = asyncio.get_running_loop().create_task(preload(tablet, chunk))
            self._preloading.add_done_callback(self._preloaded)

    def _preloaded(self, task: "asyncio.Task[None]") -> None:
        self._preloading = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("a chunk was not read into memory; this is a defect", exc_info=task.exception())
        self.look_soon()

    def _count(self, kind: str) -> int:
        return sum(known == kind for known in self._running.values())

    def _has_room(self, kind: TaskKind) -> bool:
        running, most = self.running_by_kind()[kind]
        return running < most

    def _begin(
        self, tablet: SortedTablet, record: TaskRecord, work: Coroutine[Any, Any, None], end: Callable[[], None]
    ) -> "asyncio.Task[None]":
        """Begin a task; `end` is called whatever becomes of it, even where it is cancelled before its first step."""
        task = asyncio.get_running_loop().create_task(work, name=str(tablet.config.tablet_id))
        self._running[task] = record.kind
        task.add_done_callback(partial(self._ended, record, end))
        return task

    def _ended(self, record: TaskRecord, end: Callable[[], None], task: "asyncio.Task[None]") -> None:
        end()
        self.history.end(record, self._share.time.clock())
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background work of a sorted table failed; this is a defect", exc_info=task.exception())
        self.look_soon()

    def _begin_flush(self, tablet: SortedTablet, store: RowStore) -> None:
        inputs = tablet.log_inputs(store)
        size = sum(entry.size for item in inputs if (entry := tablet.kv.entry(item.key)) is not None)
        record = self._record(FLUSH, tablet, store.passive_for, [store.number], size)
        attributes = tablet.config.attributes
        rules = self._rules_of_flush(tablet, store) if attributes.merge_rows_on_flush else None
        document = self._document(tablet, MergeRules(rules, merges_deletes=attributes.merge_deletions_on_flush))
        merge = Merge(self._share, MergeTablets(tablet.kv), tablet.new_number(), inputs, document)

        def end() -> None:
            self._flushing.pop(tablet, None)

        async def name(merged: Merged) -> list[OpenChunk]:
            retained = None if rules is None else rules.retained
            return await tablet.name_flushed(merge.kv, store, merged.chunks, retained)

        self._flushing[tablet] = self._begin(tablet, record, self._flush(tablet, merge, name, record), end)

    async def _flush(self, tablet: SortedTablet, merge: Merge, name: _Naming, record: TaskRecord) -> None:
        try:
            await self._merge(merge, name, record)
            self._done(record, tablet)
            self.failures.pop(tablet, None)
        except asyncio.CancelledError:
            record.failure = TASK_LEFT
            raise
        except _FAILURES as failure:
            self.failures[tablet] = str(failure)
            self._backoffs[tablet] = self._share.time.clock() + self._share.settings.backoff_ms
            self._failed(record, tablet, failure)

    def _begin_task(self, tablet: SortedTablet, task: ChunkTask) -> None:
        chunks = [tablet.structure.chunks[number] for number in task.choice.numbers]
        reason = str(task.choice.reason)
        record = self._record(task.kind, tablet, reason, task.choice.numbers, task.choice.compressed_bytes)
        for chunk in chunks:
            chunk.is_busy = True
        if task.kind is TaskKind.PARTITIONING:
            tablet.is_eden_partitioning = True

        def end() -> None:
            for chunk in chunks:
                chunk.is_busy = False
            if task.kind is TaskKind.PARTITIONING:
                tablet.is_eden_partitioning = False

        work: _Work
        if task.kind is TaskKind.DISCARD:
            work = partial(tablet.name_merged, tablet.kv, chunks, [], self._retained(tablet))
        else:
            work = self._compaction(tablet, task, chunks, record)
        self._begin(tablet, record, self._run(tablet, chunks, work, record), end)

    async def _run(
        self, tablet: SortedTablet, chunks: Sequence[OpenChunk], work: _Work, record: TaskRecord
    ) -> None:
        try:
            await work()
            self._done(record, tablet)
        except asyncio.CancelledError:
            record.failure = TASK_LEFT
            raise
        except _FAILURES as failure:
            self._back_off(tablet, chunks, failure)
            self._failed(record, tablet, failure)

    def _compaction(
        self, tablet: SortedTablet, task: ChunkTask, chunks: Sequence[OpenChunk], record: TaskRecord
    ) -> _Work:
        """Return the work of a compaction or partitioning, which takes its inputs as they are now."""
        rules = self._rules(tablet, major_timestamp(tablet.stores_now(), task.choice.numbers))
        pivots = tablet.structure.pivots[1:] if task.kind is TaskKind.PARTITIONING else []
        document = self._document(tablet, MergeRules(rules, pivots))
        inputs = [MergeInput("chunk", chunk_data_key(chunk.number)) for chunk in chunks]
        merge = Merge(self._share, MergeTablets(tablet.kv), tablet.new_number(), inputs, document)

        async def name(merged: Merged) -> list[OpenChunk]:
            return await tablet.name_merged(merge.kv, chunks, merged.chunks, rules.retained)

        return partial(self._merge, merge, name, record)

    async def _merge(self, merge: Merge, name: _Naming, record: TaskRecord) -> None:
        """Merge and stage, then name what is staged. MergeFailed, CommitRefused, ShardLost."""
        merged = await self._merged(merge, record)
        await self._name(merge, name(merged), record)

    async def _merged(self, merge: Merge, record: TaskRecord) -> Merged:
        record.staging = merge
        merged = await merge.run()
        record.bytes_read, record.rows_read = merged.bytes_read, merged.rows_read
        record.bytes_written = merged.bytes_written
        record.rows_written = sum(int(chunk.facts["rows"]) for chunk in merged.chunks)
        return merged

    async def _name(
        self, merge: Merge, naming: Coroutine[Any, Any, Sequence[OpenChunk]], record: TaskRecord
    ) -> None:
        """Name what is staged, which goes where that is refused."""
        task = asyncio.get_running_loop().create_task(naming, name=str(record.tablet_id))
        self._namings.add(task)
        task.add_done_callback(self._namings.discard)
        try:
            chunks = await asyncio.shield(task)
        except BaseException:
            await merge.drop()
            raise
        record.outputs = [chunk.number for chunk in chunks]

    def _record(
        self, kind: str, tablet: SortedTablet, reason: str, inputs: Sequence[int], input_bytes: int
    ) -> TaskRecord:
        config = tablet.config
        now_ms = self._share.time.clock()
        record = TaskRecord(str(kind), config.table, config.tablet_id, reason, tuple(inputs), now_ms, input_bytes)
        return self.history.begin(record)

    def _done(self, record: TaskRecord, tablet: SortedTablet) -> None:
        """Count a task that has ended well."""
        self._share.counters.tasks.count(record)
        tablet.totals.count(record)

    def _failed(self, record: TaskRecord, tablet: SortedTablet, failure: BaseException) -> None:
        record.failure = str(failure)
        self._share.counters.tasks.count(record)
        tablet.totals.count(record)
        cure = f"; {failure.cure}" if isinstance(failure, MergeFailed) else ""
        _log.warning("%s of a tablet of %s is tried again later: %s%s", record.kind, record.table, failure, cure)

    def _back_off(self, tablet: SortedTablet, chunks: Sequence[OpenChunk], failure: BaseException) -> None:
        until = self._share.time.clock() + self._share.settings.backoff_ms
        for chunk in chunks:
            chunk.backoff_until_ms = until
        if isinstance(failure, MergeFailed) and failure.damaged_input is not None and failure.code == "INPUT_DAMAGED":
            chunks[failure.damaged_input].damaged(tablet.config.schema, failure)

    def _retained(self, tablet: SortedTablet) -> int:
        """Return the timestamp from which on readers find what they found before a clean-up of now; a read below it is
        refused from now on. It is not above that of any query which is open, or of any commit that is under way."""
        oldest_ms = self._share.time.clock() - tablet.config.attributes.min_data_ttl
        bound = min(self._share.reads.bound(timestamp_of(max(oldest_ms, 0))), tablet.unfinished_timestamp)
        tablet.cleaned_timestamp = max(bound, tablet.facts.retained_timestamp, tablet.cleaned_timestamp)
        return max(bound, tablet.facts.retained_timestamp)

    def _rules(self, tablet: SortedTablet, major: int) -> CleanUp:
        attributes = tablet.config.attributes
        return CleanUp(
            self._share.time.clock(), attributes.min_data_ttl, attributes.max_data_ttl, attributes.min_data_versions,
            attributes.max_data_versions, major, self._retained(tablet), major,
        )  # fmt: skip

    def _rules_of_flush(self, tablet: SortedTablet, store: RowStore) -> CleanUp:
        """Return the rules of `merge_rows_on_flush`: what a newer version of the same store hides goes."""
        rules = self._rules(tablet, major_timestamp_of_flush(tablet.stores_now(), store.number))
        return replace(rules, hidden_before=TIMESTAMP_MAX)

    def _document(self, tablet: SortedTablet, rules: MergeRules) -> dict[str, Any]:
        samples_max = tablet.config.attributes.samples_per_partition
        return merge_document(tablet.config.schema, self._share.settings, rules, samples_max)

    async def _balance(self, tablet: SortedTablet, seen: Survey | None, now_ms: int) -> None:
        """Split and merge partitions as the tablet calls for now; none of their chunks is read. `seen`: a survey of it;
        None: the last one is out of date."""
        if not tablet.takes_tasks or tablet.is_eden_partitioning:
            return
        stores, found = await stores_and_overlaps(tablet) if seen is None else (seen.tablet, seen.overlaps)
        splits = pick_splits(stores, found, now_ms)
        merges = pick_merges(stores, splits, now_ms)
        if not splits and not merges:
            return
        try:
            pivots, unsplit = await balanced_pivots(tablet, splits, merges)
            for split in unsplit:
                self._let_rest(tablet, split.partition.pivot, now_ms)
            if pivots != tablet.structure.pivots and tablet.takes_tasks:
                before = set(tablet.structure.pivots)
                await tablet.name_pivots(pivots)
                self._note_balance(tablet, [split for split in splits if split.is_done(before, pivots)], merges)
                self.look_soon()
        except _FAILURES as failure:
            _log.warning("partitions of %s stay as they are: %s", tablet.name, failure)
            for partition in [*(split.partition for split in splits), *(merge.left for merge in merges)]:
                self._let_rest(tablet, partition.pivot, now_ms)

    def _note_balance(
        self, tablet: SortedTablet, splits: Sequence[PartitionSplit], merges: Sequence[PartitionMerge]
    ) -> None:
        """Note splits and merges that have happened as tasks."""
        done = [(SPLIT, split.reason, split.partition.chunks) for split in splits]
        done += [(MERGE, merge.reason, (*merge.left.chunks, *merge.right.chunks)) for merge in merges]
        for kind, reason, chunks in done:
            record = self._record(kind, tablet, reason, [chunk.number for chunk in chunks[:CHUNKS_NOTED]], 0)
            self._done(record, tablet)
            self.history.end(record, self._share.time.clock())

    def _let_rest(self, tablet: SortedTablet, pivot: bytes, now_ms: int) -> None:
        tablet.structure.backoffs[pivot] = now_ms + self._share.settings.backoff_ms


def _is_possible(tablet: SortedTablet, task: ChunkTask) -> bool:
    """Return True if the tablet still has the chunks of a task, and none is in another one: surveys take a while."""
    known = tablet.structure.chunks
    chunks = [known.get(number) for number in task.choice.numbers]
    return tablet.is_serving and all(chunk is not None and not chunk.is_busy for chunk in chunks)
