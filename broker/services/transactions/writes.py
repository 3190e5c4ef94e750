"""Writes of a transaction as parts of its commit: rows and keys of sorted tables, rows of ordered ones."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from json import JSONEncoder, dumps
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.sorted_tables.rows import encoded_in_time, split_by_tablet
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import find_typed
from pqbroker.broker.services.tables.inserting import GivenRows, batch_parts, check_participants, encode_rows
from pqbroker.pq.transactions.participants import CommitPart
from pqbroker.pq.transactions.stored_forms import DIGEST_BYTES
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.rows import encode_deletes, show_key
from pqbroker.tables.sorted.rows import encode_rows as encode_sorted_rows

_SHOWN: Final = JSONEncoder(sort_keys=True, separators=(",", ":"))


class WriteKind(StrEnum):
    """Kinds of writes, by the field that has their rows or keys."""

    ROWS = "rows"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Rows or keys to write to one table; `UPDATE` leaves columns as they are that a row leaves out."""

    table: str
    kind: WriteKind
    rows: GivenRows

    @property
    def items(self) -> Sequence[Any]:
        """Return rows or keys; they were not given in Arrow."""
        assert not isinstance(self.rows.items, bytes)
        return self.rows.items


def digest_of(writes: Sequence[TableWrite]) -> bytes:
    """Return what tells the writes of a commit from others."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for each in writes:
        digest.update(_SHOWN.encode([each.table, each.kind.value, each.items]).encode())
    return digest.digest()


def with_offsets(digest: bytes, offsets: Sequence[tuple[object, ...]]) -> bytes:
    """Return what tells a commit with offsets from others; without any it is the digest of its writes."""
    if not offsets:
        return digest
    stored = blake2b(digest, digest_size=DIGEST_BYTES)
    stored.update(dumps([list(each) for each in offsets], separators=(",", ":")).encode())
    return stored.digest()


async def parts_of(
    caller: TablesCaller, writes: Sequence[TableWrite], start_timestamp: int | None
) -> Sequence[CommitPart]:
    """Return the parts of a commit, one a tablet, in the order of tables and tablets.

    KafkaError as `find_topic`; TableError, among others TOO_MANY_ROWS_IN_TRANSACTION, TOO_MANY_PARTICIPANTS,
    WRONG_STATE, and those of rows that do not fit their schema.
    """
    settings = caller.node.settings
    count = sum(len(each.items) for each in writes)
    if count > settings.transaction_rows_max:
        text = f"{count} rows are written, and pqbroker.transaction.rows.max = {settings.transaction_rows_max}"
        raise TableError("TOO_MANY_ROWS_IN_TRANSACTION", text, "Write fewer rows in one transaction.")
    by_table: defaultdict[str, list[TableWrite]] = defaultdict(list)
    for each in writes:
        by_table[each.table].append(each)
    parts: list[CommitPart] = []
    for name, some in sorted(by_table.items()):
        if caller.node.cell.current.sorted_tables.get(name) is not None:
            parts += await _sorted_parts(caller, name, some, start_timestamp)
        else:
            parts += await _ordered_parts(caller, name, some)
    check_participants(caller.node.settings, len(parts))
    return parts


async def _sorted_parts(
    caller: TablesCaller, name: str, writes: Sequence[TableWrite], start_timestamp: int | None
) -> Sequence[CommitPart]:
    table = find_sorted(caller, AclOperation.WRITE, name)
    schema = table.schema
    rows: list[NewRow] = []
    for each in writes:
        rows += await encoded_in_time(each.rows, partial(_encoded, table, each))
    _check_distinct(table, rows)
    by_tablet = await split_by_tablet(table, rows)
    if table.schema is not schema:
        text = f"the schema of {name} was changed while the rows were encoded"
        raise TableError("TABLE_CHANGED", text, "Commit again in another transaction.")
    return [table.part(index, some, start_timestamp) for index, some in sorted(by_tablet.items())]


def _encoded(table: SortedTable, write: TableWrite) -> list[NewRow]:
    if write.kind is WriteKind.DELETE:
        return encode_deletes(table.schema, write.items, write.rows.place)
    is_update = write.kind is WriteKind.UPDATE
    return encode_sorted_rows(table.schema, write.items, write.rows.place, is_update=is_update)


def _check_distinct(table: SortedTable, rows: Sequence[NewRow]) -> None:
    """TableError INVALID_ROW for a key that two writes of one transaction have."""
    if len({row.key for row in rows}) == len(rows):
        return
    ((key, _),) = Counter(row.key for row in rows).most_common(1)
    text = f"two writes to {table.record.name} have the key {dumps(show_key(table.schema, key))}"
    raise TableError("INVALID_ROW", text, "Write each row once in a transaction: reads do not see its own writes.")


async def _ordered_parts(caller: TablesCaller, name: str, writes: Sequence[TableWrite]) -> Sequence[CommitPart]:
    topic, schema = find_typed(caller, AclOperation.WRITE, name)
    items: list[Any] = []
    for each in writes:
        if each.kind is not WriteKind.ROWS:
            text = f"{each.rows.place} has {each.kind.value}, and {name} is an ordered table"
            raise TableError("NOT_SORTED", text, "Give rows: they are appended.")
        items += each.items
    given = GivenRows(items, writes[0].rows.look, writes[0].rows.place)
    try:
        encoded = await encode_rows(caller, topic, schema, given)
    except TableError:
        for each in writes[1:]:
            await encode_rows(caller, topic, schema, each.rows)  # a refusal names the row by its own write
        raise
    return await batch_parts(caller, topic, encoded)


async def in_a_thread(writes: Sequence[TableWrite]) -> bytes:
    """Return the digest of writes that may have many rows."""
    return await asyncio.to_thread(digest_of, writes)
