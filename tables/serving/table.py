"""One sorted table in service: its record, its schema, its tablets; and the table as the owner of its tablets."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.pq.serving.topic import Moving
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_tables import SortedTableChanges, SortedTableRecord
from pqbroker.tables.mount import MountState, closed
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedMove
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.tablet import SortedTablet, TabletConfig
from pqbroker.tables.serving.transacted_rows import RowsPart
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.schema import read_sorted_schema


class SortedTable:
    """One table; `tablets` by index."""

    def __init__(self, record: SortedTableRecord, share: SortedShare) -> None:
        """ValueError, TableError for a record that no version wrote."""
        self.schema = read_sorted_schema(record.columns, len(record.columns))
        self.record = record
        self._share = share
        self.moving: dict[int, Moving] = {}
        """Tablets that change their mount state, by their numbers: none while a reshard gives them others."""
        self.is_renumbered = False
        """True while a reshard names other tablets: no mount state begins to change."""
        self.awaits_deletion = False
        """True once writes have ended since another node, the first one, is about to delete the table."""
        self.tablets = [SortedTablet(config, share) for config in self._configs()]
        for tablet, state in zip(self.tablets, record.states, strict=True):
            tablet.is_mounted = state != MountState.UNMOUNTED.value

    @property
    def states(self) -> list[MountState]:
        """Return the mount state of each tablet."""
        return [self.state_of(index) for index in range(len(self.record.states))]

    def state_of(self, index: int) -> MountState:
        """Return the mount state of one tablet."""
        moving = self.moving.get(index)
        return MountState(self.record.states[index] if moving is None else moving.state)

    def is_frozen(self, index: int) -> bool:
        """Return True if a tablet takes no rows, or is on its way to that."""
        return self.state_of(index) is not MountState.MOUNTED

    def check_takes_rows(self, index: int) -> None:
        """Check that a tablet is mounted and takes rows: TableError WRONG_STATE, and as `SortedTablet.check_writable`.
        """
        state = self.state_of(index)
        if state is not MountState.MOUNTED:
            raise closed(table_path(self.record.name), index, state)
        self.tablets[index].check_writable()

    def part(
        self, index: int, rows: Sequence[NewRow], start: int | None, move: FeedMove | None = None
    ) -> RowsPart:
        """Return rows of a tablet, encoded by the schema of now, as a part of a commit. `start`: timestamp at which
        their transaction began to read; None: no version is too new. `move`: progress of a feed, in the tablet at
        index 0. It is refused if its tablet takes no rows when it holds, or the table was altered or resharded by
        then."""
        tablet, schema = self.tablets[index], self.schema

        def check() -> None:
            if self.schema is not schema or index >= len(self.tablets) or self.tablets[index] is not tablet:
                text = f"{table_path(self.record.name)} was altered or resharded before its rows were committed"
                raise TableError("TABLE_CHANGED", text, "Send them again.")
            self.check_takes_rows(index)

        return RowsPart(tablet, rows, start, check, move)

    async def end_transactions(self) -> None:
        """Begin no write any more once no transaction is under way in any tablet. TableError TRANSACTION_UNDER_WAY:
        writes begin as before."""
        try:
            for tablet in self.tablets:
                await tablet.end_transactions(with_decisions=True)
        except BaseException:
            self.resume_writes()
            raise

    def resume_writes(self) -> None:
        """Begin writes again after `end_transactions`."""
        for tablet in self.tablets:
            tablet.resume_writes()

    def index_of(self, key: bytes) -> int:
        """Return the tablet of an encoded key."""
        return bisect_right(self.record.pivots, key) - 1

    def use(self, record: SortedTableRecord) -> None:
        """Take another record of the same tablets."""
        if record.columns != self.record.columns:
            self.schema = read_sorted_schema(record.columns, len(record.columns))
        self.record = record
        for tablet, config in zip(self.tablets, self._configs(), strict=True):
            tablet.config = config

    def take_tablets(self, record: SortedTableRecord) -> list[int]:
        """Take a record with other tablets: the numbers of those that are new, and run nowhere yet."""
        known = dict(zip(self.record.tablets, self.tablets, strict=True))
        self.record = record
        new = [index for index, tablet_id in enumerate(record.tablets) if tablet_id not in known]
        self.tablets = [
            known[tablet_id] if tablet_id in known else SortedTablet(config, self._share)
            for tablet_id, config in zip(record.tablets, self._configs(), strict=True)
        ]
        self.use(record)
        return new

    def _configs(self) -> Iterator[TabletConfig]:
        """Yield the configs of all tablets; few sets of attributes act in thousands of them."""
        record, path = self.record, table_path(self.record.name)
        in_force = [sorted_in_force(each) for each in record.mounted.sets]
        ends = [*record.pivots[1:], None]
        for index, number in enumerate(record.mounted.numbers):
            yield TabletConfig(
                f"tablet {index} of {path}", record.name, record.tablets[index], self.schema, in_force[number],
                record.pivots[index], ends[index], record.revision, index,
            )  # fmt: skip


class SortedTableOwner:
    """A `TabletOwner`. `find` gives the table of a name that is served now."""

    def __init__(
        self, table: SortedTable, records: SortedTableChanges, changes: asyncio.Lock,
        find: Callable[[str], SortedTable | None],
    ) -> None:
        self._table = table
        self._records = records
        self.changes = changes
        self._find = find

    @property
    def name(self) -> str:
        return self._table.record.name

    @property
    def owner_id(self) -> str:
        return self._table.record.table_id.hex()

    def home_of(self, tablet_id: TabletId) -> CellId | None:
        record = self._table.record
        if self._find(self.name) is not self._table or tablet_id not in record.tablets:
            return None
        return record.cell_of(record.tablets.index(tablet_id))

    def tablet(self, tablet_id: TabletId) -> SortedTablet | None:
        tablets = self._table.record.tablets
        return self._table.tablets[tablets.index(tablet_id)] if tablet_id in tablets else None

    async def name_home(self, tablet_id: TabletId, cell: CellId) -> None:
        changed = await self._records.change(self._table.record.table_id, lambda known: known.moved(tablet_id, cell))
        self._table.record = changed
