"""Tablets that run: their protocol, what they show of themselves, and the host that starts, restarts and reclaims them.

    made --start--> running --hold--> held --start--> running, one generation later
                                      any of them --stop--> stopped
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pqbroker.storage.engine import ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.tablets.cell import Cell, TabletUnknown
from pqbroker.storage.tablets.reclaiming import Reclaiming
from pqbroker.storage.tablets.tablet import TabletStorage


class TabletSample(NamedTuple):
    """A number for the metrics; those of all tablets under the same name and labels are added up."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TabletPage:
    """Facts that a tablet shows of itself to people; None: it has nothing of the kind."""

    topic: str | None = None
    partitions: tuple[int, ...] = ()
    """Partitions of the topic that the tablet serves."""
    size_bytes: int | None = None
    """Bytes of the partitions."""
    kv: KeyValueTablet | None = None
    """The keys that it is made of."""
    row_sets: Mapping[str, int] | None = None
    """Rows of each row set."""
    start_s: float | None = None
    """Seconds that the start of the running instance took."""


class Tablet(Protocol):
    """One tablet over all its generations in one opening of the cell: each start begins the next instance of it."""

    async def start(self, storage: TabletStorage) -> None:
        """Begin an instance that writes through `storage`; what waits since `hold` continues in it.

        ShardLost, and then what waits fails.
        """

    async def hold(self) -> None:
        """Begin no write any more until the next `start`: return when none is in work. Reads are served.

        What is asked for meanwhile waits, or is refused so that its caller comes again.
        """

    async def stop(self) -> None:
        """End the tablet: later requests fail."""

    def describe(self) -> TabletPage: ...

    def samples(self) -> Iterable[TabletSample]: ...


def _nothing_waits() -> None:
    """Do nothing, for a tablet in which nothing waits that the store does not refuse itself."""


def _unwatched() -> None:
    """Do nothing, for a host whose tablets nobody names to other nodes."""


@dataclass(frozen=True, slots=True)
class _Hosted:
    tablet: Tablet
    lose: Callable[[], None]
    guard: asyncio.Lock = field(default_factory=asyncio.Lock)


class TabletHost:
    """The tablets that run in one opening of a cell, by id."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._hosted: dict[TabletId, _Hosted] = {}
        self._restarts = asyncio.Lock()
        self._reclaiming = Reclaiming(cell)
        self.changed: Callable[[], None] = _unwatched
        """Called when a tablet begins to run, runs in another generation, or ceases to run."""
        cell.lost.add_done_callback(self._on_lost)

    async def start(
        self,
        tablet_id: TabletId,
        tablet: Tablet,
        guard: asyncio.Lock | None = None,
        lose: Callable[[], None] = _nothing_waits,
    ) -> None:
        """Run a tablet that the cell has. `guard` is held while it is restarted: changes of its owner wait for that.

        `lose` is called when the cell is lost, and ends what waits in the tablet. KeyError when there is no such
        tablet; and what `Tablet.start` raises.
        """
        storage = self.cell.storage(tablet_id)
        await tablet.start(storage)
        storage.started()
        self._hosted[tablet_id] = _Hosted(tablet, lose) if guard is None else _Hosted(tablet, lose, guard)
        self.changed()
        if self.cell.lost.done():
            lose()

    def tablet(self, tablet_id: TabletId) -> Tablet | None:
        """The tablet of that id; None when none runs."""
        hosted = self._hosted.get(tablet_id)
        return hosted.tablet if hosted is not None else None

    def samples(self) -> Generator[None, None, dict[tuple[str, tuple[str, ...]], float]]:
        """Returns sums over all tablets, by name and labels; other work may be done between its steps."""
        sums: dict[tuple[str, tuple[str, ...]], float] = {}
        for hosted in list(self._hosted.values()):
            for name, value, labels in hosted.tablet.samples():
                sums[name, labels] = sums.get((name, labels), 0) + value
            yield
        return sums

    async def restart(self, tablet_id: TabletId) -> int:
        """Start a tablet again, one generation later, while the others continue: its generation.

        Refused, it continues in its generation. Raises TabletUnknown, CommitRefused, ShardLost.
        """
        async with self._restarts, self._running(tablet_id).guard:
            tablet = self._running(tablet_id).tablet
            await tablet.hold()
            try:
                await self.cell.restart_tablet(tablet_id)
            finally:
                await tablet.start(self.cell.storage(tablet_id))
                self.changed()
            return self.cell.tablets()[tablet_id].generation

    async def move_channel(self, tablet_id: TabletId, channel: int, pool: int) -> None:
        """Let a tablet's channel write to another pool from its next start on; see `Cell.move_channel`."""
        await self.cell.move_channel(tablet_id, channel, pool)

    async def stop_tablet(self, tablet_id: TabletId) -> None:
        """End a tablet; what is stored of it stays. None of that id: nothing to do."""
        hosted = self._hosted.pop(tablet_id, None)
        if hosted is not None:
            self.changed()
            await hosted.tablet.stop()

    def let_go(self, tablet_id: TabletId) -> None:
        """The tablet runs in another cell from now on, where it is started with what waits in it. None of that id: this
        cell was lost meanwhile, and has ended its tablets."""
        if self._hosted.pop(tablet_id, None) is not None:
            self.changed()

    def _on_lost(self, _: "asyncio.Future[ShardLost]") -> None:
        """One call for all: thousands of callbacks of one future would cost their square to take back."""
        self.changed()
        for hosted in self._hosted.values():
            hosted.lose()

    def reclaim(self, tablets: Iterable[TabletId], forget: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin to remove tablets that do not run any more from the cell, then call `forget`."""
        self._reclaiming.begin(tablets, forget)

    async def reclaimed(self) -> None:
        """Return when what is to be reclaimed is removed, or left to the next start."""
        await self._reclaiming.finished()

    async def stop(self) -> None:
        """End every tablet, the last one started first; what is reclaimed continues at the next start."""
        await self._reclaiming.stop()
        for tablet_id in reversed(tuple(self._hosted)):
            await self.stop_tablet(tablet_id)

    def _running(self, tablet_id: TabletId) -> _Hosted:
        hosted = self._hosted.get(tablet_id)
        if hosted is None:
            raise TabletUnknown(f"no tablet {tablet_id} runs in cell {self.cell.name}")
        return hosted
