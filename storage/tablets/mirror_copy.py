"""Copies of a mirror's rows into row sets of this node, so that everything that stands on a scheme or a hive finds them
there. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges, RowSet

COPIED_AT_ONCE: Final = 1000
"""Rows that one change copies: about 10 ms."""


def put_difference(changes: RowChanges, wanted: Mapping[str, RowSet]) -> bool:
    """Have the row sets of `changes` become as these, or nearer to them. Return True if it is to be called again."""
    for name in changes.row_sets.keys() - wanted.keys():
        changes.drop_row_set(name)
    for name, row_set in wanted.items():
        _put_row_set(changes, name, row_set)
    rows = list(islice(_different_rows(changes.row_sets, wanted), COPIED_AT_ONCE + 1))
    for name, key, row in rows[:COPIED_AT_ONCE]:
        if row is None:
            changes.delete(name, key)
        else:
            changes.put(name, key, row)
    return len(rows) > COPIED_AT_ONCE


def put_operations(changes: RowChanges, operations: Sequence[Sequence[Any]]) -> None:
    """Repeat the operations of another node's change, which was made of the same rows."""
    changes.operations.extend([*operation] for operation in operations)


def _put_row_set(changes: RowChanges, name: str, wanted: RowSet) -> None:
    known = changes.row_sets.get(name)
    if known is not None and known.schema.key != wanted.schema.key:
        changes.drop_row_set(name)
        known = None
    if known is None:
        changes.create_row_set(name, wanted.schema.key, wanted.schema.columns)
    elif known.schema.columns != wanted.schema.columns:
        changes.alter_row_set(name, wanted.schema.columns)


def _different_rows(
    known: Mapping[str, RowSet], wanted: Mapping[str, RowSet]
) -> Iterator[tuple[str, Key, Row | None]]:
    """Yield the rows that are missing or other ones, and without a row the keys that are to go."""
    for name, row_set in wanted.items():
        before = known.get(name)
        if before is not None and before.schema.key != row_set.schema.key:
            before = None
        for key, row in row_set:
            if before is None or before.get(key) != row:
                yield name, key, row
        for key in () if before is None else before.rows.keys():
            if row_set.get(key) is None:
                yield name, key, None
