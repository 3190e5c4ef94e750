"""Three sorted tablets over two cells in memory, and commits over them step by step, as the coordinator takes them.

Tablets 0 and 1 live in cell 0, tablet 2 in cell 1. A row is a number and its value.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from pqbroker.conf.sorted_attributes import SortedAttributes, sorted_in_force
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.serving.timestamps import NodeTime, without_scheme
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.counters import KeyValueCounters
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.joint_request import TabletCommands, execute_together
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import TabletType
from pqbroker.tables.serving.background import Background
from pqbroker.tables.serving.row_transactions import RowTransactions
from pqbroker.tables.serving.share import SortedSettings, SortedShare
from pqbroker.tables.serving.tablet import SortedTablet, TabletConfig
from pqbroker.tables.serving.transacted_rows import RowsPart
from pqbroker.tables.serving.writes import write
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.rows import encode_deletes, encode_key, encode_rows
from pqbroker.tables.sorted.schema import read_sorted_schema
from tests.simulation.inline_workers import inline_workers
from tests.simulation.loop import VirtualLoop

FIRST_ID: Final = 70_000
CELL_OF: Final = (0, 0, 1)
KEY: Final = {"name": "id", "type": "int64", "sort_order": "ascending"}
VALUE: Final = {"name": "value", "type": "int64"}
MORE: Final = {"name": "more", "type": "int64"}
SCHEMA: Final = read_sorted_schema([KEY, VALUE], 100)
WIDER: Final = read_sorted_schema([KEY, VALUE, MORE], 100)
SETTINGS: Final = SortedSettings(
    inline_bytes_max=8192, columns_max=100, stores_bytes_max=64 << 20, blocks_bytes_max=16 << 20, flushes_max=4,
    compactions_max=4, partitionings_max=4, merge_rate=1 << 30, memory_bytes_max=1 << 30, chunk_bytes_max=1 << 30,
    backoff_ms=1000, worker_idle_s=1.0,
)  # fmt: skip
BEGUN_MS: Final = 1_700_000_000_000


def rows_of(values: Mapping[int, int | None]) -> list[NewRow]:
    """Return rows; None is a delete."""
    written = encode_rows(SCHEMA, [{"id": key, "value": v} for key, v in values.items() if v is not None], "rows",
                          is_update=False)
    deleted = encode_deletes(SCHEMA, [{"id": key} for key, v in values.items() if v is None], "keys")
    return [*written, *deleted]


def key_of(key: int) -> bytes:
    return encode_key(SCHEMA, {"id": key}, "key")


class CommitBench:
    """The tablets, and what they stand on."""

    def __init__(self, attributes: Mapping[str, Any] | None = None) -> None:
        self.engines = [MemoryEngine(1 << 30), MemoryEngine(1 << 30)]
        self.cells: list[Cell] = []
        self.begun_s = asyncio.get_running_loop().time()
        self.time = NodeTime(self.now_ms, without_scheme())
        self.share = SortedShare(self.time, SETTINGS, KeyValueCounters())
        set_attributes: SortedAttributes = sorted_in_force(attributes or {})
        self.tablets = [
            SortedTablet(
                TabletConfig(f"tablet {n} of t", "t", FIRST_ID + n, SCHEMA, set_attributes, b"", None, 0), self.share
            )
            for n in range(len(CELL_OF))
        ]
        for tablet in self.tablets:
            tablet.is_mounted = True
        self.background = Background(self.share, lambda: [(tablet, False) for tablet in self.tablets])

    def now_ms(self) -> int:
        return BEGUN_MS + int((asyncio.get_running_loop().time() - self.begun_s) * 1000)

    async def open(self) -> None:
        for number, engine in enumerate(self.engines):
            cell = await Cell.open(engine)
            self.cells.append(cell)
            wanted = [TabletId(FIRST_ID + n) for n, of in enumerate(CELL_OF) if of == number]
            await cell.create_tablets([(tablet, TabletType.SORTED, "t") for tablet in wanted])
        await self._start(0)
        await self._start(1)

    async def close(self) -> None:
        await self.background.stop()
        for tablet in self.tablets:
            await tablet.stop()
        for cell in self.cells:
            await cell.close()

    def crash(self, cell: int, durable: int = 0) -> None:
        """Lose a cell. Of the commits on their way `durable` have become so."""
        self.engines[cell].crash(durable=durable)
        for number in self.of_cell(cell):
            self.tablets[number].lose()

    async def reopen(self, cell: int) -> None:
        for number in self.of_cell(cell):
            await self.background.leave(self.tablets[number])
        self.cells[cell] = await Cell.open(self.engines[cell])
        await self._start(cell)

    async def _start(self, cell: int) -> None:
        for number in self.of_cell(cell):
            await self.tablets[number].start(self.cells[cell].storage(TabletId(FIRST_ID + number)))
            await self.tablets[number].mounted()

    async def restart_tablet(self, number: int) -> None:
        """Restart one tablet while its cell lives."""
        cell = self.cells[CELL_OF[number]]
        await self.tablets[number].hold()
        await self.tablets[number].start(await cell.restart_tablet(TabletId(FIRST_ID + number)))

    def of_cell(self, cell: int) -> list[int]:
        return [number for number, of in enumerate(CELL_OF) if of == cell]

    def write(self, number: int, values: Mapping[int, int | None]) -> Outcome[int]:
        return write([(self.tablets[number].writes, rows_of(values))])

    def write_both(self, first: Mapping[int, int | None], second: Mapping[int, int | None]) -> Outcome[int]:
        """Write rows of tablets 0 and 1."""
        return write([(self.tablets[0].writes, rows_of(first)), (self.tablets[1].writes, rows_of(second))])

    async def read(self, number: int, key: int, timestamp: int | None = None) -> int | None:
        """Return the value of a row as the service of lookups finds it."""
        tablet, encoded = self.tablets[number], key_of(key)
        if timestamp is None:
            if tablet.has_locks:
                await tablet.see_committed([encoded])
            found = await tablet.lookup(tablet.visible).find(encoded)
        else:
            await tablet.settle(timestamp, [encoded])
            found = await tablet.lookup(timestamp).find(encoded)
        return None if found is None else found[0]

    async def read_all(self, number: int, timestamp: int = TIMESTAMP_MAX) -> dict[int, int]:
        """Return all rows, as a prefix lookup finds them."""
        tablet = self.tablets[number]
        await tablet.settle(timestamp)
        found = await tablet.lookup(timestamp).find_range(b"", None)
        return {SCHEMA.decode_key(key)[0]: values[0] for key, values in found}

    async def flush(self, number: int) -> None:
        await self.background.flush(self.tablets[number])

    @property
    def last(self) -> int:
        """Return the last timestamp that was given."""
        return self.time.timestamps.rule.last

    def give(self) -> int:
        return self.time.timestamps.rule.give(self.now_ms())

    def participant(self, number: int) -> RowTransactions:
        found = self.tablets[number].participant(0)
        assert isinstance(found, RowTransactions)
        return found


Story = Callable[[CommitBench], Coroutine[Any, Any, None]]


class CommitByHand:
    """One commit; the first tablet of `rows` is its home."""

    def __init__(
        self, bench: CommitBench, name: str, rows: Mapping[int, Mapping[int, int | None]], start: int | None = None
    ) -> None:
        self.bench = bench
        self.transaction = TransactionId(name.encode().ljust(16, b"."))
        self.parts = {number: RowsPart(bench.tablets[number], rows_of(some), start) for number, some in rows.items()}
        self.home = next(iter(rows))
        self.timestamp: int | None = None
        self.elsewhere = [number for number in rows if CELL_OF[number] != CELL_OF[self.home]]

    @property
    def own(self) -> list[int]:
        return [number for number in self.parts if number not in self.elsewhere]

    async def enter(self, numbers: Sequence[int] | None = None) -> None:
        """Enter parts, and return when all hold. Raises why one never will."""
        wanted = list(self.parts) if numbers is None else numbers
        turns: dict[int, asyncio.Future[None]] = {}
        home = ParticipantId(TabletId(FIRST_ID + self.home))
        for number in self.elsewhere:
            head = PreparedHead(self.transaction, home, self.bench.last, self.bench.now_ms())
            self.parts[number].prepares(head)
        for number in wanted:
            turns[number] = asyncio.get_running_loop().create_future()
            self.parts[number].enter(_teller(turns[number]))
        await asyncio.gather(*turns.values())

    def refusals(self) -> list[BaseException]:
        return [refusal for part in self.parts.values() if (refusal := part.refusal()) is not None]

    def leave(self) -> None:
        for part in self.parts.values():
            part.leave()

    async def prepare(self) -> None:
        """Prepare the parts elsewhere, which hold. CommitRefused, ShardLost."""
        for number in self.elsewhere:
            part = self.parts[number]
            await part.encode(None)
            request = execute_together([(part.participant.kv, part.commands(None))])
            request.add_done_callback(lambda done, part=part: part.told(done.exception()))  # type: ignore[misc]
            await request

    async def decide(self) -> int:
        """Give the timestamp, and have the decision durable with the rows beside it. CommitRefused, ShardLost."""
        timestamp = self.timestamp = self.bench.give()
        for part in self.parts.values():
            part.participant.deciding(self.transaction, timestamp)
        for number in self.own:
            await self.parts[number].encode(timestamp)
        commands: list[TabletCommands] = []
        for number in self.own:
            part = self.parts[number]
            extra = [part.participant.decision_command(self.decision)] if number == self.home else []
            commands.append((part.participant.kv, [*part.commands(timestamp), *extra]))
        applied: list[Outcome[None]] = []

        def told(request: Outcome[None]) -> None:
            applied.extend(self.parts[number].told(request.exception()) for number in self.own)
            if request.exception() is None:
                self.bench.participant(self.home).take_decision(self.decision)

        request = execute_together(commands)
        request.add_done_callback(told)
        await request
        for outcome in applied:
            await outcome
        return timestamp

    @property
    def decision(self) -> CommitDecision:
        assert self.timestamp is not None
        others = tuple(ParticipantId(TabletId(FIRST_ID + number)) for number in self.elsewhere)
        count = sum(part.row_count for part in self.parts.values())
        return CommitDecision(self.transaction, self.timestamp, self.bench.now_ms(), b"d" * 16, count, others)

    async def finish(self) -> None:
        """Have the rows elsewhere written, and the decision finished. CommitRefused, ShardLost."""
        for number in self.elsewhere:
            await self.bench.participant(number).finish(self.transaction, self.timestamp)
        home = self.bench.participant(self.home)
        await home.kv.execute([home.decision_command(self.decision.finished)])
        home.take_decision(self.decision.finished)

    async def until_prepared(self) -> "CommitByHand":
        await self.enter()
        assert self.refusals() == []
        await self.prepare()
        return self

    async def run(self) -> int:
        """Perform all of it; return its timestamp."""
        await self.until_prepared()
        timestamp = await self.decide()
        await self.finish()
        return timestamp


def _teller(turn: "asyncio.Future[None]") -> Callable[[BaseException | None], None]:
    def told(error: BaseException | None) -> None:
        if error is None:
            turn.set_result(None)
        else:
            turn.set_exception(error)

    return told


def on_bench(story: Story) -> Callable[[], None]:
    """Have a test run on a loop whose time is a number; merges run in this process."""

    def test() -> None:
        play(story)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def play(story: Story, attributes: Mapping[str, Any] | None = None) -> None:
    """Play a story over tablets with these attributes."""

    async def run() -> None:
        bench = CommitBench(attributes)
        await bench.open()
        try:
            await story(bench)
        finally:
            await bench.close()

    with inline_workers(), asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: 0.002)) as runner:
        runner.run(run())
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        assert loop.defects == []
