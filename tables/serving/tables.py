"""Sorted tables of a node. What serves a table is loaded with the first one.

    absent    create (scheme, then tablets)     serving
    serving   change                            serving
    serving   delete (scheme: a tombstone)      absent; its tablets are dropped in the background, resumed at start
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pqbroker.conf.sorted_attributes import CHANGES_ATTRIBUTE
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.row_sets import Row
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE, SORTED_TABLES
from pqbroker.storage.tablets.scheme_state import Tombstone
from pqbroker.storage.tablets.scheme_tables import SortedTableChanges, SortedTableRecord
from pqbroker.storage.tablets.tablet import TabletType
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.share import SortedShare

if TYPE_CHECKING:
    from pqbroker.tables.serving.background import Background
    from pqbroker.tables.serving.resharding import Filling, FillingHere, ReshardPlan
    from pqbroker.tables.serving.table import SortedTable, SortedTableOwner
    from pqbroker.tables.serving.tablet import SortedTablet

_FOLLOWED_AT_ONCE: Final = 100
"""Tables that are looked at before the loop's other work has its turn."""
_log = logging.getLogger(__name__)


class SortedTables:
    """All sorted tables of a node; the `ServedObjects` of their kind. Changes raise SchemeError, CommitRefused,
    ShardLost, and are made whole even if their caller is cancelled."""

    kind = SORTED_TABLE

    def __init__(self, cells: OpenCells, scheme: Scheme, share: SortedShare) -> None:
        self._cells = cells
        self._scheme = scheme
        self._records = SortedTableChanges(scheme, cells.place)
        self.share = share
        share.check_takes_rows = self._check_takes_rows
        self.changes = asyncio.Lock()
        """Held while a table is created, changed or deleted, and a cell is taken."""
        self._background: Background | None = None
        self._tables: dict[str, SortedTable] = {}
        self._by_id: dict[bytes, SortedTable] = {}
        self._left: list[bytes] = []
        """Ids of tables in the scheme that could not be created, nor removed again yet."""
        self._reserved: dict[str, str] = {}
        """Paths of tables by the topic that is about to get their changes."""
        self._followed: dict[bytes, Row] = {}
        """Rows of the scheme that are served as they are, by the id of the table."""

    async def start(self) -> None:
        """Start every table's tablets; create those that a crash kept from being."""
        records = self._records.known()
        await self._create_tablets(records)
        for record in records:
            await self._serve(record)

    async def start_in(self, cell: CellId, host: TabletHost) -> None:
        """Start the tablets of a cell that is open now, or again; `changes` is held. CommitRefused, ShardLost."""
        known = [(table.record, table) for table in self._tables.values()]
        await host.cell.create_tablets([item for record, _ in known for item in _wanted(record, cell)])
        for record, table in known:
            for tablet_id, _, _ in _wanted(record, cell):
                tablet = table.tablets[record.tablets.index(tablet_id)]
                await host.start(tablet_id, tablet, self.changes, tablet.lose)

    async def follow_scheme(self) -> None:
        """Serve tables as the scheme has them now, which another node has changed. CommitRefused, ShardLost: the others
        are served so all the same."""
        refusals: list[CommitRefused | ShardLost] = []
        async with self.changes:
            stored: Any = self._scheme.rows(SORTED_TABLES)
            rows: dict[bytes, Row] = {key[0]: row for key, row in stored.items()}
            self._followed = {table_id: row for table_id, row in self._followed.items() if table_id in rows}
            for table in [table for table_id, table in self._by_id.items() if table_id not in rows]:
                await self._end(table)
                self._reclaim_here(table.record, table.record.tablets)
            for number, (table_id, row) in enumerate(rows.items()):
                if number % _FOLLOWED_AT_ONCE == _FOLLOWED_AT_ONCE - 1:
                    await asyncio.sleep(0)
                if self._followed.get(table_id) is row:
                    continue
                try:
                    await self._follow(table_id, row)
                    self._followed[table_id] = row
                except (CommitRefused, ShardLost) as refused:
                    refusals.append(refused)
        if refusals:
            raise refusals[0]

    async def follow_states(self, table: "SortedTable", indexes: Iterable[int]) -> None:
        """Have tablets serve rows or not as the record says, but for those that change their state. CommitRefused: a
        transaction keeps one from its unmount."""
        from pqbroker.tables.mount import MountState

        for index in indexes:
            tablet = table.tablets[index]
            if index in table.moving:
                continue
            if table.record.states[index] != MountState.UNMOUNTED.value:
                tablet.mount()
            elif tablet.is_mounted:
                try:
                    await tablet.unmount()
                except TableError as refusal:
                    raise CommitRefused(f"{tablet.name} is not unmounted yet: {refusal.message}") from refusal

    async def _follow(self, table_id: bytes, row: Row) -> None:
        """Serve a table as its row says. One that no version wrote stays as it was."""
        from pqbroker.tables.sorted.schema import read_sorted_schema

        try:
            record = SortedTableRecord.read(table_id, row)
            read_sorted_schema(record.columns, len(record.columns))
        except (ValueError, LookupError, TypeError, TableError) as unreadable:
            _log.error("sorted table %s is unreadable and stays as it was: %s", table_id.hex(), unreadable)
            return
        table = self._by_id.get(table_id)
        if table is None:
            await self._create_tablets([record])
            await self._serve(record)
            return
        if (record.tablets, record.cells) != (table.record.tablets, table.record.cells):
            await self._create_tablets([record])
            await self._follow_tablets(table, record)
        before = feeds_of(table.record)
        table.use(record)
        if before != feeds_of(record):
            self.mark_feeds()
        await self.follow_states(table, range(len(table.tablets)))
        self.background.look_soon()

    async def _follow_tablets(self, table: "SortedTable", record: SortedTableRecord) -> None:
        """Serve the tablets of a record whose tablets, or their cells, are others than before; those here exist."""
        before = table.record
        cells = {tablet_id: record.cell_of(index) for index, tablet_id in enumerate(record.tablets)}
        left = [tablet for index, tablet in enumerate(before.tablets) if cells.get(tablet) != before.cell_of(index)]
        for tablet_id in left:
            await self._cells.host_of(tablet_id).stop_tablet(tablet_id)
        table.moving.clear()  # tablets may have other numbers now
        await self._start_new(table, record)
        for index in [index for index, tablet_id in enumerate(record.tablets) if tablet_id in left]:
            await self._start_tablet(record, index, table.tablets[index])
        self._reclaim_here(before, left)

    def owner(self, object_id: bytes) -> "SortedTableOwner | None":
        table = self._by_id.get(object_id)
        return None if table is None else self.owner_of(table)

    def owner_of(self, table: "SortedTable") -> "SortedTableOwner":
        from pqbroker.tables.serving.table import SortedTableOwner

        return SortedTableOwner(table, self._records, self.changes, self._tables.get)

    @property
    def background(self) -> "Background":
        """Return the background work of the tables, which begins with the first one."""
        if self._background is None:
            from pqbroker.tables.serving.background import Background

            self._background = Background(self.share, self._served_tablets)
        return self._background

    @property
    def used_background(self) -> "Background | None":
        """Return the background work; None: there was no table yet, and what does it is not loaded."""
        return self._background

    def _served_tablets(self) -> "Iterable[tuple[SortedTablet, bool]]":
        for table in list(self._tables.values()):
            for index, tablet in enumerate(table.tablets):
                yield tablet, table.is_frozen(index)

    async def stop(self) -> None:
        """End every tablet, after the changes under way."""
        if self._background is not None:
            await self._background.stop()
        async with self.changes:
            tables = list(self._tables.values())
            self._tables, self._by_id = {}, {}
        for table in tables:
            await self._stop_tablets(table)

    def get(self, name: str) -> "SortedTable | None":
        return self._tables.get(name)

    def by_id(self, table_id: bytes) -> "SortedTable | None":
        return self._by_id.get(table_id)

    def _check_takes_rows(self, tablet: "SortedTablet") -> None:
        """Check what another node's commit writes to, as `SortedShare.check_takes_rows` says."""
        table = self._tables.get(tablet.config.table)
        if table is None or tablet not in table.tablets:
            text = f"{tablet.name} was resharded or deleted before its rows were committed"
            raise TableError("TABLE_CHANGED", text, "Send them again.")
        table.check_takes_rows(table.tablets.index(tablet))

    @property
    def tables(self) -> "Mapping[str, SortedTable]":
        """Return the tables by name."""
        return MappingProxyType(self._tables)

    @property
    def feeders(self) -> Mapping[str, str]:
        """Return the paths of tables by the topics that get their changes, now or from the next mount on."""
        found = {topic: table_path(name) for name, table in self._tables.items() for topic in feeds_of(table.record)}
        return {**found, **self._reserved}

    @contextmanager
    def reserving_feed(self, topic: str, table: str) -> Iterator[None]:
        """Keep a topic for the changes of the table of this path, which is about to name it. TableError
        INVALID_ATTRIBUTE: it gets those of another one."""
        other = self.feeders.get(topic, table)
        if other != table or topic in self._reserved:
            text = f"attributes.{CHANGES_ATTRIBUTE} is {topic!r}, which gets the changes of {other}"
            raise TableError("INVALID_ATTRIBUTE", text, "Name another topic: each table has one of its own.")
        self._reserved[topic] = table
        self.mark_feeds()
        try:
            yield
        finally:
            del self._reserved[topic]
            self.mark_feeds()

    def mark_feeds(self) -> None:
        """Have topics that get changes taken from other writers, and given back where they get none any more."""
        if self.share.topics is not None:
            self.share.topics.mark_feeds(self.feeders)

    async def create(self, wanted: SortedTableRecord) -> "SortedTable":
        """Create a table; its id, tablets and cells are given here. Raises TopicExists, NoHealthyCell."""
        return await uninterrupted(self._create(wanted))

    async def drop_left(self) -> None:
        """Remove what is left of tables that could not be created: their names are free then. CommitRefused."""
        if self._left:
            await uninterrupted(self._drop_left_alone())

    async def _drop_left_alone(self) -> None:
        async with self.changes:
            await self._drop_left()

    async def _drop_left(self) -> None:
        while self._left:
            await self._records.delete(self._left[-1])
            self._left.pop()

    async def change(
        self, table: "SortedTable", change: Callable[[SortedTableRecord], SortedTableRecord]
    ) -> "SortedTable":
        """Replace what is stored of a table, but for its name, id and tablets. Raises TableUnknown, and what `change`
        raises."""
        return await uninterrupted(self._change(table, change))

    async def reshard(
        self, table: "SortedTable", plan: "ReshardPlan", no_backup: AbstractAsyncContextManager[None],
        filling: "Filling | None" = None,
    ) -> "SortedTable":
        """Put other tablets in the place of some that are unmounted. `no_backup`: entered before the scheme names them,
        since a backup with the scheme of after and a cell of before would lack their rows. `filling`: makes the others
        where another node runs the tablets. TableError WRONG_STATE, RESHARD_FAILED; NoHealthyCell, TableUnknown."""
        return await uninterrupted(self._reshard(table, plan, no_backup, filling))

    def filling(self, table: "SortedTable", plan: "ReshardPlan") -> "FillingHere":
        """Return what makes the new tablets of a reshard in cells of this node."""
        from pqbroker.tables.serving.resharding import FillingHere

        return FillingHere(self._cells, self.share, table, plan)

    def have(self, tablets: Collection[TabletId], cells: Collection[CellId]) -> bool:
        """Return True if tablets exist in open cells."""
        hosts = [(tablet, self._cells.host(cell)) for tablet, cell in zip(tablets, cells, strict=True)]
        return all(host is not None and tablet in host.cell.tablets() for tablet, host in hosts)

    async def delete(self, table: "SortedTable") -> None:
        """Delete a table: gone when this returns, its space comes back later. Raises TableUnknown; TableError
        TRANSACTION_UNDER_WAY."""
        await uninterrupted(self._delete(table))

    async def _create(self, wanted: SortedTableRecord) -> "SortedTable":
        async with self.changes:
            record = await self._records.create(wanted)
            try:
                await self._create_tablets([record])
            except CommitRefused:
                self._left.append(record.table_id)
                await self._drop_left()
                raise
            return await self._serve(record)

    async def _change(
        self, table: "SortedTable", change: Callable[[SortedTableRecord], SortedTableRecord]
    ) -> "SortedTable":
        async with self.changes:
            before = feeds_of(table.record)
            table.use(await self._records.change(table.record.table_id, change))
            if before != feeds_of(table.record):
                self.mark_feeds()
            return table

    async def _reshard(
        self, table: "SortedTable", plan: "ReshardPlan", no_backup: AbstractAsyncContextManager[None],
        filling: "Filling | None",
    ) -> "SortedTable":
        from pqbroker.tables.serving.resharding import check_record, new_count, resharded

        before, filling = table.record, filling or self.filling(table, plan)
        count = new_count(table, plan)
        tablets = await self._scheme.reserve_tablets(count)
        homes, is_named = filling.place(count), False
        try:
            async with AsyncExitStack() as stack:
                for open_host in filter(None, map(self._cells.host, set(homes))):
                    await stack.enter_async_context(open_host.cell.scheme_mark.ahead())
                await filling.fill(tablets, homes)
                await stack.enter_async_context(no_backup)
                await stack.enter_async_context(self.changes)
                await filling.check()
                check_record(table, plan, before)
                stack.enter_context(_renumbered(table))
                record, tombstone = await self._records.reshard(
                    before.table_id, lambda known: resharded(known, plan, tablets, homes)
                )  # tablets may have moved while rows were copied, and attributes may have been set
                is_named = True
                await self._replace_tablets(table, record, tombstone)
        except ShardLost:
            raise  # the scheme may name them: the next opening of their cells removes those that it does not
        except BaseException:
            if not is_named:
                await filling.drop(tablets, homes)
            raise
        return table

    async def _replace_tablets(
        self, table: "SortedTable", record: SortedTableRecord, tombstone: Tombstone | None
    ) -> None:
        """Serve the tablets of a record in place of those before; remove what it has no more."""
        before = table.record
        removed = () if tombstone is None else tombstone.tablets
        for tablet_id in removed:
            await self._cells.host_of(tablet_id).stop_tablet(tablet_id)
        await self._start_new(table, record)
        if tombstone is not None:
            self._reclaim(before, removed, tombstone.topic_id)

    async def _start_new(self, table: "SortedTable", record: SortedTableRecord) -> None:
        """Have a table take a record with other tablets, and start those that it had not."""
        for index in table.take_tablets(record):
            await self._start_tablet(record, index, table.tablets[index])

    async def _start_tablet(self, record: SortedTableRecord, index: int, tablet: "SortedTablet") -> None:
        tablet_id, host = record.tablets[index], self._cells.host(record.cell_of(index))
        if host is None:
            tablet.await_cell(self._cells.absent_storage(tablet_id))
        else:
            await host.start(tablet_id, tablet, self.changes, tablet.lose)

    def _reclaim(self, record: SortedTableRecord, tablets: Collection[TabletId], tombstone_id: bytes) -> None:
        """Begin to remove tablets that a table had, then forget their tombstone. Cells that are not open remove them
        when they are."""
        self._reclaim_here(record, tablets)
        self._cells.system.reclaim(tablets, partial(self._scheme.forget_tombstones, tombstone_id))

    def _reclaim_here(self, record: SortedTableRecord, tablets: Collection[TabletId]) -> None:
        """Begin to remove tablets that a table had from the open cells beside the system cell."""
        for cell, host in self._cells.hosts():
            if cell != SYSTEM_CELL:
                host.reclaim([tablet_id for tablet_id, _, _ in _wanted(record, cell) if tablet_id in tablets])

    async def _delete(self, table: "SortedTable") -> None:
        await table.end_transactions()  # rows of others may wait for a decision of its tablets
        async with self.changes:
            try:
                record = await self._records.delete(table.record.table_id)
            except BaseException:
                table.resume_writes()
                raise
            await self._end(table)
            self._reclaim(record, record.tablets, record.table_id)

    async def _end(self, table: "SortedTable") -> None:
        """Serve a table that was deleted no more."""
        record = table.record
        self._tables.pop(record.name, None)
        self._by_id.pop(record.table_id, None)
        if feeds_of(record):
            self.mark_feeds()
        for tablet in table.tablets:
            await self.background.leave(tablet)
        await self._stop_tablets(table)

    async def _serve(self, record: SortedTableRecord) -> "SortedTable":
        from pqbroker.tables.serving.table import SortedTable

        table = SortedTable(record, self.share)
        for index, tablet in enumerate(table.tablets):
            await self._start_tablet(record, index, tablet)
        self.background.start()
        self._tables[record.name] = self._by_id[record.table_id] = table
        if feeds_of(record):
            self.mark_feeds()
        return table

    async def _stop_tablets(self, table: "SortedTable") -> None:
        for tablet_id in table.record.tablets:
            await self._cells.host_of(tablet_id).stop_tablet(tablet_id)

    async def _create_tablets(self, records: Iterable[SortedTableRecord]) -> None:
        """Create those that do not exist yet in cells that are open. CommitRefused, ShardLost."""
        known = list(records)
        for cell, host in self._cells.hosts():
            wanted = [item for record in known for item in _wanted(record, cell)]
            if wanted:
                await host.cell.create_tablets(wanted)


@contextmanager
def _renumbered(table: "SortedTable") -> Iterator[None]:
    """No tablet of a table begins to change its mount state meanwhile."""
    table.is_renumbered = True
    try:
        yield
    finally:
        table.is_renumbered = False


def feeds_of(record: SortedTableRecord) -> set[str]:
    """Return the topics that get changes of a table: by what is set, and by what acts in its tablets."""
    found = {attributes.get(CHANGES_ATTRIBUTE) for attributes in (record.attributes, *record.mounted.sets)}
    return {topic for topic in found if topic is not None}


def _wanted(record: SortedTableRecord, cell: CellId) -> list[tuple[TabletId, TabletType, str]]:
    """The table's tablets in a cell."""
    owner = record.table_id.hex()
    homes = enumerate(record.tablets)
    return [(tablet, TabletType.SORTED, owner) for index, tablet in homes if record.cell_of(index) == cell]
