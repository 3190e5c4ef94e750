"""The sorted tablet: one key range of a table over a KV tablet, over all its generations.

    closed --start--> loaded --mount--> replaying --> mounted --unmount--> loaded
                                                              --hold--> held --start--> mounted, in a later generation
    any    --lose, stop--> closed

A tablet that was held when its cell was well keeps its stores in memory: what is durable is what it has. After a loss
it reads its log again, in slices, and answers meanwhile that it is starting. Background work belongs to one generation:
it ends when the tablet is held, and what it had staged is removed at the start.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.conf.sorted_attributes import DYNAMIC_STORES_MAX, SortedAttributes
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.transactions.participants import Participant, ReceivedPart, SentRows
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, CommitRefused, ShardLost, StoreFailed
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.kv.commands import INLINE, Command, Concat, DeleteRange, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.kv.tablet_copy import TabletCopy
from pqbroker.storage.tablets.hosting import TabletPage, TabletSample
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.change_feed import ChangeFeed
from pqbroker.tables.serving.chunk_records import ChunkRecord, encode_pivots
from pqbroker.tables.serving.feed_progress import FeedProgress
from pqbroker.tables.serving.loading import load, load_transactions, read_log, remove_staged
from pqbroker.tables.serving.lookups import Lookup, StoredRows
from pqbroker.tables.serving.merging import MergedChunk, MergeInput, removal
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.row_locks import LockedRows
from pqbroker.tables.serving.row_transactions import RowTransactions
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.store_log import LogWrite, StoreLog
from pqbroker.tables.serving.stored_keys import (
    FACTS_KEY,
    PIVOTS_KEY,
    chunk_data_key,
    chunk_key,
)
from pqbroker.tables.serving.structure import Structure
from pqbroker.tables.serving.tablet_facts import TabletFacts
from pqbroker.tables.serving.tasks import TaskTotals
from pqbroker.tables.serving.writes import ROWS_OF_TURN, Stamped, TabletWrites
from pqbroker.tables.sorted.log_entries import EntryDamaged
from pqbroker.tables.sorted.packed_rows import TIMESTAMP
from pqbroker.tables.sorted.picking.facts import DynamicStore, PartitionChunks, TabletStores
from pqbroker.tables.sorted.picking.rotation import RotationReason, is_full
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.store import RowStore
from pqbroker.tables.sorted.write_refusals import WriteFacts, write_refusal
from pqbroker.tables.work.libraries import check_libraries

_STARTING = "Try again in a moment: the tablet reads its log."
_log = logging.getLogger(__name__)


class TabletConfig(NamedTuple):
    """The things that a table says of one of its tablets."""

    name: str
    """Name in texts for people."""
    table: str
    tablet_id: int
    schema: SortedSchema
    attributes: SortedAttributes
    """Attributes in force in the tablet."""
    pivot: bytes
    end: bytes | None
    """Pivot of the next tablet; None: it is the last one."""
    revision: int
    """Revision of the table: a forced compaction takes chunks of lower ones."""
    number: int = 0
    """The tablet's number in the table, and that of its partition in a change feed."""


FLUSH_MEMORY_PART: Final = 4
"""A store takes this part of the memory of a process that merges, for a flush reads all of its log: it needs 100 MiB
for libraries, the bytes of the log, and about 100 for each row (measured). The commit that makes it full is extra."""


class PlannedCommit(NamedTuple):
    """The plan of one commit of this tablet's."""

    commands: Sequence[Command]
    log: StoreLog
    store: RowStore
    log_write: LogWrite | None
    """None: there is no row."""
    writes: Sequence[Stamped]


class SortedTablet:
    """One tablet. Its config is the table's, and changes with a remount, or while it is not mounted."""

    def __init__(self, config: TabletConfig, share: SortedShare) -> None:
        self.config = config
        self.share = share
        self.writes: TabletWrites = TabletWrites(self, share.time)
        self.transactions = RowTransactions(self)
        self.facts = TabletFacts()
        self.totals = TaskTotals()
        """Totals of its tasks since the start of the node."""
        self.progress = FeedProgress()
        """Progress in the topic that feeds the table; the first tablet's counts."""
        self.stores: list[RowStore] = []
        """Stores in memory, the active one last; none while the tablet is not mounted."""
        self.structure = Structure([config.pivot], config.end)
        self.memory_refusal: TableError | None = None
        """Reason why all writes are refused for want of memory, as of the last look."""
        self.is_eden_partitioning = False
        self.cleaned_timestamp = 0
        """Versions below may be left out by a clean-up that has begun: a read there is an error, as below what is
        retained."""
        self._logs: dict[int, StoreLog] = {}
        """Logs of the stores, by number."""
        self._next_number = 1
        self.unreadable: StoredUnreadable | None = None
        self.is_mounted = False
        """True while rows are read and, unless the table is frozen, written."""
        self._rotating_for: RotationReason | None = None
        """Reason why the active store is to become passive once the commit on its way is durable; None: it is not."""
        self._replay: asyncio.Task[None] | None = None
        self._is_closed = True
        self._resumed = asyncio.Event()
        """Set unless the tablet is held, or starts."""
        self._start_s = 0.0

    kv: KeyValueTablet
    """Keys of the generation that runs: those of an earlier one until a start has read them."""

    @property
    def name(self) -> str:
        return self.config.name

    async def start(self, storage: TabletStorage) -> None:
        """Begin an instance, as `Tablet.start` does; mounted once its log is read, if it was to be mounted before. An
        instance that has not begun is lost."""
        begun_s = asyncio.get_running_loop().time()
        must_load = self._is_closed or self.unreadable is not None
        if must_load:
            self.transactions.forget()
        self._is_closed, self.unreadable = False, None
        self._resumed.clear()
        self._storage = storage
        kv = KeyValueTablet(
            storage, inline_bytes_max=self.share.settings.inline_bytes_max, clock=self.share.time.clock,
            counters=self.share.key_values,
        )  # fmt: skip
        try:
            await kv.start()
            self.kv = kv
            if must_load:
                config = self.config
                loaded = await load(kv, config.name, config.pivot, config.end)
                prepared, decisions = await load_transactions(kv)
                self.facts, self.progress, self.structure = loaded.facts, loaded.progress, loaded.structure
                self._next_number = max(self._next_number, loaded.next_number)
                if not self._is_closed:  # else it was lost meanwhile
                    self.transactions.take(prepared, decisions)
            if not storage.reading_only and not storage.is_held:
                await remove_staged(kv)
        except (BlobCorrupt, BlobMissing, StoredUnreadable, ValueError) as damage:
            self.kv = kv
            self._refuse(damage)
            return
        except BaseException:
            self.lose()  # what is in memory may be older than what is stored: the next start reads that
            raise
        finally:
            self._resumed.set()
        if self.is_mounted and not self._is_closed:
            if must_load or not self.stores:
                self._begin_replay()
            else:
                self.writes.start()
        self._start_s = asyncio.get_running_loop().time() - begun_s

    def await_cell(self, storage: TabletStorage) -> None:
        """The tablet's cell is not open: `storage` stands in and is lost."""
        self._storage = storage
        self.kv = KeyValueTablet(storage, inline_bytes_max=1, clock=self.share.time.clock)

    def mount(self) -> None:
        """Serve rows from now on: those of the log once they are read."""
        if self.is_mounted:
            return
        self.is_mounted = True
        if not self._is_closed and self._resumed.is_set() and self.unreadable is None:
            self._begin_replay()

    async def mounted(self) -> None:
        """Return when the log is read, or is found to be unreadable."""
        if self._replay is not None:
            await asyncio.wait([self._replay])

    async def unmount(self) -> None:
        """Serve no rows any more; what waits is refused, and background work ends. What is in no chunk yet stays in
        the log. TableError TRANSACTION_UNDER_WAY: rows are prepared and stay so; the tablet serves as before."""
        await self.end_transactions(with_decisions=False)
        self.is_mounted = False
        await self.share.leave(self)
        await self._end_replay()
        await self.writes.hold()
        self.writes.close(TableError("WRONG_STATE", f"{self.name} is unmounted", "`pqbroker table mount` mounts it."))
        self.stores = []
        self._logs = {}
        self.share.kept.forget(self.structure.chunks.values())
        self.structure.settled_mode = None
        can_read = not self._is_closed and self._resumed.is_set() and self.unreadable is None
        if self.is_mounted and can_read and self._replay is None:  # it was mounted while writes were held
            self._begin_replay()

    async def hold(self) -> None:
        """Begin no write and no background work until the next start; what runs of that ends."""
        self._resumed.clear()
        await self.share.leave(self)
        await self._end_replay()
        await self.writes.hold()
        await self.transactions.hold()

    async def end_transactions(self, *, with_decisions: bool) -> None:
        """Begin no write any more once nothing is prepared, and `with_decisions` no other participant waits for a
        decision of this one; `resume_writes` lets them begin again. TableError TRANSACTION_UNDER_WAY: they do."""
        deadline_s = asyncio.get_running_loop().time() + self.lock_wait_s
        while True:
            await self.transactions.ended(deadline_s, with_decisions=with_decisions)
            await self.writes.hold()
            if self.transactions.under_way(with_decisions=with_decisions) is None:
                return
            self.resume_writes()  # a part that held has prepared its rows meanwhile

    def resume_writes(self) -> None:
        """Begin writes again after `end_transactions`, if the tablet serves any."""
        if self.is_serving and self._resumed.is_set():
            self.writes.start()

    async def stop(self) -> None:
        await self._end_replay()
        self.lose()

    def lose(self) -> None:
        """The cell is lost: what waits fails."""
        self._is_closed = True
        self._resumed.set()
        if self._replay is not None:
            self._replay.cancel()
        self.stores, self._logs = [], {}
        self.writes.close(StoreFailed(f"{self.name} was lost"))
        self.transactions.forget()

    def copy_to(self, target: TabletStorage) -> TabletCopy:
        return TabletCopy(self.kv, target)

    def describe(self) -> TabletPage:
        return TabletPage(topic=self.config.table, kv=self.kv, size_bytes=self.size_bytes, start_s=self._start_s)

    def samples(self) -> Iterable[TabletSample]:
        return ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its values in the store."""
        return sum(entry.size for _, entry in self.kv.keys())

    @property
    def active(self) -> RowStore:
        """Return the store that takes writes."""
        return self.stores[-1]

    @property
    def passive(self) -> Sequence[RowStore]:
        """Return the stores that wait for their flush, the oldest first."""
        return self.stores[:-1]

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that its stores and prepared rows take in memory."""
        return sum(store.memory_bytes for store in self.stores) + self.writes.locks.memory_bytes

    @property
    def is_loaded(self) -> bool:
        """Return True if what is stored of it is known: its cell is open."""
        return not self._is_closed

    @property
    def is_idle(self) -> bool:
        """Return True if no background work can be due: there is no chunk, and no row."""
        return not self.structure.chunks and len(self.stores) == 1 and not self.active.row_count

    @property
    def is_held(self) -> bool:
        """Return True if the cell was salvaged and its losses are not accepted: nothing of it may go."""
        return self._storage.is_held

    @property
    def is_serving(self) -> bool:
        """Return True if rows can be read now."""
        return self.is_mounted and not self._is_closed and self.unreadable is None and bool(self.stores)

    @property
    def takes_tasks(self) -> bool:
        """Return True if background work can begin."""
        return self.is_serving and self._resumed.is_set()

    async def resumed(self) -> None:
        """Return when the tablet is not held any more."""
        await self._resumed.wait()

    @property
    def has_unflushed(self) -> bool:
        """Return True if rows are not in a chunk yet, those of writes that wait and prepared ones included."""
        has_writes = bool(self.writes.waiting_count or self.writes.in_flight or self.writes.locks.by_transaction)
        return has_writes or bool(self.passive or self.active.row_count)

    async def drained(self) -> None:
        """Return when no write waits, none is on its way, and nothing is prepared; more may come meanwhile. TableError
        TRANSACTION_UNDER_WAY."""
        await self.writes.drained()
        await self.transactions.ended()

    def check(self) -> None:
        """Check that rows can be read: TableError WRONG_STATE, TABLET_NOT_OPEN, TABLET_STARTING."""
        if self.is_serving:
            return
        if self.unreadable is not None:
            cure = "Stop the broker, see what `pqbroker doctor` says, and restore the directory from a copy."
            raise TableError("TABLET_NOT_OPEN", f"{self.name} is unreadable: {self.unreadable}", cure)
        if not self.is_mounted:
            raise TableError("WRONG_STATE", f"{self.name} is unmounted", "`pqbroker table mount` mounts it.")
        if self._is_closed:
            cure = "GET /v1/cells, or `pqbroker cell list`, shows the cause."
            raise TableError("TABLET_NOT_OPEN", f"the cell of {self.name} is not open", cure)
        raise TableError("TABLET_STARTING", f"{self.name} is starting", _STARTING)

    def check_writable(self) -> None:
        """Check that rows can be written: TableError as `check`, and as `write_refusals` has them."""
        self.check()
        check_libraries()
        refusal = self.write_block
        if refusal is not None:
            raise raised_again(refusal)

    @property
    def write_block(self) -> TableError | None:
        """Return the refusal of all writes; None: they are taken. Rows can be read, `check` says so."""
        return self.memory_refusal or write_refusal(self.write_facts(), self.config.attributes)

    def check_timestamp(self, timestamp: int) -> None:
        """TableError TIMESTAMP_TOO_OLD for a read of versions that may have been cleaned up."""
        retained = max(self.facts.retained_timestamp, self.cleaned_timestamp)
        if timestamp < retained:
            text = f"timestamp {timestamp} is below {retained}, where the versions that stay begin"
            raise TableError("TIMESTAMP_TOO_OLD", text, "Read at a later one; min_data_ttl says how long they stay.")

    async def settle(self, timestamp: int, keys: Iterable[bytes] | None = None) -> None:
        """Return when no write at or below the timestamp is on its way. `keys`: rows that are read; None: any, so that
        the locks of all matter. TableError ROW_LOCKED."""
        while (in_flight := self.writes.in_flight) is not None and in_flight.least_timestamp <= timestamp:
            await in_flight.end.wait()
        if self.has_locks:
            await self.transactions.settled(timestamp, keys)

    async def see_committed(self, keys: Sequence[bytes]) -> bool:
        """Return when lookups of these keys find all that is acknowledged. True: that took a while, in which other
        tablets may have changed. TableError ROW_LOCKED, and as `check`."""
        has_waited = await self.transactions.settled(TIMESTAMP_MAX, keys)
        self.check()
        return has_waited

    @property
    def has_locks(self) -> bool:
        """Return True if rows are locked."""
        return bool(self.writes.locks.by_key)

    async def part_of(self, sent: SentRows) -> ReceivedPart:
        """Return rows that another node has sent, as `ReceivingTablet` says."""
        from pqbroker.tables.serving.transacted_rows import received_part

        if sent.participant.partition:
            raise ValueError(f"a sorted tablet has no partition {sent.participant.partition}")
        return await received_part(self, sent)

    def participant(self, partition: int) -> Participant | None:
        """Return the tablet as transactions see it; None: it has no such partition."""
        return self.transactions if partition == 0 else None

    @property
    def has_started(self) -> bool:
        """Return True unless the tablet is held, or starts."""
        return self._resumed.is_set()

    def runs(self, kv: KeyValueTablet) -> bool:
        """Return True if rows are served from these keys: the tablet was not lost, or started again, since."""
        return kv is self.kv and self.is_serving

    @property
    def lock_wait_s(self) -> float:
        """Return the seconds that a write waits for a locked row, and others for the end of a transaction."""
        return self.share.lock_wait_s

    def lock_conflict(self, key: bytes, holder: LockedRows | None) -> TableError:
        """Return the refusal of a write as `WriteTarget` has it."""
        return self.transactions.lock_conflict(key, holder)

    def lookup(self, timestamp: int) -> Lookup:
        """Return what looks rows up at a timestamp; `check` was asked."""
        return Lookup(self._stored_rows, timestamp)

    def _stored_rows(self) -> StoredRows:
        config, stores = self.config, tuple(reversed(self.stores))
        fan_in_max = config.attributes.max_read_fan_in
        return StoredRows(config.schema, stores, self.structure, self.kv, self.share.kept, fan_in_max)

    @property
    def feed(self) -> ChangeFeed | None:
        """Return the change feed of the tablet; None: it has none."""
        topic = self.config.attributes.changes
        return None if topic is None else ChangeFeed(self, topic)

    @property
    def value_columns(self) -> int:
        """Return how many value columns rows have now."""
        return len(self.config.schema.values)

    def plan(self, entry: bytes, writes: Sequence[Stamped]) -> PlannedCommit:
        """Plan as `WriteTarget` does."""
        store = self.active
        log = self._logs[store.number]
        if not entry:
            return PlannedCommit((), log, store, None, ())
        log_write = log.plan(self.kv, entry)
        return PlannedCommit(log_write.commands, log, store, log_write, writes)

    def durable(self, planned: Any) -> None:
        """Take the log's keys as `WriteTarget` tells it."""
        if planned.log_write is not None:
            planned.log.apply(planned.log_write)

    def apply(self, planned: Any) -> Iterator[int]:
        """Apply rows as `WriteTarget` does; where the tablet was lost meanwhile, to a store that nobody reads."""
        store: RowStore = planned.store
        spent = self.share.spent
        for timestamp, rows in planned.writes:
            stamp = TIMESTAMP.pack(timestamp)
            for begin in range(0, len(rows), ROWS_OF_TURN):
                some = rows if len(rows) <= ROWS_OF_TURN else rows[begin : begin + ROWS_OF_TURN]
                if spent.unread:
                    spent.drop(len(some))
                store.apply(((row.key, stamp + row.body) for row in some), timestamp, timestamp)
                yield len(some)

    def applied(self, planned: Any) -> None:
        """Rotate as `WriteTarget` lets it."""
        if not self.stores:  # lost meanwhile: the next start reads what was stored
            return
        if self._rotating_for is not None:
            self.rotate(self._rotating_for)
        elif planned.store is self.active and self._is_due():
            self.rotate(RotationReason.OVERFLOW)
            self.share.look_soon()

    @property
    def visible(self) -> int:
        """Return the timestamp up to which each commit is applied as a whole: one on its way may be so in part, and
        prepared rows will have a timestamp that is not given yet, or are waited for (`see_committed`)."""
        in_flight = self.writes.in_flight
        visible = TIMESTAMP_MAX if in_flight is None else in_flight.least_timestamp - 1
        return min(visible, self._last_timestamp) if self.has_locks else visible

    def _is_due(self) -> bool:
        """Return True if the active store is as full as one that rotates, or as one that a flush has memory for: writes
        would meet its limit before a look."""
        attributes = self.config.attributes
        if not attributes.enable_store_rotation or len(self.stores) >= DYNAMIC_STORES_MAX:
            return False
        if self.active.memory_bytes >= self.share.settings.memory_bytes_max // FLUSH_MEMORY_PART:
            return True
        return is_full(_facts_of(self.active), attributes, attributes.dynamic_store_overflow_threshold)

    def rotate(self, reason: RotationReason = RotationReason.ASKED_FOR) -> None:
        """Let the active store become passive, once the commit on its way is durable; an empty one stays active."""
        self._rotating_for = None if self.writes.in_flight is None else reason
        if self._rotating_for is None and self.active.row_count:
            self.active.passive_for = reason
            self.stores.append(self._new_store())

    def new_number(self) -> int:
        """Return a number that no store, chunk or task of the tablet has."""
        number = self._next_number
        self._next_number = number + 1
        return number

    def log_inputs(self, store: RowStore) -> list[MergeInput]:
        """Return the log of a passive store as a flush reads it."""
        return [MergeInput("log", key) for key in self._logs[store.number].keys()]

    async def name_flushed(
        self, kv: KeyValueTablet, store: RowStore, merged: Sequence[MergedChunk], retained: int | None
    ) -> list[OpenChunk]:
        """Name what a flush has staged in `kv`, drop the log, and raise the retained timestamp if it left versions out:
        one request. CommitRefused, ShardLost."""
        self._check_current(kv)
        if not any(store is one for one in self.stores):
            raise CommitRefused(f"{self.name} was mounted again meanwhile, and has read its log again")
        chunks, commands = self._new_chunks(merged)
        raised = [] if retained is None else [self._raise_retained(retained)]

        def named() -> None:
            self.structure.change(chunks, ())
            self.stores = [other for other in self.stores if other is not store]
            self._logs.pop(store.number, None)
            self.share.spent.add(store)

        await self._execute(kv, [*commands, *removal(self.log_inputs(store)), *raised], named)
        return chunks

    async def name_merged(
        self, kv: KeyValueTablet, inputs: Sequence[OpenChunk], merged: Sequence[MergedChunk], retained: int
    ) -> list[OpenChunk]:
        """Name what a compaction or partitioning has staged in `kv` in place of its inputs, and raise the retained
        timestamp: one request. CommitRefused, ShardLost."""
        self._check_current(kv)
        chunks, commands = self._new_chunks(merged)
        raised = self._raise_retained(retained)
        gone = [key for chunk in inputs for key in (chunk_key(chunk.number), chunk_data_key(chunk.number))]
        removed = [DeleteRange(key, True, key, True) for key in gone]

        def named() -> None:
            self.structure.change(chunks, [chunk.number for chunk in inputs])
            self.share.kept.forget(inputs)

        await self._execute(kv, [*commands, *removed, raised], named)
        return chunks

    async def _execute(self, kv: KeyValueTablet, commands: Sequence[Command], apply: Callable[[], None]) -> None:
        """Have commands durable, and apply them in the call that has the keys change: a reader finds both as before, or
        both as after. CommitRefused, ShardLost."""
        outcome = kv.execute(commands)
        outcome.add_done_callback(lambda done: apply() if done.exception() is None else None)
        await outcome

    def _check_current(self, kv: KeyValueTablet) -> None:
        """CommitRefused for work that was begun in an earlier generation, or before an unmount."""
        if kv is not self.kv or not self.is_serving:
            raise CommitRefused(f"{self.name} was lost, unmounted or started again meanwhile")

    def _raise_retained(self, retained: int) -> Write:
        """Return what makes it durable. It counts at once: another request beside this one writes no lower one."""
        self.facts = TabletFacts(max(retained, self.facts.retained_timestamp))
        value = self.facts.encode()
        return Write(FACTS_KEY, [value], len(value), INLINE)

    async def name_pivots(self, pivots: Sequence[bytes]) -> None:
        """Give the tablet other partitions. CommitRefused, ShardLost."""
        value = encode_pivots(pivots)
        command = Write(PIVOTS_KEY, [value], len(value))
        await self._execute(self.kv, [command], lambda: self.structure.change((), (), pivots))

    def stores_now(self, *, is_frozen: bool = False) -> TabletStores:
        """Return the facts by which background work is picked."""
        return self.stores_later(is_frozen=is_frozen)()

    def stores_later(self, *, is_frozen: bool = False) -> Callable[[], TabletStores]:
        """Return what gives those facts, as of now, in any thread: those of many chunks take a while."""
        config, layout, barrier = self.config, self.structure.layout, self.barrier
        passive = tuple(map(_facts_of, self.passive))
        active = None if is_frozen or not self.stores else _facts_of(self.active)
        is_eden_partitioning = self.is_eden_partitioning

        def facts() -> TabletStores:
            partitions, eden = layout.facts()
            return TabletStores(
                config.tablet_id, config.attributes, partitions, eden, active, passive, barrier, is_eden_partitioning
            )

        return facts

    def stores_in_memory(self) -> TabletStores:
        """Return the facts of the stores in memory, without any chunk: rotation is picked by them, however many chunks
        there are."""
        config, passive = self.config, tuple(map(_facts_of, self.passive))
        whole = PartitionChunks(config.pivot, config.end)
        return TabletStores(
            config.tablet_id, config.attributes, (whole,), active=_facts_of(self.active), passive=passive
        )

    def write_facts(self) -> WriteFacts:
        """Return the facts that writes depend on; chunks over one key are those of the last look."""
        chunks, eden = len(self.structure.chunks), len(self.structure.eden)
        return WriteFacts(self.structure.overlap, chunks, eden, len(self.stores), _facts_of(self.active))

    @property
    def barrier(self) -> int:
        """Return a timestamp that each later commit is above."""
        return min(self._last_timestamp + 1, self.unfinished_timestamp)

    @property
    def unfinished_timestamp(self) -> int:
        """Return a timestamp that no commit on its way is below, nor that of prepared rows; TIMESTAMP_MAX: no commit
        is known that has one below."""
        in_flight = self.writes.in_flight
        prepared = self.transactions.least_timestamp
        return prepared if in_flight is None else min(prepared, in_flight.least_timestamp)

    @property
    def _last_timestamp(self) -> int:
        last: int = self.share.time.timestamps.rule.last
        return last

    def _new_chunks(self, merged: Sequence[MergedChunk]) -> tuple[list[OpenChunk], list[Command]]:
        chunks: list[OpenChunk] = []
        commands: list[Command] = []
        for facts, pieces in merged:
            number = self.new_number()
            record = ChunkRecord.made(facts, self.share.time.clock(), self.config.revision)
            value = record.encode()
            chunks.append(OpenChunk(number, record))
            commands += [
                Concat(tuple(pieces), chunk_data_key(number)), Write(chunk_key(number), [value], len(value), INLINE)
            ]  # fmt: skip
        return chunks, commands

    def _new_store(self) -> RowStore:
        store = RowStore(self.new_number(), self.share.time.clock())
        self._logs[store.number] = StoreLog(store.number, self.share.settings.inline_bytes_max)
        return store

    def _begin_replay(self) -> None:
        self.stores, self._logs = [], {}
        self._replay = asyncio.get_running_loop().create_task(self._read_log())
        self._replay.add_done_callback(self._replayed)

    async def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.cancel()
            await asyncio.wait([self._replay])

    def _replayed(self, task: "asyncio.Task[None]") -> None:
        self._replay = None
        if task.cancelled():
            self.stores, self._logs = [], {}
            return
        damage = task.exception()
        if damage is None:
            self.writes.start()
        elif isinstance(damage, ShardLost):
            self.lose()
        else:
            self._refuse(damage)

    async def _read_log(self) -> None:
        """Make the stores of the log. EntryDamaged, BlobCorrupt, BlobMissing, ShardLost."""
        found = await read_log(self.kv, self.config.schema.form, self.share.settings.inline_bytes_max)
        self._logs = {one.store.number: one.log for one in found}
        for one in found[:-1]:
            one.store.passive_for = RotationReason.REPLAYED
        self.stores = [one.store for one in found] or [self._new_store()]

    def _refuse(self, damage: BaseException) -> None:
        """Serve nothing: what is stored cannot be read."""
        if isinstance(damage, StoredUnreadable):
            found = damage
        else:
            place = "its log" if isinstance(damage, EntryDamaged | BlobCorrupt | BlobMissing) else "its facts"
            found = StoredUnreadable(f"{self.name}, {place}", str(damage))
            self._storage.found(found)
        self.unreadable = found
        self.stores, self._logs = [], {}
        self.writes.close(found)
        self.transactions.forget()
        _log.error("%s is not served: %s", self.name, found)


def _facts_of(store: RowStore) -> DynamicStore:
    return DynamicStore(
        store.number, store.key_count, store.memory_bytes, store.least_timestamp, store.begun_ms, 0, store.row_count
    )
