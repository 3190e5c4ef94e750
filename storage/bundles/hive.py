"""The hive: the tablet of the system cell that knows the other cells of a node, and the bundles.

    cell:   unknown --add--> creating --first opened--> ready --begin to remove--> removing --forget--> gone

One commit each. Only a ready cell gets tablets. A cell that is ready and whose directory is gone is damaged, not new;
the removal of a cell continues at the next start. The tablet itself is made by the first change, so that a node without
bundles of its own stores what it always did. Ids are never given out twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, Bundle, BundleRefused, check_removal
from pqbroker.storage.bundles.cell_homes import HOME_COLUMNS, CellHome
from pqbroker.storage.bundles.cell_opening import OPENING_COLUMNS, CellOpening
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.base_tablet import BaseTablet
from pqbroker.storage.tablets.hosting import TabletHost, TabletPage, TabletSample
from pqbroker.storage.tablets.numbered_changes import ChangeLog
from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges
from pqbroker.storage.tablets.tablet import TabletStorage, TabletType
from pqbroker.storage.unreadable import StoredUnreadable

HIVE_TABLET_ID = TabletId(2)
HIVE_FORMAT = 1
HIVE_FACTS = "facts"
BUNDLES = "bundles"
CELLS = "cells"
OPENINGS = "openings"
HOMES = "homes"
"""Row sets of the hive; those of openings and homes are laid out with the first one, and left alone by earlier
releases."""
BUNDLES_MAX = 100

T = TypeVar("T")


class CellState(StrEnum):
    """The state of a cell, as it is stored."""

    CREATING = "creating"
    READY = "ready"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One cell as stored."""

    cell: CellId
    bundle: str
    state: CellState


class HiveState:
    """The state that the rows of a hive describe. Only `follow` changes it."""

    __slots__ = ("bundles", "cells", "facts", "homes", "openings")

    def __init__(self) -> None:
        self.bundles: dict[str, Bundle] = {DEFAULT_BUNDLE: Bundle(DEFAULT_BUNDLE)}
        self.cells: dict[CellId, CellRecord] = {}
        self.openings: dict[CellId, CellOpening] = {}
        self.homes: dict[CellId, CellHome] = {}
        self.facts: dict[str, Any] = {}

    def check(self) -> None:
        """Check that what was replayed is a hive of this version. Raises StoredUnreadable."""
        written = self.facts.get("format")
        if written != HIVE_FORMAT:
            raise StoredUnreadable("the hive", f"it is of format {written!r}; this version reads {HIVE_FORMAT}")
        if not isinstance(self.facts.get("next_cell"), int):
            raise StoredUnreadable("the hive", "it has no next_cell")

    def follow(self, row_set: str, key: Key, row: Row | None) -> None:
        """Follow a row that was set, or removed (None). Rows of other row sets are left to a later version."""
        item: Any = key[0]
        stored: Any = row
        if row_set == HIVE_FACTS and stored is not None:
            self.facts[item] = stored["value"]
        elif row_set == BUNDLES:
            self.bundles.pop(item, None)
            if stored is not None:
                self.bundles[item] = Bundle(item, stored["options"], stored["node_tag_filter"])
            elif item == DEFAULT_BUNDLE:
                self.bundles[item] = Bundle(item)
        elif row_set == CELLS:
            self.cells.pop(CellId(item), None)
            if stored is not None:
                self.cells[CellId(item)] = CellRecord(CellId(item), stored["bundle"], CellState(stored["state"]))
        elif row_set == OPENINGS:
            self.openings.pop(CellId(item), None)
            if stored is not None:
                self.openings[CellId(item)] = CellOpening.read(CellId(item), stored)
        elif row_set == HOMES:
            self.homes.pop(CellId(item), None)
            if stored is not None:
                self.homes[CellId(item)] = CellHome.read(CellId(item), stored)


class Hive:
    """Bundles and cells. Reading is from memory; changes are durable when their call returns.

    Changes raise BundleRefused, CommitRefused or ShardLost; while the tablet is restarted they wait.
    """

    def __init__(self, host: TabletHost) -> None:
        self._host = host
        self._state = HiveState()
        self._tablet: BaseTablet | None = None
        self._making = asyncio.Lock()
        self._held: asyncio.Future[None] | None = None
        self.changes = ChangeLog()
        """Numbered changes, for mirrors on other nodes."""

    @classmethod
    async def open(cls, host: TabletHost) -> "Hive":
        """The hive of the host's cell, which may have none yet. StoredUnreadable, ShardLost."""
        hive = cls(host)
        if HIVE_TABLET_ID in host.cell.unreadable:
            raise host.cell.unreadable[HIVE_TABLET_ID]
        if HIVE_TABLET_ID in host.cell.tablets():
            await host.start(HIVE_TABLET_ID, hive)
        return hive

    async def start(self, storage: TabletStorage) -> None:
        """StoredUnreadable, CommitRefused, ShardLost: what was known stays then."""
        try:
            self._tablet, self._state = await _replayed(storage, self.changes)
        finally:
            if self._held is not None:
                self._held.set_result(None)
                self._held = None

    @staticmethod
    async def read_log(storage: TabletStorage) -> Mapping[CellId, CellRecord]:
        """Return the cells by the hive's log of a stopped cell; nothing where it is to be laid out yet. Raises
        StoredUnreadable, and what a damaged log raises."""
        state = HiveState()
        tablet = BaseTablet(storage, changed=state.follow)
        await tablet.start()
        if tablet.row_sets:
            state.check()
        return state.cells

    async def hold(self) -> None:
        """Changes that are asked for from now on wait until the next start."""
        self._held = asyncio.get_running_loop().create_future()
        await self.stop()

    async def stop(self) -> None:
        if self._tablet is not None:
            await self._tablet.stop()

    def describe(self) -> TabletPage:
        sets = {} if self._tablet is None else self._tablet.row_sets
        return TabletPage(row_sets={name: len(rows) for name, rows in sets.items()})

    def samples(self) -> Iterable[TabletSample]:
        return ()

    @property
    def bundles(self) -> Mapping[str, Bundle]:
        """Return the bundles by name, the default bundle always among them."""
        return MappingProxyType(self._state.bundles)

    @property
    def cells(self) -> Mapping[CellId, CellRecord]:
        """All but the system cell, by id."""
        return MappingProxyType(self._state.cells)

    @property
    def openings(self) -> Mapping[CellId, CellOpening]:
        """Return the last known opening of each cell; those of cells that were never open are missing."""
        return MappingProxyType(self._state.openings)

    @property
    def homes(self) -> Mapping[CellId, CellHome]:
        """Return the homes of cells among several nodes; a broker that had one node only has none."""
        return MappingProxyType(self._state.homes)

    async def create_bundle(self, bundle: Bundle) -> None:
        """BundleRefused when the name is taken, or there are too many."""

        def plan(changes: RowChanges) -> None:
            if bundle.name in self.bundles:
                raise BundleRefused(f"bundle {bundle.name} exists already")
            if len(self.bundles) >= BUNDLES_MAX:
                raise BundleRefused(f"there are {len(self.bundles)} bundles, as many as there may be; remove one")
            _put_bundle(changes, bundle)

        await self._change(plan)

    async def change_bundle(self, name: str, change: Callable[[Bundle], Bundle]) -> Bundle:
        """Replace a bundle by what `change` makes of it. BundleRefused, and what `change` raises."""

        def plan(changes: RowChanges) -> Bundle:
            bundle = change(self._known(name))
            _put_bundle(changes, bundle)
            return bundle

        return await self._change(plan)

    async def remove_bundle(self, name: str) -> None:
        """BundleRefused for the default one, and while it has cells."""

        def plan(changes: RowChanges) -> None:
            check_removal(name, sum(record.bundle == name for record in self.cells.values()))
            self._known(name)
            changes.delete(BUNDLES, (name,))

        await self._change(plan)

    async def add_cell(self, bundle: str, cells_max: int) -> CellRecord:
        """A cell of a new id, to be created. BundleRefused when there are `cells_max` or no such bundle."""

        def plan(changes: RowChanges) -> CellRecord:
            self._known(bundle)
            if len(self.cells) >= cells_max:
                raise BundleRefused(
                    f"the node has {len(self.cells)} cells beside the system cell, as many as pqbroker.cells.max allows"
                )
            # The state is read here: the first change has laid it out.
            record = CellRecord(CellId(self._state.facts["next_cell"]), bundle, CellState.CREATING)
            changes.put(HIVE_FACTS, ("next_cell",), {"value": record.cell + 1})
            _put_cell(changes, record)
            return record

        return await self._change(plan)

    async def set_state(self, cell: CellId, state: CellState) -> None:
        """Note that a cell is ready, or is being removed. BundleRefused if it does not exist, or is being removed
        already."""

        def plan(changes: RowChanges) -> None:
            record = self.cells.get(cell)
            if record is None or record.state is CellState.REMOVING:
                raise BundleRefused(f"there is no cell {cell}, or it is being removed")
            _put_cell(changes, replace(record, state=state))

        await self._change(plan)

    async def note_opening(self, opening: CellOpening) -> bool:
        """Note how a cell is open now; nothing is stored where that is known. False: the cell is unknown, or was opened
        later by another owner."""

        def plan(changes: RowChanges) -> bool:
            known = self.openings.get(opening.cell)
            if opening.cell not in self.cells or (known is not None and known.generation > opening.generation):
                return False
            if known != opening:
                if OPENINGS not in changes.row_sets:
                    changes.create_row_set(OPENINGS, [("cell", "int")], OPENING_COLUMNS)
                changes.put(OPENINGS, (opening.cell,), opening.row())
            return True

        return await self._change(plan)

    async def set_homes(self, homes: Sequence[CellHome]) -> None:
        """Note where cells live now, in one commit; cells that are gone are left out."""
        if all(self.homes.get(home.cell) == home for home in homes):
            return

        def plan(changes: RowChanges) -> None:
            if HOMES not in changes.row_sets:
                changes.create_row_set(HOMES, [("cell", "int")], HOME_COLUMNS)
            for home in homes:
                if home.cell in self.cells:
                    changes.put(HOMES, (home.cell,), home.row())

        await self._change(plan)

    async def forget_cell(self, cell: CellId) -> None:
        """Forget a cell. What it stored is gone."""

        def plan(changes: RowChanges) -> None:
            changes.delete(CELLS, (cell,))
            if OPENINGS in changes.row_sets:
                changes.delete(OPENINGS, (cell,))
            if HOMES in changes.row_sets:
                changes.delete(HOMES, (cell,))

        await self._change(plan)

    async def copy(self, plan: Callable[[RowChanges], T]) -> T:
        """Have the rows become those of another node's hive, or nearer to them; return what `plan` returns."""
        return await self._change(plan)

    def _known(self, name: str) -> Bundle:
        bundle = self.bundles.get(name)
        if bundle is None:
            raise BundleRefused(f"there is no bundle {name!r}; there are {', '.join(sorted(self.bundles))}")
        return bundle

    async def _change(self, plan: Callable[[RowChanges], T]) -> T:
        while self._held is not None:
            await asyncio.shield(self._held)
        async with self._making:
            if self._tablet is None:
                await self._host.cell.create_tablets([(HIVE_TABLET_ID, TabletType.HIVE, "hive")])
                await self._host.start(HIVE_TABLET_ID, self)
        assert self._tablet is not None
        return await self._tablet.change(plan)


async def _replayed(storage: TabletStorage, changes: ChangeLog) -> tuple[BaseTablet, HiveState]:
    state = HiveState()
    tablet = BaseTablet(storage, changed=state.follow, changes=changes)
    await tablet.start()
    if not tablet.row_sets:
        await tablet.change(_lay_out)
    state.check()
    return tablet, state


def _lay_out(changes: RowChanges) -> None:
    changes.create_row_set(HIVE_FACTS, [("name", "str")], ["value"])
    changes.create_row_set(BUNDLES, [("name", "str")], ["options", "node_tag_filter"])
    changes.create_row_set(CELLS, [("cell", "int")], ["bundle", "state"])
    changes.put(HIVE_FACTS, ("format",), {"value": HIVE_FORMAT})
    changes.put(HIVE_FACTS, ("next_cell",), {"value": 1})


def _put_bundle(changes: RowChanges, bundle: Bundle) -> None:
    row: dict[str, Any] = {"options": dict(bundle.options), "node_tag_filter": bundle.node_tag_filter}
    changes.put(BUNDLES, (bundle.name,), row)


def _put_cell(changes: RowChanges, record: CellRecord) -> None:
    changes.put(CELLS, (record.cell,), {"bundle": record.bundle, "state": str(record.state)})
