"""Resharding of sorted tables: other tablets take the place of some that are unmounted (D.3).

    planned --new tablets made, chunks copied or rewritten into them--> filled
            --the scheme names them: one commit, which decides--> served; the tablets before are removed
            --refused, lost before that--> the table has the tablets it had, and the new ones are removed

A chunk that lies within one new range is copied as it is. One that lies across a border is rewritten by a worker, with
all its versions. Decisions of transactions, which are finished, go to the first new tablet. What a crash leaves of new
tablets is removed by the next start, since nothing names them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.kv.commands import INLINE, Command, Concat, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.tablets.scheme_state import stored_cells
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.storage.tablets.tablet import TabletType
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.chunk_records import ChunkRecord
from pqbroker.tables.serving.merging import (
    Merge,
    MergeFailed,
    MergeInput,
    MergeRules,
    MergeTablets,
    merge_document,
)
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.row_transactions import RowTransactions
from pqbroker.tables.serving.share import SortedShare
from pqbroker.tables.serving.stored_keys import (
    CHUNK_CHANNEL,
    FACTS_KEY,
    LOG_KEYS,
    chunk_data_key,
    chunk_key,
    piece_key,
)
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.serving.tablet_facts import TabletFacts
from pqbroker.tables.sorted.picking.pivots import KeySample, choose_pivots

CHUNK_COPY_BYTES = 1 << 20
"""Bytes of a chunk that are copied by one request."""
DECISIONS_AT_ONCE = 1_000
"""Decisions of transactions that are copied by one request."""


class ReshardPlan(NamedTuple):
    """Tablets `first` to `last` of a table become those that begin with these pivots. A tablet whose range stays is
    kept."""

    first: int
    last: int
    pivots: Sequence[bytes]
    copied_bytes: int
    rewritten_bytes: int


@dataclass(frozen=True, slots=True)
class _NewTablet:
    """One new tablet, filled before anything names it."""

    tablet_id: TabletId
    cell: CellId
    kv: KeyValueTablet
    pivot: bytes
    end: bytes | None


def plan_reshard(table: SortedTable, first: int, last: int, pivots: Sequence[bytes]) -> ReshardPlan:
    """Return what a reshard would do. TableError INVALID_PIVOTS, WRONG_STATE, TRANSACTION_UNDER_WAY."""
    record = table.record
    if pivots[0] != record.pivots[first]:
        text = "the first of pivot_keys is not the pivot of the first tablet that is resharded"
        raise TableError("INVALID_PIVOTS", text, "Give that one first; …/tablets shows it.")
    end = _end(record, last)
    if end is not None and pivots[-1] >= end:
        text = f"the last of pivot_keys is not below the pivot of tablet {last + 1}"
        raise TableError("INVALID_PIVOTS", text, "Give pivots within the range, or reshard more tablets.")
    for index in range(first, last + 1):
        _check_closed(table, index)
    _check_none_moves(table)
    copied = rewritten = 0
    ranges = _ranges(pivots, end)
    for index in range(first, last + 1):
        if (record.pivots[index], _end(record, index)) in ranges:
            continue
        for chunk in table.tablets[index].structure.chunks.values():
            if any(_holds(within, chunk) for within in ranges):
                copied += chunk.record.size
            else:
                rewritten += chunk.record.size
    return ReshardPlan(first, last, pivots, copied, rewritten)


async def pivots_for_count(table: SortedTable, first: int, last: int, count: int) -> list[bytes]:
    """Return pivots as `pivots_for`; a mounted tablet is refused before it is read: raises as `plan_reshard` too."""
    plan_reshard(table, first, last, [table.record.pivots[first]])
    return await pivots_for(table, first, last, count)


async def pivots_for(table: SortedTable, first: int, last: int, count: int) -> list[bytes]:
    """Return the pivots of `count` tablets of about equal size, by samples of the chunks. TableError INVALID_RESHARD;
    ChunkDamaged."""
    samples: list[KeySample] = []
    for index in range(first, last + 1):
        tablet = table.tablets[index]
        for chunk in tablet.structure.chunks.values():
            found = await chunk.read_index(tablet.kv)
            samples += [KeySample(bytes.fromhex(key), weight) for key, weight in found.facts.samples]
    pivot = table.record.pivots[first]
    chosen = choose_pivots(samples, count, pivot, _end(table.record, last))
    if len(chosen) < count - 1:
        text = f"the rows have keys for {len(chosen) + 1} tablets by their samples, and tablet_count is {count}"
        raise TableError("INVALID_RESHARD", text, "Give pivot_keys, or fewer tablets.")
    return [pivot, *chosen]


class ChunkMoves:
    """Chunks of tablets that are replaced, moved into others; one for each opening of the node's cells."""

    def __init__(self, cells: OpenCells, share: SortedShare) -> None:
        self._cells = cells
        self._share = share

    async def fill(
        self, table: SortedTable, plan: ReshardPlan, tablets: Sequence[TabletId], homes: Sequence[CellId]
    ) -> None:
        """Make the new tablets, with these ids and cells, and fill them. TableError RESHARD_FAILED, WRONG_STATE;
        CommitRefused, ShardLost."""
        record = table.record
        ranges = _ranges(plan.pivots, _end(record, plan.last))
        before = _kept(record, plan)
        given = iter(zip(tablets, homes, strict=True))
        new: dict[int, _NewTablet] = {}
        for number, (pivot, end) in enumerate(ranges):
            if (pivot, end) not in before:
                new[number] = await self._made(table, *next(given), pivot, end)
        for index in range(plan.first, plan.last + 1):
            if (record.pivots[index], _end(record, index)) not in ranges:
                await self._move_chunks(table.tablets[index], ranges, new)
                _check_closed(table, index)  # else it may be lost, and its decisions unknown
                await _copy_decisions(table.tablets[index].transactions, new[min(new)].kv)
        if plan.first == 0 and 0 in new:  # the first tablet keeps the progress of what feeds the table
            for request in table.tablets[0].progress.requests():
                await new[0].kv.execute(request)

    async def _made(
        self, table: SortedTable, tablet_id: TabletId, cell: CellId, pivot: bytes, end: bytes | None
    ) -> _NewTablet:
        host = self._cells.host(cell)
        if host is None:
            text = f"cell {cell} is not open"
            raise TableError("RESHARD_FAILED", text, "GET /v1/cells, or `pqbroker cell list`, shows the cause.")
        await host.cell.create_tablets([(tablet_id, TabletType.SORTED, table.record.table_id.hex())])
        storage = host.cell.storage(tablet_id)
        kv = KeyValueTablet(
            storage, inline_bytes_max=self._share.settings.inline_bytes_max, clock=self._share.time.clock
        )
        await kv.start()
        return _NewTablet(tablet_id, cell, kv, pivot, end)

    async def _move_chunks(
        self, tablet: SortedTablet, ranges: Sequence[tuple[bytes, bytes | None]], new: Mapping[int, _NewTablet]
    ) -> None:
        """Copy or rewrite the chunks of a tablet that is replaced. Numbers of new chunks count up in each tablet."""
        numbers = {number: len(list(one.kv.keys(b"c", b"d"))) for number, one in new.items()}
        for chunk in list(tablet.structure.chunks.values()):
            if chunk.number not in tablet.structure.chunks:  # the tablet was mounted, and compacted
                raise _changed(tablet.config.table)
            within = next((number for number, each in enumerate(ranges) if _holds(each, chunk)), None)
            if within is None:
                staged = await self._rewritten(tablet, chunk, ranges, new)
            else:
                staged = {within: [(chunk.record, await self._copied(tablet, chunk, new[within].kv))]}
            for number, found in staged.items():
                for record, pieces in found:
                    numbers[number] += 1
                    await _name(new[number].kv, numbers[number], record, pieces)
        for one in new.values():
            value = TabletFacts(max(_retained(one.kv), tablet.facts.retained_timestamp)).encode()
            await one.kv.execute([Write(FACTS_KEY, [value], len(value), INLINE)])

    async def _copied(self, tablet: SortedTablet, chunk: OpenChunk, target: KeyValueTablet) -> list[bytes]:
        keys = []
        for number, position in enumerate(range(0, chunk.record.size, CHUNK_COPY_BYTES)):
            size = min(CHUNK_COPY_BYTES, chunk.record.size - position)
            (buffers,) = await tablet.kv.read([(chunk_data_key(chunk.number), position, size)])
            await self._share.rate.take(size)
            key = piece_key(1, number)
            await target.execute([Write(key, buffers, size, CHUNK_CHANNEL)])
            keys.append(key)
        return keys

    async def _rewritten(
        self, tablet: SortedTablet, chunk: OpenChunk, ranges: Sequence[tuple[bytes, bytes | None]],
        new: Mapping[int, _NewTablet],
    ) -> dict[int, list[tuple[ChunkRecord, Sequence[bytes]]]]:
        touched = [number for number, within in enumerate(ranges) if _touches(within, chunk)]
        rules = MergeRules(pivots=[ranges[number][0] for number in touched[1:]])
        samples_max = tablet.config.attributes.samples_per_partition
        document = merge_document(tablet.config.schema, self._share.settings, rules, samples_max)
        targets = [new[number].kv for number in touched]
        inputs = [MergeInput("chunk", chunk_data_key(chunk.number))]
        try:
            merged = await Merge(self._share, MergeTablets(tablet.kv, targets), 1, inputs, document).run()
        except MergeFailed as failure:
            text = f"chunk {chunk.number} of {tablet.name} cannot be rewritten: {failure.message}"
            raise TableError("RESHARD_FAILED", text, failure.cure) from None
        found: dict[int, list[tuple[ChunkRecord, Sequence[bytes]]]] = {}
        for facts, pieces in merged.chunks:
            record = ChunkRecord.made(facts, chunk.record.created_ms, chunk.record.revision)
            found.setdefault(touched[facts["partition"]], []).append((record, pieces))
        return found


async def _copy_decisions(transactions: RowTransactions, kv: KeyValueTablet) -> None:
    """Keep decisions for clients that send their commit again. CommitRefused, ShardLost."""
    commands = [transactions.decision_command(decision) for decision in transactions.decisions.values()]
    for begin in range(0, len(commands), DECISIONS_AT_ONCE):
        await kv.execute(commands[begin : begin + DECISIONS_AT_ONCE])


async def _name(kv: KeyValueTablet, number: int, record: ChunkRecord, pieces: Sequence[bytes]) -> None:
    value = record.encode()
    commands: list[Command] = [
        Concat(tuple(pieces), chunk_data_key(number)), Write(chunk_key(number), [value], len(value), INLINE)
    ]  # fmt: skip
    await kv.execute(commands)


def _retained(kv: KeyValueTablet) -> int:
    entry = kv.entry(FACTS_KEY)
    return 0 if entry is None else TabletFacts.decode(bytes(entry.value)).retained_timestamp


def resharded(
    record: SortedTableRecord, plan: ReshardPlan, new: Sequence[TabletId], new_homes: Sequence[CellId]
) -> SortedTableRecord:
    """Return the record with the new tablets in their cells; these are unmounted: until they are mounted what is set
    acts."""
    ranges, before = _ranges(plan.pivots, _end(record, plan.last)), _kept(record, plan)
    origins: list[int | None] = [before.get(within) for within in ranges]
    given = iter(zip(new, new_homes, strict=True))
    placed = [
        next(given) if origin is None else (record.tablets[origin], record.cell_of(origin)) for origin in origins
    ]
    tablets, homes = [tablet_id for tablet_id, _ in placed], [cell for _, cell in placed]
    head, tail = range(plan.first), range(plan.last + 1, len(record.tablets))
    cells = [*map(record.cell_of, head), *homes, *map(record.cell_of, tail)]
    states = record.states
    unmounted = (MountState.UNMOUNTED.value,) * len(ranges)
    return replace(
        record,
        tablets=(*record.tablets[: plan.first], *tablets, *record.tablets[plan.last + 1 :]),
        cells=stored_cells(cells),
        pivots=(*record.pivots[: plan.first], *plan.pivots, *record.pivots[plan.last + 1 :]),
        states=(*states[: plan.first], *unmounted, *states[plan.last + 1 :]),
        mounted=record.mounted.rearranged([*head, *origins, *tail], record.attributes),
    )


def _kept(record: SortedTableRecord, plan: ReshardPlan) -> Mapping[tuple[bytes, bytes | None], int]:
    """Return the tablets of a plan by their ranges: one whose range stays is kept."""
    return {(record.pivots[index], _end(record, index)): index for index in range(plan.first, plan.last + 1)}


class Filling(Protocol):
    """Makes the new tablets of a reshard, at the node that runs those before."""

    def place(self, count: int) -> Sequence[CellId]:
        """Return the cells of new tablets. NoHealthyCell."""

    async def fill(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        """Make the new tablets, with these ids and cells, and fill them. Raises as `ChunkMoves.fill`."""

    async def check(self) -> None:
        """Check that the table is what they were made of, while it cannot change. TableError WRONG_STATE."""

    async def drop(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        """Begin to remove new tablets, which nothing names."""


class FillingHere:
    """The `Filling` of tablets that this node runs."""

    def __init__(self, cells: OpenCells, share: SortedShare, table: SortedTable, plan: ReshardPlan) -> None:
        self._cells = cells
        self._share = share
        self._table = table
        self._plan = plan
        self._before = table.record
        self.rows = rows_of(table, plan)
        """Tablets that are replaced, and their chunks, as of the begin."""

    def place(self, count: int) -> Sequence[CellId]:
        return self._cells.place(self._before.bundle, count, lambda cell: self._cells.host(cell) is not None)

    async def fill(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        await ChunkMoves(self._cells, self._share).fill(self._table, self._plan, tablets, homes)

    async def check(self) -> None:
        check_unchanged(self._table, self._plan, self._before, self.rows)

    async def drop(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        for tablet_id, home in zip(tablets, homes, strict=True):
            host = self._cells.host(home)
            if host is not None:
                host.reclaim([tablet_id])


def rows_of(table: SortedTable, plan: ReshardPlan) -> Sequence[tuple[TabletId, frozenset[int]]]:
    """Return the tablets that a plan replaces, each with its chunks: equal while nothing was written to them."""
    indexes = range(plan.first, plan.last + 1)
    return [(table.record.tablets[index], frozenset(table.tablets[index].structure.chunks)) for index in indexes]


def check_record(table: SortedTable, plan: ReshardPlan, before: SortedTableRecord) -> None:
    """TableError WRONG_STATE if the record is not any more what new tablets were made of, or tablets are mounted."""
    record = table.record
    is_same = (record.tablets, record.pivots, record.columns) == (before.tablets, before.pivots, before.columns)
    if not is_same:
        raise _changed(record.name)
    for index in range(plan.first, plan.last + 1):
        if table.state_of(index) is not MountState.UNMOUNTED:
            raise _changed(record.name)
    _check_none_moves(table)


def check_unchanged(
    table: SortedTable, plan: ReshardPlan, before: SortedTableRecord, rows: Sequence[tuple[TabletId, frozenset[int]]]
) -> None:
    """TableError WRONG_STATE if the table is not any more what its new tablets were made of."""
    check_record(table, plan, before)
    check_rows(table, plan, rows)


def check_rows(table: SortedTable, plan: ReshardPlan, rows: Sequence[tuple[TabletId, frozenset[int]]]) -> None:
    """TableError WRONG_STATE if tablets that are replaced have other rows, or are mounted."""
    if rows_of(table, plan) != rows:
        raise _changed(table.record.name)
    for index in range(plan.first, plan.last + 1):
        _check_closed(table, index)


def _changed(name: str) -> TableError:
    text = f"{name} was changed while its rows were copied"
    return TableError("WRONG_STATE", text, "Leave its tablets unmounted, and give the command again.")


def new_count(table: SortedTable, plan: ReshardPlan) -> int:
    """Return how many tablets a plan makes."""
    record = table.record
    kept = _kept(record, plan)
    return sum(within not in kept for within in _ranges(plan.pivots, _end(record, plan.last)))


def check_unmounted(table: SortedTable, index: int) -> None:
    """TableError WRONG_STATE for a tablet that is not unmounted."""
    state = table.state_of(index)
    if state is not MountState.UNMOUNTED:
        text = f"tablet {index} is {state.value}, and reshard replaces it"
        raise TableError("WRONG_STATE", text, "Unmount the tablets of the range first.")


def _check_none_moves(table: SortedTable) -> None:
    """Check that no tablet is on its way to a mount state: a reshard may give it another number."""
    if table.moving:
        index = min(table.moving)
        text = f"tablet {index} is {table.state_of(index).value}, and reshard may give it another number"
        raise TableError("WRONG_STATE", text, "Give the command again when it is there.")


def _check_closed(table: SortedTable, index: int) -> None:
    """Check that a tablet is unmounted, has all its rows in chunks, and no transaction depends on it."""
    check_unmounted(table, index)
    tablet = table.tablets[index]
    if tablet.unreadable is not None or not tablet.is_loaded:
        raise TableError("TABLET_NOT_OPEN", f"{tablet.name} is not open", "GET /v1/cells shows the cause.")
    if (refusal := tablet.transactions.under_way(with_decisions=True)) is not None:
        raise refusal
    if next(tablet.kv.keys(LOG_KEYS, LOG_KEYS + b"\xff"), None) is not None:
        text = f"tablet {index} has rows that are in no chunk yet, since it was unmounted by force"
        raise TableError("WRONG_STATE", text, "Mount it, and unmount it without force.")


def _end(record: SortedTableRecord, index: int) -> bytes | None:
    return record.pivots[index + 1] if index + 1 < len(record.pivots) else None


def _ranges(pivots: Sequence[bytes], end: bytes | None) -> list[tuple[bytes, bytes | None]]:
    return list(zip(pivots, [*pivots[1:], end], strict=True))


def _holds(within: tuple[bytes, bytes | None], chunk: OpenChunk) -> bool:
    pivot, end = within
    return chunk.first_key >= pivot and (end is None or chunk.last_key < end)


def _touches(within: tuple[bytes, bytes | None], chunk: OpenChunk) -> bool:
    pivot, end = within
    return chunk.last_key >= pivot and (end is None or chunk.first_key < end)

