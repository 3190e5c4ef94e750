"""The cells of a node that are open, by id: where tablets are looked for, and where new ones are placed."""

from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.bundles.hive import CellState, Hive
from pqbroker.storage.bundles.placement import Elsewhere, NoHealthyCell, place
from pqbroker.storage.engine import StoreFailed
from pqbroker.storage.faults import Faults
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.memory import MemoryShard
from pqbroker.storage.memory_store import MemoryStore
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.tablet import StandIn, TabletStorage


class OpenCells:
    """Hosts of the open cells. The system cell is always one of them; others come and go."""

    def __init__(
        self, system: TabletHost, hive: Hive | None = None,
        elsewhere: Elsewhere = MappingProxyType({}), *, spreads: bool = False,
        changed: Callable[[], None] | None = None,
    ) -> None:
        """`elsewhere`: tablets in cells that other nodes have open; `spreads`: new tablets go to no system cell;
        `changed`: called when tablets begin to run here, or cease to, if there are other nodes."""
        self._hosts: dict[CellId, TabletHost] = {SYSTEM_CELL: system}
        self._hive = hive
        self._elsewhere = elsewhere
        self.spreads = spreads
        self._changed = changed
        self._watch(system)
        self._absent: MemoryShard | None = None
        self.leaving: set[CellId] = set()
        """Open cells that get no new tablets: theirs are being moved away."""

    def host(self, cell: CellId) -> TabletHost | None:
        """Return the host of the cell's tablets; None if the cell is not open."""
        return self._hosts.get(cell)

    @property
    def system(self) -> TabletHost:
        return self._hosts[SYSTEM_CELL]

    def hosts(self) -> list[tuple[CellId, TabletHost]]:
        """Return the hosts of all open cells, in the order of ids."""
        return sorted(self._hosts.items(), key=lambda item: item[0])

    def host_of(self, tablet_id: TabletId) -> TabletHost:
        """Return the host where a tablet runs; the system cell's for one that runs nowhere."""
        return next((host for host in self._hosts.values() if host.tablet(tablet_id) is not None), self.system)

    def add(self, cell: CellId, host: TabletHost) -> None:
        """Add a cell that is open, or open again."""
        self._hosts[cell] = host
        self._watch(host)

    def remove(self, cell: CellId) -> None:
        """Remove a cell that is not open any more."""
        assert cell != SYSTEM_CELL
        self._hosts.pop(cell, None)
        if self._changed is not None:
            self._changed()

    def is_elsewhere(self, cell: CellId) -> bool:
        """Return True if another node has the cell open."""
        return cell in self._elsewhere and cell not in self._hosts

    def elsewhere_of(self, tablet_id: TabletId) -> CellId | None:
        """Return the cell in which another node runs a tablet; None: none does, as far as is known."""
        for cell, tablets in self._elsewhere.items():
            if tablet_id in tablets and cell not in self._hosts:
                return cell
        return None

    def place(
        self, bundle: str, count: int, among: Callable[[CellId], bool] = lambda _: True
    ) -> Sequence[CellId]:
        """The cells of `count` new tablets of a bundle: those that take writes, if any does. `among` returns True for
        a cell that may be one. NoHealthyCell."""
        healthy = {cell: held for cell, held in self._healthy(bundle) if among(cell)}
        if not healthy and self._hive is not None and bundle not in self._hive.bundles:
            raise NoHealthyCell(bundle, exists=False)
        written = {cell: count for cell, count in healthy.items() if not self._is_reading_only(cell)}
        return place(count, bundle, written or healthy)

    def known_generation(self, cell: CellId, tablet_id: TabletId) -> int | None:
        """Return the generation that a tablet of a cell that is not open had at the cell's last opening, wherever that
        was; None: unknown."""
        opening = None if self._hive is None else self._hive.openings.get(cell)
        return None if opening is None else opening.epochs.get(tablet_id)

    def absent_storage(self, tablet_id: TabletId) -> TabletStorage:
        """Return what stands in for the storage of a tablet whose cell is not open: it is lost, and holds nothing."""
        if self._absent is None:
            self._absent = MemoryShard(MemoryStore(0, ("main",)), 0, _colour, Faults())
            self._absent.lose(StoreFailed("the cell is not open"))
        return TabletStorage(self._absent, BlobStorage(self._absent, ("main",)), StandIn(tablet_id))

    def _watch(self, host: TabletHost) -> None:
        """Have changes of a host that counts from now on be noted."""
        if self._changed is not None:
            host.changed = self._changed
            self._changed()

    def _healthy(self, bundle: str) -> Iterator[tuple[CellId, int]]:
        """The bundle's open cells with the number of their objects' tablets. The system cell stays one of them: while
        it is lost, every change of the scheme waits or is refused by its own error."""
        for cell, host in self._hosts.items():
            if cell in self.leaving or self._bundle_of(cell) != bundle or (self.spreads and cell == SYSTEM_CELL):
                continue
            if cell == SYSTEM_CELL or not host.cell.lost.done():
                yield cell, host.cell.object_tablets

        for cell, tablets in self._elsewhere.items():
            if cell not in self._hosts and cell not in self.leaving and self._bundle_of(cell) == bundle:
                yield cell, len(tablets)

    def _is_reading_only(self, cell: CellId) -> bool:
        host = self._hosts.get(cell)
        return host is not None and bool(host.cell.reading_only)

    def _bundle_of(self, cell: CellId) -> str | None:
        """Return the bundle of the cell; None if it takes no new tablets."""
        if cell == SYSTEM_CELL:
            return DEFAULT_BUNDLE
        record = None if self._hive is None else self._hive.cells.get(cell)
        return record.bundle if record is not None and record.state is CellState.READY else None


def _colour(pool: str) -> Colour:
    return Colour.GREEN
