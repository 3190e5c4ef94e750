"""The sorted tablet: one key range of a table over a KV tablet, over all its generations.

    closed --start--> loaded --mount--> replaying --> mounted --unmount--> loaded
                                                              --hold--> held --start--> mounted, in a later generation
    any    --lose, stop--> closed

A tablet that was held when its cell was well keeps its stores in memory: what is durable is what it has. After a loss
it reads its log again, in slices, and answers meanwhile that it is starting.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost, StoreFailed
from pqbroker.storage.kv.commands import INLINE, Command, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.kv.tablet_copy import TabletCopy
from pqbroker.storage.tablets.hosting import TabletPage, TabletSample
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.store_log import LogWrite, StoreLog
from pqbroker.tables.serving.stored_keys import FACTS_KEY, LOG_KEYS, read_log_key
from pqbroker.tables.serving.tablet_facts import TabletFacts
from pqbroker.tables.serving.writes import Stamped, TabletWrites
from pqbroker.tables.sorted.log_entries import EntryDamaged, decode_entries, encode_entry
from pqbroker.tables.sorted.lookups import visible
from pqbroker.tables.sorted.packed_rows import TIMESTAMP
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.store import RowStore

REPLAYED_ROWS: Final = 2_000
"""Rows that a start applies before the loop's other work has its turn: 2 to 4 ms."""
_STARTING = "Try again in a moment: the tablet reads its log."
_log = logging.getLogger(__name__)


class _PlannedCommit(NamedTuple):
    """The plan of one commit of this tablet's."""

    commands: Sequence[Command]
    log: StoreLog
    store: RowStore
    log_write: LogWrite
    writes: Sequence[Stamped]


class SortedTablet:
    """One tablet. `name`: what refusals call it. `schema` and the attributes in force are the table's, and change
    while it is not mounted, or with a remount."""

    def __init__(self, name: str, schema: SortedSchema, share: SortedShare) -> None:
        self.name = name
        self.schema = schema
        self._share = share
        self.writes = TabletWrites(self, share.time)
        self.facts = TabletFacts()
        self.stores: list[RowStore] = []
        """Stores in memory, the active one last; none while the tablet is not mounted."""
        self._logs: dict[int, StoreLog] = {}
        """Logs of these stores, by number."""
        self.unreadable: StoredUnreadable | None = None
        self.is_mounted = False
        """True while rows are read and, unless the table is frozen, written."""
        self._replay: asyncio.Task[None] | None = None
        self._is_closed = True
        self._start_s = 0.0

    kv: KeyValueTablet

    async def start(self, storage: TabletStorage) -> None:
        """Begin an instance, as `Tablet.start` does; mounted once its log is read, if it was to be mounted before."""
        begun_s = asyncio.get_running_loop().time()
        was_lost, self._is_closed = self._is_closed, False
        self.unreadable = None
        self._storage = storage
        self.kv = KeyValueTablet(
            storage, inline_bytes_max=self._share.inline_bytes_max, clock=self._share.time.clock,
            counters=self._share.key_values,
        )  # fmt: skip
        try:
            await self.kv.start()
            stored = await self._read_value(FACTS_KEY)
            self.facts = TabletFacts() if stored is None else TabletFacts.decode(stored)
        except (StoredUnreadable, ValueError) as damage:
            self._refuse(damage)
            return
        if self.is_mounted:
            if was_lost:
                self._begin_replay()
            else:
                self.writes.start()
        self._start_s = asyncio.get_running_loop().time() - begun_s

    def await_cell(self, storage: TabletStorage) -> None:
        """The tablet's cell is not open: `storage` stands in and is lost."""
        self._storage = storage
        self.kv = KeyValueTablet(storage, inline_bytes_max=1, clock=self._share.time.clock)

    def mount(self) -> None:
        """Serve rows from now on: those of the log once they are read."""
        if self.is_mounted:
            return
        self.is_mounted = True
        if not self._is_closed and self.unreadable is None:
            self._begin_replay()

    async def mounted(self) -> None:
        """Return when the log is read, or is found to be unreadable."""
        if self._replay is not None:
            await asyncio.wait([self._replay])

    async def unmount(self) -> None:
        """Serve no rows any more; what waits is refused."""
        self.is_mounted = False
        await self._end_replay()
        await self.writes.hold()
        self.writes.close(TableError("WRONG_STATE", f"{self.name} is unmounted", "`pqbroker table mount` mounts it."))
        self.stores = []
        self._logs = {}

    async def hold(self) -> None:
        """Begin no write until the next start."""
        await self._end_replay()
        await self.writes.hold()

    async def stop(self) -> None:
        await self._end_replay()
        self.lose()

    def lose(self) -> None:
        """The cell is lost: what waits fails."""
        self._is_closed = True
        if self._replay is not None:
            self._replay.cancel()
        self.writes.close(StoreFailed(f"{self.name} was lost"))

    def copy_to(self, target: TabletStorage) -> TabletCopy:
        return TabletCopy(self.kv, target)

    def describe(self) -> TabletPage:
        return TabletPage(kv=self.kv, size_bytes=self.size_bytes, start_s=self._start_s)

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

    def check(self) -> None:
        """Check that rows can be read: TableError WRONG_STATE, TABLET_NOT_OPEN, TABLET_STARTING, DAMAGED."""
        if self.unreadable is not None:
            cure = "Stop the broker, see what `pqbroker doctor` says, and restore the directory from a copy."
            raise TableError("TABLET_NOT_OPEN", f"{self.name} is unreadable: {self.unreadable}", cure)
        if not self.is_mounted:
            raise TableError("WRONG_STATE", f"{self.name} is unmounted", "`pqbroker table mount` mounts it.")
        if self._is_closed:
            cure = "GET /v1/cells, or `pqbroker cell list`, shows the cause."
            raise TableError("TABLET_NOT_OPEN", f"the cell of {self.name} is not open", cure)
        if not self.stores or self._replay is not None:
            raise TableError("TABLET_STARTING", f"{self.name} is starting", _STARTING)

    async def settle(self, timestamp: int) -> None:
        """Return when no write at or below the timestamp is on its way."""
        while (in_flight := self.writes.in_flight) is not None and in_flight.least_timestamp <= timestamp:
            await in_flight.end.wait()

    def look_up(self, key: bytes, timestamp: int) -> Sequence[Any] | None:
        """Return the values of the row at a timestamp; None: there is none. `check` was asked."""
        versions = (version for store in reversed(self.stores) for version in reversed(store.versions(key)))
        return visible(self.schema.form, versions, timestamp)

    def plan(self, writes: Sequence[Stamped]) -> _PlannedCommit:
        """Plan as `WriteTarget` does."""
        store = self.active
        log = self._logs[store.number]
        value = encode_entry(len(self.schema.values), writes)
        log_write = log.plan(self.kv, value)
        commands = list(log_write.commands)
        if self.facts.next_number <= store.number:
            commands.append(_write_facts(replace(self.facts, next_number=store.number + 1)))
        return _PlannedCommit(commands, log, store, log_write, writes)

    def apply(self, planned: Any) -> None:
        """Apply as `WriteTarget` does."""
        planned.log.apply(planned.log_write)
        store: RowStore = planned.store
        self.facts = replace(self.facts, next_number=max(self.facts.next_number, store.number + 1))
        for timestamp, rows in planned.writes:
            stamp = TIMESTAMP.pack(timestamp)
            store.apply((row.key, stamp + row.body) for row in rows)

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
        """Apply the entries of every store in their order. StoredUnreadable, EntryDamaged, BlobCorrupt, ShardLost."""
        stores: dict[int, RowStore] = {}
        logs: dict[int, StoreLog] = {}
        for key, entry in list(self.kv.keys(LOG_KEYS, LOG_KEYS + b"\xff")):
            number, entry_number = read_log_key(key)
            store = stores.get(number)
            if store is None:
                store = stores[number] = RowStore(number, entry.created_ms)
                logs[number] = StoreLog(number, self._share.inline_bytes_max)
            logs[number].found(entry_number, key, entry.size, entry.piece_count)
            value = await self._read_value(key)
            assert value is not None
            await self._apply_entries(store, value)
        if not stores:
            self._open_store(self.facts.next_number, stores, logs)
        self.stores = [store for _, store in sorted(stores.items())]
        self._logs = logs

    def _open_store(self, number: int, stores: dict[int, RowStore], logs: dict[int, StoreLog]) -> None:
        stores[number] = RowStore(number, self._share.time.clock())
        logs[number] = StoreLog(number, self._share.inline_bytes_max)

    async def _apply_entries(self, store: RowStore, value: bytes) -> None:
        form, rows = self.schema.form, []
        for row in decode_entries(value):
            rows.append((row.key, form.widened(row.version, row.columns)))
            if len(rows) == REPLAYED_ROWS:
                store.apply(rows)
                rows = []
                await asyncio.sleep(0)
        store.apply(rows)

    async def _read_value(self, key: bytes) -> bytes | None:
        entry = self.kv.entry(key)
        if entry is None:
            return None
        (buffers,) = await self.kv.read([(key, 0, entry.size)])
        return b"".join(buffers)

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
        _log.error("%s is not served: %s", self.name, found)


def _write_facts(facts: TabletFacts) -> Write:
    value = facts.encode()
    return Write(FACTS_KEY, [value], len(value), INLINE)


