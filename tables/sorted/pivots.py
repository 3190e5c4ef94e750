"""Pivots: the first key of each tablet of a sorted table, as lists of the first key columns' values (D.3)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.rows import encode_prefix
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.types import show_string


def read_pivots(schema: SortedSchema, given: Sequence[Any] | None) -> list[bytes]:
    """Return encoded pivots, the first one empty; None: there is one tablet. TableError INVALID_PIVOTS."""
    if given is None:
        return [b""]
    if not given or given[0] != []:
        raise _invalid("pivot_keys does not begin with []", "The first tablet begins before every key: give [] first.")
    return encode_pivots_of_range(schema, given)


def encode_pivots_of_range(schema: SortedSchema, given: Sequence[Any]) -> list[bytes]:
    """Return the pivots of a range of tablets, encoded: at least one, rising. TableError INVALID_PIVOTS."""
    if not given:
        raise _invalid("pivot_keys is empty", "Give the pivot of the range's first tablet at least.")
    return _rising([_encode(schema, pivot, f"pivot_keys[{index}]") for index, pivot in enumerate(given)])


def show_pivot(schema: SortedSchema, pivot: bytes) -> list[Any]:
    """Return a pivot as it is given. ValueError for bytes that are none."""
    return [show_string(value) if isinstance(value, bytes) else value for value in schema.decode_key(pivot)]


def _rising(pivots: list[bytes]) -> list[bytes]:
    for index, (one, other) in enumerate(pairwise(pivots), 1):
        if one >= other:
            raise _invalid(f"pivot_keys[{index}] is not above the one before it", "Give the pivots in rising order.")
    return pivots


def _encode(schema: SortedSchema, pivot: Any, where: str) -> bytes:
    if not isinstance(pivot, list) or len(pivot) > len(schema.keys):
        text = f"{where} is no list of at most {len(schema.keys)} values"
        raise _invalid(text, "Give the values of the first key columns, such as [5].")
    key = {column.name: value for column, value in zip(schema.keys, pivot, strict=False)}
    try:
        return encode_prefix(schema, key, where)[0]
    except TableError as wrong:
        raise _invalid(wrong.message, wrong.cure) from None


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_PIVOTS", message, cure)
