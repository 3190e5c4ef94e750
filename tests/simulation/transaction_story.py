"""Transactions over the sorted table of a story and an ordered one, and what became of each.

Steps are coroutines of plain arguments. A commit is sent until its outcome is known. Then it is in the books of the
sorted table, or it is nowhere; its rows of the ordered table are there once, at its timestamp, or never; and the same
commit sent again gets the same answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pqbroker.broker.services.sorted_tables.rows import look_up
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.tables.making import NewTable, create
from pqbroker.broker.services.tables.mounting import MountChange, change_state
from pqbroker.broker.services.tables.resharding import ReshardChange, reshard
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.broker.services.transactions import transactions
from pqbroker.broker.services.transactions.transactions import CommittedTransaction
from pqbroker.broker.services.transactions.writes import TableWrite, WriteKind
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import decode_row
from tests.pq.rig import read_all
from tests.simulation.ledger import expect
from tests.simulation.sorted_book import SentWrite
from tests.simulation.sorted_story import COLUMNS, NAME, REFUSED, SETTLES_S, NotServed, SortedStory

LOG: Final = "transacted"
LOG_TABLETS: Final = 2
_LOG_COLUMNS: Final[Sequence[Mapping[str, Any]]] = [
    {"name": "number", "type": "int64"}, {"name": "$timestamp", "type": "uint64"},
]  # fmt: skip
TRY_AGAIN_S: Final = 0.02
LOCKS_END_S: Final = 30.0
"""Simulated seconds in which all that commits have left is ended, once all cells are open."""
_UNKNOWN: Final = "COMMIT_UNKNOWN"
_NEVER: Final = frozenset(("NO_TRANSACTION", "TRANSACTION_ENDED"))
"""Refusals that say of a commit in doubt that it was not performed."""


@dataclass(frozen=True, slots=True)
class PlannedWrites:
    """The writes of a transaction: keys of rows that it writes whole, updates and deletes, all distinct; and tablets of
    the ordered table, one for each row."""

    whole: Sequence[int] = ()
    updated: Sequence[int] = ()
    deleted: Sequence[int] = ()
    logged: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SimulatedCommit:
    """One that has ended. `outcome` None: it was not performed."""

    name: str
    start: int
    writes: Sequence[TableWrite]
    numbers: Sequence[int]
    """Numbers of its rows in the ordered table."""
    keys: Sequence[int]
    outcome: CommittedTransaction | None


@dataclass(slots=True)
class SnapshotRead:
    """A row as a transaction has read it."""

    key: int
    timestamp: int
    found: Mapping[str, Any] | None


@dataclass(slots=True)
class TransactionStory:
    """`create` comes first. A step that is refused has changed nothing."""

    story: SortedStory
    ended: list[SimulatedCommit] = field(default_factory=list)
    _reads: list[SnapshotRead] = field(default_factory=list)
    """Reads that are not compared yet: other writes may be under way."""
    _number: int = 0

    @property
    def log(self) -> Topic | None:
        return self.story.node.node.cell.current.topics.get(LOG) if self.story.node.is_up else None

    async def create(self) -> None:
        """Create the ordered table, unless it exists."""
        while self.log is None:
            self._check_up()
            new = NewTable(f"//{LOG}", _LOG_COLUMNS, tablet_count=LOG_TABLETS)
            try:
                await create(self.story.caller, new)
            except (ShardLost, *REFUSED):
                await asyncio.sleep(TRY_AGAIN_S)

    async def transact(self, reads: Sequence[int], writes: PlannedWrites, *, think_s: float = 0.0) -> None:
        """Read rows at the start, wait, and commit."""
        begun = await self._begin(reads, 30_000)
        if begun is None:
            return
        await asyncio.sleep(think_s)
        given, sent, numbers = self._given(writes)
        outcome = await self._commit(begun[0], given)
        keys = [*writes.whole, *writes.updated, *writes.deleted]
        self.ended.append(SimulatedCommit(*begun, given, numbers, keys, outcome))
        if outcome is not None:
            expect(outcome.timestamp >= begun[1], f"a commit of {outcome.timestamp} started at {begun[1]}")
            for one in sent:
                self.story.book.acknowledged(one, outcome.timestamp)

    async def abort(self, reads: Sequence[int], writes: PlannedWrites, *, by_timeout: bool) -> None:
        """Abort a transaction, or be silent for longer than it waits; its commit is refused then."""
        begun = await self._begin(reads, 50 if by_timeout else 30_000)
        if begun is None:
            return
        if by_timeout:
            await asyncio.sleep(0.3)
        else:
            self._check_up()
            try:
                transactions.abort(self.story.caller, begun[0])
            except TableError as refusal:  # a restart has aborted it
                expect(refusal.code in _NEVER, f"an abort is refused: {refusal}")
        given, _, numbers = self._given(writes)
        outcome = await self._commit(begun[0], given)
        expect(outcome is None, f"transaction {begun[0]} was aborted, and is committed")
        self.ended.append(SimulatedCommit(*begun, given, numbers, (), None))

    async def send_again(self, place: int) -> None:
        """Send an ended commit again: the answer is the same. And with other writes it is refused."""
        written = [one for one in self.ended if one.numbers or one.keys]
        if not written:
            return
        one = written[place % len(written)]
        again = await self._commit(one.name, one.writes)
        if one.outcome is None:
            expect(again is None, f"transaction {one.name} was refused, and is committed")
        else:
            expect(again is not None, f"transaction {one.name} is forgotten")
            assert again is not None
            expect(again[:2] == one.outcome[:2], f"{one.name} was {one.outcome}, and is {again} now")
            expect(again.is_repeated, f"transaction {one.name} was written twice")
        other = [TableWrite(LOG, WriteKind.ROWS, GivenRows([{"number": -1}])), *one.writes]
        changed = await self._commit(one.name, other)
        expect(changed is None, f"transaction {one.name} is committed with other writes")

    async def move_log(self, index: int, place: int) -> None:
        """Have a tablet of the ordered table live in another cell."""
        self._check_up()
        cells = [SYSTEM_CELL, *sorted(self.story.node.owner.current.hive.cells)]
        change = MountChange(MountCommand.MOUNT, TabletRange(index, index), str(cells[place % len(cells)]))
        await self._change_log(change)

    async def remount_log(self, index: int) -> None:
        """Unmount a tablet of the ordered table, and mount it."""
        for command in (MountCommand.UNMOUNT, MountCommand.MOUNT):
            self._check_up()
            await self._change_log(MountChange(command, TabletRange(index, index)))

    async def mount_log(self) -> None:
        """Have the ordered table mounted, unless that is refused."""
        self._check_up()
        await self._change_log(MountChange(MountCommand.MOUNT, ALL_TABLETS))

    async def reshard_log(self, tablet_count: int) -> None:
        """Give the ordered table another number of tablets; rows of those that go come behind the last that stays."""
        self._check_up()
        await self._change_log(MountChange(MountCommand.UNMOUNT, ALL_TABLETS))
        self._check_up()
        with suppress(ShardLost, *REFUSED):
            await reshard(self.story.caller, LOG, ReshardChange(tablet_count))
        await self.mount_log()

    def compare_reads(self) -> None:
        """Compare what transactions have read; nothing is in doubt, and no write is under way."""
        for read in self._reads:
            self.story.book.check(read.key, read.timestamp, read.found)
        self._reads.clear()

    async def verify(self) -> None:
        """Compare all: nothing is prepared or locked, nobody wrote over another one, rows are there once or never."""
        await self.story.settle()
        await self._verify_unlocked()
        self.compare_reads()
        for one in self.ended:
            self._verify_conflicts(one)
        await self._verify_log()
        for place in range(len(self.ended)):
            await self.send_again(place)

    def _verify_conflicts(self, one: SimulatedCommit) -> None:
        if one.outcome is None:
            return
        for key in one.keys:
            between = [at for at in self.story.book.timestamps(key) if one.start < at < one.outcome.timestamp]
            expect(not between, f"{one.name} started at {one.start} and wrote key {key} over {between}")

    async def _verify_unlocked(self) -> None:
        opened = self.story.node.owner.current
        try:
            async with asyncio.timeout(LOCKS_END_S):
                while opened.commits.is_busy:  # noqa: ASYNC110 (nobody sets an event)
                    await asyncio.sleep(TRY_AGAIN_S)
        except TimeoutError:
            expect(False, f"commits are unfinished: {[one.state for one in opened.commits.under_way]}")
        for tablet in self.story.table.tablets:
            expect(not tablet.transactions.prepared, f"{tablet.name} has prepared rows")
            expect(not tablet.writes.locks.is_contended, f"{tablet.name} has locks")
        assert self.log is not None
        for server in self.log.partitions:
            known = server.known_transactions
            expect(known is None or not known.prepared, f"tablet {server.index} of {LOG} has prepared rows")

    async def _verify_log(self) -> None:
        found = await self.logged()
        wanted = {number: one.outcome.timestamp for one in self.ended if one.outcome for number in one.numbers}
        expect(found == wanted, f"{LOG} has {found.items() ^ wanted.items()} besides what was committed, or lacks it")

    async def logged(self) -> dict[int, int]:
        """Return the timestamps of the rows of the ordered table, by number; each is there once."""
        topic = self.log
        assert topic is not None
        schema = typed_schema_of(topic)
        assert schema is not None
        found: dict[int, int] = {}
        for server in topic.partitions:
            facts = await server.facts.read(0, server.end_offset)
            stamps = {fact.row_index: fact.timestamp for fact in facts}
            for offset, value in await read_all(server):
                number = decode_row(schema, None, value)["number"]
                expect(number not in found, f"row {number} of {LOG} is there twice")
                found[number] = stamps[offset]
        return found

    async def _begin(self, reads: Sequence[int], timeout_ms: int) -> tuple[str, int] | None:
        """Start a transaction and read rows: its name and start. None: that was refused."""
        self._check_up()
        last = self.story.book.last
        try:
            begun = await transactions.start(self.story.caller, "simulated", timeout_ms)
            for key in reads:
                self._check_up()
                at = transactions.read_timestamp(self.story.caller, begun.name)
                (found,) = await look_up(self.story.caller, NAME, [{"id": key}], at, None)
                self._reads.append(SnapshotRead(key, at, found))
        except (ShardLost, *REFUSED):
            return None
        expect(begun.start_timestamp > last, f"a start at {begun.start_timestamp} came after {last}")
        return begun.name, begun.start_timestamp

    def _given(self, planned: PlannedWrites) -> tuple[list[TableWrite], list[SentWrite], list[int]]:
        """Return writes as they are sent, as the book has them, and numbers of rows of the ordered table."""
        self._number += 1
        text, number = f"t{self._number}", -self._number
        whole, part = {"a": text, "b": number}, {"b": number}
        book, writes = self.story.book, list[TableWrite]()
        sent: list[SentWrite] = []
        for keys, row, kind in ((planned.whole, whole, WriteKind.ROWS), (planned.updated, part, WriteKind.UPDATE)):
            if keys:
                writes.append(TableWrite(NAME, kind, GivenRows([{"id": key, **row} for key in keys])))
                known = row if kind is WriteKind.UPDATE else {**dict.fromkeys(COLUMNS), **row}
                sent.append(book.sent(dict.fromkeys(keys, known), is_update=kind is WriteKind.UPDATE))
        if planned.deleted:
            writes.append(TableWrite(NAME, WriteKind.DELETE, GivenRows([{"id": key} for key in planned.deleted])))
            sent.append(book.sent(dict.fromkeys(planned.deleted), is_update=False))
        numbers = [self._number * 100 + at for at in range(len(planned.logged))]
        if numbers:
            rows = [
                {"number": one, "$tablet_index": tablet} for one, tablet in zip(numbers, planned.logged, strict=True)
            ]
            writes.append(TableWrite(LOG, WriteKind.ROWS, GivenRows(rows)))
        return writes, sent, numbers

    async def _commit(self, name: str, writes: Sequence[TableWrite]) -> CommittedTransaction | None:
        """Send a commit until its outcome is known; None: it was not, and will never be, performed."""
        is_doubtful = False
        async with asyncio.timeout(SETTLES_S):
            while True:
                try:
                    self._check_up()
                    return await transactions.commit(self.story.caller, name, writes)
                except (NotServed, ShardLost):
                    is_doubtful = True
                except REFUSED as refusal:
                    code = getattr(refusal, "code", "")
                    if code in _NEVER or (code != _UNKNOWN and not is_doubtful):
                        return None
                    is_doubtful = True
                await asyncio.sleep(TRY_AGAIN_S)

    async def _change_log(self, change: MountChange) -> None:
        try:
            await change_state(self.story.caller, LOG, change)
        except (ShardLost, *REFUSED):
            return

    def _check_up(self) -> None:
        if not self.story.node.is_up:
            raise NotServed
