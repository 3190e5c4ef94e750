"""Checks that records are rows of a schema, thousands at once: the rules are `rows.decode_row`'s.

What msgspec takes for a row is one, and what it refuses `decode_row` decides, which knows why.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from pqbroker.protocol.record_parts import RecordPart
from pqbroker.tables.columns import PARTS, Column
from pqbroker.tables.formats import JSON
from pqbroker.tables.rows import ERROR, decode_row, read_row
from pqbroker.tables.schema import Schema
from pqbroker.tables.types import ROW_WEIGHT, TIMESTAMP_END, TYPES

Decode = Callable[[bytes], Any]

_BOUNDS = {name: column_type.bounds for name, column_type in TYPES.items() if column_type.bounds is not None}
_MOST = (1 << 63) - 1
"""Greatest integer that msgspec can compare with."""
_TAKEN: Final[Mapping[str, Any]] = {
    **{name: Annotated[int, msgspec.Meta(ge=low, le=min(high, _MOST))] for name, (low, high) in _BOUNDS.items()},
    "double": float,
    "boolean": bool,
    "string": str,
    "utf8": str,
    "timestamp": Annotated[int, msgspec.Meta(ge=0, lt=TIMESTAMP_END)],
    "any": bool | int | float | str | list[Any] | dict[str, Any],
}
"""msgspec types by the name of a column's type; some accept less than the column's type."""


class RowCheck:
    """Checks records against one schema. It has no state: any thread may use it."""

    __slots__ = ("_key", "_schema", "_value")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        columns = {part: [column for column in schema.columns.values() if column.part == part] for part in PARTS}
        self._value, self._key = (
            None if not columns[part] else _Document(columns[part]) if schema.formats[part].name == JSON else _LEFT_OPEN
            for part in ("value", "key")
        )

    def errors(self, records: Iterable[tuple[RecordPart, RecordPart]], most: int) -> dict[int, str]:
        """Return why records, each a key and a value, are no rows, by their number; the first `most` of them."""
        of_key, of_value = self._key, self._value
        found: dict[int, str] = {}
        for number, (key, value) in enumerate(records):
            fits = of_value is None or of_value.row(value) is not None
            if fits and (of_key is None or of_key.row(key) is not None):
                continue
            error = decode_row(self._schema, key, value).get(ERROR)
            if error is not None:
                found[number] = error
                if len(found) == most:
                    break
        return found

    def weights(self, records: Iterable[tuple[RecordPart, RecordPart]]) -> "array[int]":
        """Return the weight of each record as a row (E.8); its bytes where it is none."""
        of_key, of_value = self._key, self._value
        empty = ROW_WEIGHT + self._schema.filled_weight
        found = array("I")
        for key, value in records:
            try:
                weight = empty + (of_value.weight(value) if of_value else 0) + (of_key.weight(key) if of_key else 0)
            except ValueError:
                weight = read_row(self._schema, key, value)[1]
            found.append(weight)
        return found


class _Document:
    """The key or the value of a record as a document with these columns."""

    __slots__ = ("_columns", "_decode")

    def __init__(self, columns: list[Column]) -> None:
        self._decode = _decoder(columns)
        self._columns = [(f"f{number}", column.type) for number, column in enumerate(columns)]

    def row(self, stored: RecordPart) -> Any:
        """The document; None leaves open whether it is one."""
        if stored is None:
            return None
        try:
            if not stored.isascii():
                stored.decode()  # msgspec does not look into the texts that it leaves out
            return self._decode(stored)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def weight(self, stored: RecordPart) -> int:
        """Return the weight of the columns; ValueError where `row` leaves it open."""
        row = self.row(stored)
        if row is None:
            raise ValueError
        weight = 0
        for field, column_type in self._columns:
            value = getattr(row, field)
            if type(value) is str and value.isascii() and column_type.name != "any":
                weight += len(value)
            elif value is not None:
                weight += column_type.read(value)[1]
        return weight


class _Open:
    """A key or a value in another format, which all is left open of."""

    def row(self, stored: RecordPart) -> Any:
        return None

    def weight(self, stored: RecordPart) -> int:
        raise ValueError


_LEFT_OPEN: Final = _Open()


def _decoder(columns: list[Column]) -> Decode:
    """Return the decoder of the document with these columns; fields have names of our own, for a column may have
    any."""
    fields: list[Any] = [
        (f"f{number}", taken) if column.is_required else (f"f{number}", taken | None, None)
        for number, column in enumerate(columns)
        for taken in [_TAKEN[column.type.name]]
    ]
    names = {f"f{number}": column.name for number, column in enumerate(columns)}
    fields.sort(key=len)  # those without a default come first
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names, gc=False)).decode
