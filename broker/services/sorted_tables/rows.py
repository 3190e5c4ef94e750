"""Rows of sorted tables, written and looked up."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.tablets_away import tablets_away
from pqbroker.broker.services.tables.arrow_rows import encode_sorted_arrow
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange
from pqbroker.broker.services.tables.inserting import GivenRows, check_participants
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.lookups import FOUND_KEYS_MAX, ChunkReplaced, Lookup, RangeTooLarge
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.serving.writes import ROWS_OF_TURN, MovedApart, write
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.rows import (
    check_count,
    encode_deletes,
    encode_key,
    encode_prefix,
    encode_rows,
    shown_columns,
)
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.shown_columns import ShownColumns

FEW_ROWS: Final = 50
"""Rows that are encoded in the loop's thread: a millisecond."""

RANGE_ATTEMPTS_MAX: Final = 10
"""Tries of the lookup of a range whose chunks are merged meanwhile."""
KEYS_AT_ONCE: Final = 100
"""Keys that are looked up before the loop's other work has its turn: a few milliseconds."""


class WrittenRows(NamedTuple):
    """The outcome of a write."""

    row_count: int
    timestamp: int
    """The timestamp of the commit; 0: there was no row."""


class RowsAway(Exception):
    """All rows of a write are for tablets that the node of this number runs, which writes them."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} runs all tablets that are written")
        self.node = node


async def insert_sorted(caller: TablesCaller, name: str, rows: GivenRows, *, is_update: bool) -> WrittenRows:
    """Write rows, which appear together or not at all; `is_update`: columns that a row leaves out stay as they were,
    else they are null.

    KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE, INVALID_ROW, INVALID_STREAM, TOO_MANY_ROWS, WRONG_STATE,
    TOO_MANY_PARTICIPANTS, TABLET_STARTING, TABLET_NOT_OPEN, TABLE_CHANGED, ROW_LOCK_CONFLICT; CommitRefused, ShardLost.
    RowsAway: nothing is written here.
    """
    table = find_sorted(caller, AclOperation.WRITE, name)
    schema = table.schema
    if isinstance(rows.items, bytes):
        async with rows.look:
            encoded = await encode_sorted_arrow(caller.node, schema, rows.items, is_update=is_update)
    else:
        encode = partial(encode_rows, schema, rows.items, rows.place, is_update=is_update)
        encoded = await encoded_in_time(rows, encode)
    return await _write(caller, table, schema, encoded)


async def delete_sorted_rows(caller: TablesCaller, name: str, keys: GivenRows) -> WrittenRows:
    """Delete the rows of keys, whether there are any or not. Raises as `insert_sorted`."""
    table = find_sorted(caller, AclOperation.WRITE, name)
    schema = table.schema
    encode = partial(encode_deletes, schema, keys.items, keys.place)
    return await _write(caller, table, schema, await encoded_in_time(keys, encode))


async def look_up(
    caller: TablesCaller, name: str, keys: Sequence[Any], timestamp: int | None, columns: Sequence[str] | None
) -> list[dict[str, Any] | None]:
    """Return the rows of keys in their order, None where there is none; `timestamp` None: as committed now. Columns:
    None for all.

    KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE, NO_COLUMN, INVALID_ROW, TOO_MANY_ROWS, WRONG_STATE,
    TABLET_STARTING, TABLET_NOT_OPEN, CHUNK_DAMAGED, LOOKUP_TOO_LARGE, READ_FAN_IN_EXCEEDED, ROW_LOCKED.
    """
    table = find_sorted(caller, AclOperation.READ, name)
    shown = shown_columns(table.schema, columns)
    wanted, indexes = await _located(table, keys)
    tablets = {index: _readable(table, index) for index in {*indexes}}
    metrics = caller.node.metrics.tables
    metrics.lookups += 1
    metrics.looked_up_keys += len(wanted)
    answer = _Answer(shown, caller.node.settings.http_answer_bytes_max)
    if timestamp is None:
        while locked := {index: tablet for index, tablet in tablets.items() if tablet.has_locks}:
            if not await _have_waited(locked, wanted, indexes):
                break
        lookups, oldest = {}, TIMESTAMP_MAX
        for index, tablet in tablets.items():
            visible = tablet.visible
            lookups[index], oldest = tablet.lookup(visible), min(oldest, visible)
        reads = table.tablets[0].share.reads
        reads.open(oldest)
        try:
            await _find_all(answer, wanted, indexes, lookups)
        finally:
            reads.close(oldest)
        return answer.rows
    for index, tablet in tablets.items():
        tablet.check_timestamp(timestamp)
        await tablet.settle(timestamp, _of_tablet(wanted, indexes, index) if tablet.has_locks else ())
    for tablet in tablets.values():
        tablet.check()  # it may have been unmounted meanwhile
    lookups = {index: tablet.lookup(timestamp) for index, tablet in tablets.items()}
    await _find_all(answer, wanted, indexes, lookups)
    for tablet in tablets.values():
        tablet.check_timestamp(timestamp)  # a clean-up may have ended meanwhile
    return answer.rows


async def _have_waited(
    tablets: Mapping[int, SortedTablet], keys: Sequence[bytes], indexes: Sequence[int]
) -> bool:
    """Wait until all that is acknowledged of keys is found in their tablets, which have locked rows; False: nothing was
    to be waited for, so that it is so of all of them now. TableError ROW_LOCKED."""
    return any([
        await tablet.see_committed(_of_tablet(keys, indexes, index)) for index, tablet in tablets.items()
    ])  # fmt: skip


def _of_tablet(keys: Sequence[bytes], indexes: Sequence[int], index: int) -> list[bytes]:
    """Return the keys that a tablet has; `indexes`: the tablet of each."""
    return [key for key, of in zip(keys, indexes, strict=True) if of == index]


async def _find_all(
    answer: "_Answer", keys: Sequence[bytes], indexes: Sequence[int], lookups: Mapping[int, Lookup]
) -> None:
    """Put the rows of keys into an answer; `indexes`: the tablet of each."""
    for number, (key, index) in enumerate(zip(keys, indexes, strict=True)):
        if number % KEYS_AT_ONCE == KEYS_AT_ONCE - 1:
            await asyncio.sleep(0)
        values = await lookups[index].find(key)
        answer.add(key, values)


class _Answer:
    """Rows of a lookup as they are shown, with a limit of their bytes."""

    def __init__(self, shown: ShownColumns, bytes_max: int) -> None:
        self.rows: list[dict[str, Any] | None] = []
        self._shown = shown
        self._bytes_max = bytes_max
        self._size = self._count = 0

    def add(self, key: bytes, values: Sequence[Any] | None) -> None:
        """Add the row of a key, None where there is none. TableError LOOKUP_TOO_LARGE, but for the first row."""
        if values is None:
            self.rows.append(None)
            return
        self._size += self._shown.size_of(key, values)
        self._count += 1
        if self._size > self._bytes_max and self._count > 1:
            limit = f"pqbroker.http.answer.bytes.max = {self._bytes_max}"
            text = f"rows of the first {len(self.rows) + 1} keys have more than {limit} bytes"
            raise TableError("LOOKUP_TOO_LARGE", text, "Ask for fewer keys at once, or name the columns that you need.")
        self.rows.append(self._shown.show(key, values))


async def _located(table: SortedTable, keys: Sequence[Any]) -> tuple[list[bytes], list[int]]:
    """Return the encoded form of each key, and its tablet. TableError INVALID_ROW, TOO_MANY_ROWS."""
    check_count(keys, "keys")
    schema, pivots = table.schema, table.record.pivots
    if len(keys) <= FEW_ROWS:
        return _locate(schema, pivots, keys)
    encoded, indexes = await asyncio.to_thread(_locate, schema, pivots, keys)
    if table.record.pivots is not pivots:  # the table was resharded meanwhile
        indexes = [table.index_of(key) for key in encoded]
    return encoded, indexes


def _locate(schema: SortedSchema, pivots: Sequence[bytes], keys: Sequence[Any]) -> tuple[list[bytes], list[int]]:
    encoded, indexes = [], []
    for number, key in enumerate(keys):
        one = encode_key(schema, key, f"keys[{number}]")
        encoded.append(one)
        indexes.append(bisect_right(pivots, one) - 1)
    return encoded, indexes


async def tablets_of_keys(caller: TablesCaller, name: str, keys: Sequence[Any]) -> tuple[SortedTable, list[int]]:
    """Return a table that is read, and the tablet of each key. TableError INVALID_ROW, TOO_MANY_ROWS."""
    table = find_sorted(caller, AclOperation.READ, name)
    _, indexes = await _located(table, keys)
    return table, indexes


def tablets_of_prefix(caller: TablesCaller, name: str, prefix: Any) -> tuple[SortedTable, range]:
    """Return a table that is read, and the tablets whose keys may begin with a prefix. TableError INVALID_ROW."""
    table = find_sorted(caller, AclOperation.READ, name)
    first, end = encode_prefix(table.schema, prefix, "prefix")
    last = len(table.tablets) if end is None else bisect_left(table.record.pivots, end)
    return table, range(table.index_of(first), last)


class PrefixLookup(NamedTuple):
    """Keys that are looked up by the values of their first columns. `timestamp` and `columns` as `look_up` has them."""

    prefix: Any
    timestamp: int | None
    columns: Sequence[str] | None
    tablets: TabletRange = ALL_TABLETS
    """Tablets that are read, if they may have such keys."""


async def look_up_prefix(caller: TablesCaller, name: str, asked: PrefixLookup) -> list[dict[str, Any] | None]:
    """Return the rows whose keys begin with the values of the first key columns, in the order of their keys.

    KafkaError TOPIC_AUTHORIZATION_FAILED; TableError as `look_up`, and NO_TABLET, TOO_MANY_ROWS, TABLET_BUSY.
    """
    table, indexes = tablets_of_prefix(caller, name, asked.prefix)
    timestamp = asked.timestamp
    shown = shown_columns(table.schema, asked.columns)
    first, end = encode_prefix(table.schema, asked.prefix, "prefix")
    wanted = {*asked.tablets.among(name, len(table.tablets))}
    tablets = [_readable(table, index) for index in indexes if index in wanted]
    if not tablets:
        return []
    share = tablets[0].share
    at = timestamp
    if at is None:
        at = max(share.time.timestamps.rule.last, *(tablet.facts.retained_timestamp for tablet in tablets))
    share.reads.open(at)
    try:
        found: list[tuple[bytes, Sequence[Any]]] = []
        for tablet in tablets:
            found += await _in_tablet(tablet, at, (first, end))
            if len(found) > FOUND_KEYS_MAX:
                raise RangeTooLarge(f"more than {FOUND_KEYS_MAX} rows")
    except RangeTooLarge as excess:
        cure = "Give more key columns, or read the rows with SQL: POST /v1/sql."
        raise TableError("TOO_MANY_ROWS", f"prefix has {excess}", cure) from None
    finally:
        share.reads.close(at)
    answer = _Answer(shown, caller.node.settings.http_answer_bytes_max)
    for number, (key, values) in enumerate(found):
        if number % KEYS_AT_ONCE == KEYS_AT_ONCE - 1:
            await asyncio.sleep(0)
        answer.add(key, values)
    return answer.rows


async def _in_tablet(
    tablet: SortedTablet, timestamp: int, bounds: tuple[bytes, bytes | None]
) -> list[tuple[bytes, Sequence[Any]]]:
    """Return the rows of a range of keys, in order; chunks may be merged meanwhile."""
    for _ in range(RANGE_ATTEMPTS_MAX):
        await tablet.settle(timestamp)
        tablet.check()
        tablet.check_timestamp(timestamp)
        with suppress(ChunkReplaced):
            return await tablet.lookup(timestamp).find_range(*bounds)
    raise TableError("TABLET_BUSY", f"chunks of {tablet.name} are replaced again and again", "Try again.")


def _readable(table: SortedTable, index: int) -> SortedTablet:
    tablet = table.tablets[index]
    tablet.check()
    return tablet


async def encoded_in_time(rows: GivenRows, encode: Callable[[], list[NewRow]]) -> list[NewRow]:
    """Return encoded rows; many are encoded in a thread, a look at a time."""
    if len(rows.items) <= FEW_ROWS:
        return encode()
    async with rows.look:
        return await asyncio.to_thread(encode)


async def _write(caller: TablesCaller, table: SortedTable, schema: SortedSchema, rows: Sequence[NewRow]) -> WrittenRows:
    """Write rows that were encoded by a schema. TableError TABLE_CHANGED if it was changed meanwhile; RowsAway."""
    if not rows:
        return WrittenRows(0, 0)
    by_tablet = await split_by_tablet(table, rows)
    if table.schema is not schema:
        text = f"the schema of {table_path(table.record.name)} was changed while the rows were encoded"
        raise TableError("TABLE_CHANGED", text, "Send them again.")
    away = tablets_away(caller, table, by_tablet)
    cells = {table.record.cell_of(index) for index in by_tablet}
    if away and len(cells) == 1:
        raise RowsAway(*away)
    check_writable(caller, table, by_tablet)
    if len(cells) == 1:
        with suppress(MovedApart):
            parts = [(table.tablets[index].writes, some) for index, some in sorted(by_tablet.items())]
            return WrittenRows(len(rows), await write(parts))
    check_participants(caller.node.settings, len(by_tablet))
    apart = [table.part(index, some, None) for index, some in sorted(by_tablet.items())]
    decision = await caller.node.cell.current.commits.write(apart)
    return WrittenRows(len(rows), decision.timestamp)


async def split_by_tablet(table: SortedTable, rows: Sequence[NewRow]) -> Mapping[int, Sequence[NewRow]]:
    """Return the rows of each tablet, by its index; a thread takes many apart."""
    while True:
        pivots = table.record.pivots
        if len(pivots) == 1:
            return {0: rows}
        if len(rows) <= ROWS_OF_TURN:
            return _apart(pivots, rows)
        found = await asyncio.to_thread(_apart, pivots, rows)
        if table.record.pivots is pivots:
            return found


def _apart(pivots: Sequence[bytes], rows: Sequence[NewRow]) -> Mapping[int, Sequence[NewRow]]:
    found: dict[int, list[NewRow]] = defaultdict(list)
    for row in rows:
        found[bisect_right(pivots, row.key) - 1].append(row)
    return found


def check_writable(caller: TablesCaller, table: SortedTable, indexes: Collection[int]) -> None:
    """TableError WRONG_STATE unless all of the tablets that this node runs are mounted; and as
    `SortedTablet.check_writable`. Other nodes check theirs."""
    away = {index for some in tablets_away(caller, table, indexes).values() for index in some}
    for index in indexes:
        if index not in away:
            table.check_takes_rows(index)
