"""A sorted table on a simulated node, and the naive one of its books; each step is a coroutine of plain arguments."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.commits.commit import CommitUnknown
from pqbroker.broker.services.sorted_tables.attributes import remount_sorted, set_sorted_attributes
from pqbroker.broker.services.sorted_tables.making import NewSortedTable, create_sorted
from pqbroker.broker.services.sorted_tables.mounting import change_sorted_state
from pqbroker.broker.services.sorted_tables.resharding import SortedReshard, reshard_sorted
from pqbroker.broker.services.sorted_tables.rows import delete_sorted_rows, insert_sorted, look_up
from pqbroker.broker.services.tables.finding import TabletRange
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.tables.mounting import MountChange
from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.blobs.blob_id import tablet_bounds
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import BlobKey, BlobMissing, CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.tablets.cell import TabletUnknown
from pqbroker.storage.tablets.scheme import SchemeError
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.stored_keys import (
    CHUNK_KEYS,
    LOG_KEYS,
    PIECE_KEYS,
    chunk_data_key,
    read_chunk_key,
    read_log_key,
)
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.packed_rows import KIND_AT, Kind, timestamp_of
from tests.simulation.ledger import expect
from tests.simulation.node import SimulatedNode
from tests.simulation.sorted_book import SentWrite, SortedBook

NAME: Final = "sorted"
KEYS: Final = 12
PIVOTS: Final[Sequence[Sequence[int]]] = ([], [4], [8])
TABLETS: Final = len(PIVOTS)
COLUMNS: Final = ("a", "b")
SETTLES_S: Final = 60.0
REFUSED: Final = (BundleRefused, CommitRefused, KafkaError, SchemeError, TableError, TabletUnknown)
_SCHEMA: Final[Sequence[Mapping[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "a", "type": "utf8"},
    {"name": "b", "type": "int64"},
]
SMALL: Final = {
    "min_partition_data_size": 300, "desired_partition_data_size": 800, "max_partition_data_size": 1200,
    "min_partitioning_data_size": 200, "min_data_ttl": 5_000, "max_data_ttl": 5_000, "samples_per_partition": 10,
    "max_dynamic_store_row_count": 30,
}  # fmt: skip
"""Attributes with which a few rows are flushed, compacted and partitioned."""
_Change = Callable[[DirectCaller[Node]], Coroutine[Any, Any, Any]]


class NotServed(Exception):
    """The node is down, or opens its cells."""


class SortedStory:
    """`create` comes first. A step that is refused has changed nothing."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.book = SortedBook(COLUMNS)
        self.refusals: dict[str, int] = {}
        self._number = 0
        self._acting: list[SortedAttributes] = []
        """All attributes that may act in some tablet."""

    @property
    def caller(self) -> DirectCaller[Node]:
        return DirectCaller(self.node.node)

    @property
    def table(self) -> SortedTable:
        found = self.node.node.cell.current.sorted_tables.get(NAME)
        if found is None:
            raise NotServed
        return found

    def tablet(self, key: int) -> SortedTablet:
        table = self.table
        return table.tablets[table.index_of(table.schema.encode_key([key]))]

    async def create(self, **attributes: Any) -> None:
        new = NewSortedTable(f"//{NAME}", _SCHEMA, {**SMALL, **attributes}, pivot_keys=PIVOTS)
        await self._do(lambda caller: create_sorted(caller, new))
        self._note_attributes()

    @property
    def is_created(self) -> bool:
        return NAME in self.node.node.cell.current.sorted_tables.tables

    async def write(self, keys: Sequence[int], columns: str, *, is_update: bool, padding: int = 0) -> None:
        """Write rows of distinct keys; `columns`: those that they give, in capitals those that are null."""
        self._number += 1
        given = {"a": f"{self._number}" + "x" * padding, "b": self._number, "A": None, "B": None}
        row = {name.lower(): given[name] for name in columns}
        written = row if is_update else {**dict.fromkeys(COLUMNS), **row}
        sent = self.book.sent(dict.fromkeys(keys, written), is_update=is_update)
        rows = GivenRows([{"id": key, **row} for key in keys])
        await self._send(sent, insert_sorted(self.caller, NAME, rows, is_update=is_update))

    async def delete(self, keys: Sequence[int]) -> None:
        sent = self.book.sent(dict.fromkeys(keys), is_update=False)
        await self._send(sent, delete_sorted_rows(self.caller, NAME, GivenRows([{"id": key} for key in keys])))

    async def _send(self, sent: SentWrite, sending: Coroutine[Any, Any, Any]) -> None:
        try:
            written = await sending
        except (CommitUnknown, ShardLost):
            self.book.doubtful.append(sent)
        except REFUSED as refusal:
            self._refused(refusal)
        else:
            self.book.acknowledged(sent, written.timestamp)

    async def read(self, key: int, timestamp: int | None) -> None:
        """Look a row up, and compare; a timestamp that is cleaned up, or a tablet that is not mounted, is refused."""
        if self.book.doubtful:
            return
        self._note_attributes()
        try:
            (found,) = await look_up(self.caller, NAME, [{"id": key}], timestamp, None)
        except (ShardLost, *REFUSED) as refusal:
            self._refused(refusal)
            return
        self.book.check(key, self.book.last if timestamp is None else timestamp, found)

    async def read_all(self) -> None:
        """Read every row at every timestamp at which it changed, and before."""
        for key in range(KEYS):
            retained = self.tablet(key).facts.retained_timestamp
            stamps = {stamp - before for stamp in self.book.timestamps(key) for before in (0, 1)}
            for stamp in sorted(stamp for stamp in stamps if stamp >= retained):
                await self.read(key, stamp)
            await self.read(key, None)

    async def command(self, command: MountCommand, first: int, last: int, *, is_forced: bool = False) -> None:
        change = MountChange(command, TabletRange(first, last), is_forced=is_forced)
        await self._do(lambda caller: change_sorted_state(caller, NAME, change))
        self._note_attributes()

    async def mount_all(self) -> None:
        """Have every tablet mounted, unless a command is refused."""
        commands = {"frozen": MountCommand.UNFREEZE, "unmounted": MountCommand.MOUNT}
        for index, state in enumerate(self.table.record.states):
            if state in commands:
                await self.command(commands[state], index, index)

    @property
    def is_mounted(self) -> bool:
        return {*self.table.record.states} == {"mounted"}

    async def move(self, index: int, place: int) -> None:
        """Have a tablet live in another cell, by its place among them."""
        cells = [SYSTEM_CELL, *sorted(self.node.owner.current.hive.cells)]
        change = MountChange(MountCommand.MOUNT, TabletRange(index, index), str(cells[place % len(cells)]))
        await self._do(lambda caller: change_sorted_state(caller, NAME, change))

    async def reshard(self, pivots: Sequence[int]) -> None:
        """Have as many tablets as before begin at other keys, the first one at the least."""
        await self.command(MountCommand.UNMOUNT, 0, TABLETS - 1)
        wanted = SortedReshard(pivot_keys=[[], *([pivot] for pivot in pivots)])
        await self._do(lambda caller: reshard_sorted(caller, NAME, wanted))
        await self.mount_all()

    async def restart_tablet(self, index: int) -> None:
        tablet_id = self.table.record.tablets[index]
        await self._do(lambda _: self.node.owner.restart_tablet(tablet_id))

    async def add_cell(self) -> None:
        await self._do(lambda _: self.node.owner.current.others.create("default"))

    async def set_attributes(self, given: Mapping[str, Any]) -> None:
        """Set attributes, and have them act."""
        await self._do(lambda caller: set_sorted_attributes(caller, NAME, given))
        await self._do(lambda caller: remount_sorted(caller, NAME))
        self._note_attributes()

    def rotate(self, index: int) -> None:
        tablet = self.table.tablets[index]
        if tablet.is_serving:
            tablet.rotate()
            self.node.owner.current.sorted_tables.background.look_soon()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _do(self, change: _Change) -> None:
        try:
            await change(self.caller)
        except (ShardLost, *REFUSED) as refusal:
            self._refused(refusal)

    def _refused(self, refusal: BaseException) -> None:
        name = getattr(refusal, "code", type(refusal).__name__)
        expect(name != "CHUNK_DAMAGED", f"nothing was damaged: {refusal}")
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def _note_attributes(self) -> None:
        """Take note of what may expire."""
        table = self.node.node.cell.current.sorted_tables.get(NAME)
        for tablet in () if table is None else table.tablets:
            if tablet.config.attributes not in self._acting:
                self._acting.append(tablet.config.attributes)
        for acting in self._acting:
            self.book.expires(self.node.clock(), acting.max_data_ttl, acting.min_data_versions)

    async def settle(self) -> None:
        """Return when all cells are open and all logs read; then learn what became of writes in doubt."""
        async with asyncio.timeout(SETTLES_S):
            while not self._is_settled():  # noqa: ASYNC110 (a state of the node's, nobody sets an event)
                await asyncio.sleep(0.01)
        while self.book.doubtful:
            try:
                await self._resolve()
            except (BlobMissing, KeyMissing, NotServed, ShardLost):  # lost again
                await asyncio.sleep(0.01)

    async def _resolve(self) -> None:
        """Learn of each row that is in doubt what is stored of it. BlobMissing, KeyMissing, NotServed, ShardLost."""
        for key in sorted({key for write in self.book.doubtful for key in write.rows}):
            self.book.found_stored(key, await self.stored(key))
        self.book.settle()

    def _is_settled(self) -> bool:
        node = self.node
        if not node.is_up or not node.owner.is_open:
            return False
        opened = node.owner.current
        for tablet in self.table.tablets if NAME in opened.sorted_tables.tables else ():
            expect(tablet.unreadable is None, f"{tablet.name} is unreadable: {tablet.unreadable}")
        return (
            all(opened.others.health(cell) == "good" for cell in opened.hive.cells)
            and NAME in opened.sorted_tables.tables
            and all(tablet.is_serving or not tablet.is_mounted for tablet in self.table.tablets)
            and not any(tablet.has_locks for tablet in self.table.tablets)
        )

    async def stored(self, key: int) -> list[tuple[int, Sequence[Any] | None]]:
        """Return all versions of a key that a tablet has."""
        tablet, encoded = self.tablet(key), self.table.schema.encode_key([key])
        form = tablet.config.schema.form
        found: list[tuple[int, Sequence[Any] | None]] = [
            (timestamp_of(one), None if one[KIND_AT] == Kind.DELETE else form.values(one))
            for store in tablet.stores
            for one in store.versions(encoded)
        ]
        for chunk in list(tablet.structure.over(encoded)):
            found += await _in_chunk(tablet, chunk, encoded)
        return found

    async def rest(self) -> None:
        """Return when no background work is under way, and none will be."""
        background = self.node.owner.current.sorted_tables.background
        async with asyncio.timeout(SETTLES_S * 100):
            quiet = 0
            while quiet < 3:
                await asyncio.sleep(1.1)
                quiet = 0 if background.history.running else quiet + 1

    async def verify(self) -> None:
        """Compare each row at each timestamp, and the stores with what the tablets know of them."""
        await self.settle()
        expect(self.is_mounted, f"tablets are {self.table.record.states}")
        await self.read_all()
        await self.rest()
        for index, tablet in enumerate(self.table.tablets):
            await self._verify_tablet(index, tablet)
        await self.read_all()

    async def _verify_tablet(self, index: int, tablet: SortedTablet) -> None:
        keys = dict(tablet.kv.keys())
        staged = [key for key in keys if key.startswith(PIECE_KEYS)]
        expect(not staged, f"{tablet.name} has pieces of tasks that ended: {staged}")
        records = {read_chunk_key(key) for key in keys if key.startswith(CHUNK_KEYS)}
        data = {key for key in keys if key.startswith(b"d")}
        expect({*map(chunk_data_key, records)} == data, f"{tablet.name} has records {records}, and chunks {data}")
        expect(records == tablet.structure.chunks.keys(), f"{tablet.name} knows {tablet.structure.chunks.keys()}")
        stores = {read_log_key(key)[0] for key in keys if key.startswith(LOG_KEYS)}
        known = {store.number for store in tablet.stores}
        expect(not tablet.is_mounted or stores <= known, f"{tablet.name} has logs of {stores}, and stores {known}")
        home = self.node.owner.current.cells.host(self.table.record.cell_of(index))
        assert home is not None
        storage = home.cell.storage(self.table.record.tablets[index])
        named = {blob for entry in keys.values() for blob in entry.blobs()}
        stored = {blob async for blob, _ in storage.stored_blobs(*map(BlobKey, tablet_bounds(storage.tablet_id)))}
        expect(named == stored, f"{tablet.name}: keys and blobs differ by {named ^ stored}")


async def _in_chunk(tablet: SortedTablet, chunk: OpenChunk, key: bytes) -> list[tuple[int, Sequence[Any] | None]]:
    index = await chunk.read_index(tablet.kv)
    found: list[tuple[int, Sequence[Any] | None]] = []
    for number in index.blocks_of(key):
        block = await chunk.read_block(tablet.kv, index, number)
        found += [(one.timestamp, one.values) for one in (block.version(row, 1) for row in block.rows_of(key))]
    return found


