"""Records of a change feed, pure: one for each row of a commit, in the order of the commit's rows.

    key    the row's key columns, as a JSON object
    value  {"before": row or null, "after": row or null, "transaction": 32 hex digits or null, "timestamp": number}

Rows are as lookups show them, with all columns. `before` is the row as a reader just below the commit's timestamp sees
it; a delete has null for `after`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from pqbroker.protocol.records import BATCH_HEADER_BYTES, Record, encode_batch
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.packed_rows import ABSENT, KIND_AT, Kind, RowForm
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.shown_columns import ShownColumns

RECORD_BYTES_MORE: Final = 30
"""Bytes that a record takes besides its key and value at most: six numbers of variable length."""
_NO_TIMESTAMP: Final = bytes(KIND_AT)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Values = Sequence[Any]
"""Values of a row's value columns, in order."""


class CommittedRows(NamedTuple):
    """Rows with the commit that they are part of. `transaction`: 32 hex digits; None: it has no name."""

    timestamp: int
    transaction: str | None
    rows: Sequence[NewRow]


class RowBefore(NamedTuple):
    """A row of a commit, and the values that it had before the commit; None: there was no such row."""

    row: NewRow
    before: Values | None


class ChangeTooLarge(Exception):
    """One change does not fit the feed's `max.message.bytes`."""


def values_after(form: RowForm, row: NewRow, before: Values | None) -> Values | None:
    """Return the values of a row once its new version is committed; None: it is deleted."""
    kind = row.body[0]
    if kind == Kind.DELETE:
        return None
    values = form.values(_NO_TIMESTAMP + row.body)
    if kind == Kind.WRITE:
        return values
    old = (None,) * len(values) if before is None else before
    return [known if value is ABSENT else value for value, known in zip(values, old, strict=True)]


def with_before(
    form: RowForm, commits: Iterable[CommittedRows], stored: Mapping[bytes, Values | None]
) -> list[tuple[CommittedRows, Sequence[RowBefore]]]:
    """Return the rows of commits that follow one another, each with what it was before. `stored`: values that each key
    had before the first of them."""
    known = dict(stored)
    found: list[tuple[CommittedRows, Sequence[RowBefore]]] = []
    for commit in commits:
        some: list[RowBefore] = []
        for row in commit.rows:
            some.append(RowBefore(row, known[row.key]))
            known[row.key] = values_after(form, row, known[row.key])
        found.append((commit, some))
    return found


def change_records(
    schema: SortedSchema, commit: CommittedRows, rows: Iterable[RowBefore], now_ms: int
) -> Iterator[Record]:
    """Yield the record of each row of a commit."""
    columns = schema.all_shown
    keys = tuple(column.name for column in schema.keys)
    key_columns, nothing = ShownColumns(schema, keys), (None,) * len(schema.values)
    for row, before in rows:
        after = values_after(schema.form, row, before)
        shown_before = None if before is None else columns.show(row.key, before)
        shown_after = None if after is None else columns.show(row.key, after)
        value = {
            "before": shown_before, "after": shown_after, "transaction": commit.transaction,
            "timestamp": commit.timestamp,
        }  # fmt: skip
        shown = shown_after or shown_before or key_columns.show(row.key, nothing)
        yield Record(0, now_ms, _encoded({name: shown[name] for name in keys}), _encoded(value), ())


def batches_of(records: Iterable[Record], batch_bytes_max: int, *, is_refused: bool) -> list[bytearray]:
    """Return records as batches of at most `batch_bytes_max` bytes, in order. One record that is larger has a batch of
    its own, or with `is_refused` raises ChangeTooLarge."""
    found: list[bytearray] = []
    some: list[Record] = []
    room = batch_bytes_max - BATCH_HEADER_BYTES
    size = 0
    for record in records:
        taken = RECORD_BYTES_MORE + len(record.key or b"") + len(record.value or b"")
        if is_refused and taken > room:
            raise ChangeTooLarge(f"a change has {taken} bytes as a record")
        if some and size + taken > room:
            found.append(encode_batch(some))
            some, size = [], 0
        some.append(record)
        size += taken
    if some:
        found.append(encode_batch(some))
    return found


def encode_changes(
    schema: SortedSchema,
    commits: Sequence[tuple[CommittedRows, Sequence[RowBefore]]],
    now_ms: int,
    batch_bytes_max: int,
    *,
    is_refused: bool,
) -> list[bytearray]:
    """Return the changes of commits as batches, in their order; see `batches_of`."""
    records = chain.from_iterable(change_records(schema, commit, rows, now_ms) for commit, rows in commits)
    return batches_of(records, batch_bytes_max, is_refused=is_refused)


def _encoded(document: Any) -> bytes:
    return _ENCODER.encode(document).encode()
