"""The columns of rows as lookups and change feeds show them: chosen once for all rows of an answer."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pqbroker.tables.sorted.packed_rows import ABSENT, LENGTH, slot_letter
from pqbroker.tables.types import show_string

if TYPE_CHECKING:
    from pqbroker.tables.sorted.schema import SortedColumn, SortedSchema

_FIXED_BYTES: Final = 8
_Show = Callable[[Any], Any]
_SHOW: Final[Mapping[str, _Show]] = {"any": json.loads, "string": show_string}
"""Forms of types whose values are not shown as they are stored."""


class ShownColumns:
    """Some columns of a schema, or all of them, in its order. `names` None: all."""

    __slots__ = ("_fixed_bytes", "_keys", "_schema", "_sized", "_values")

    def __init__(self, schema: "SortedSchema", names: Collection[str] | None = None) -> None:
        self._schema = schema
        self._keys = _chosen(schema.keys, names)
        self._values = _chosen(schema.values, names)
        self._sized = [at for at, _, _ in self._values if slot_letter(schema.values[at].type.name) == LENGTH]
        self._fixed_bytes = _FIXED_BYTES * (len(self._values) - len(self._sized))

    def show(self, key: bytes, values: Sequence[Any]) -> dict[str, Any]:
        """Return a row as JSON. ValueError, IndexError for bytes that are no whole key of the schema."""
        row = {}
        decoded = self._schema.decode_key(key)
        for at, name, show in self._keys:
            value = decoded[at]
            row[name] = value if show is None or value is None else show(value)
        for at, name, show in self._values:
            value = values[at]
            if value is ABSENT:
                value = None
            row[name] = value if show is None or value is None else show(value)
        return row

    def size_of(self, key: bytes, values: Sequence[Any]) -> int:
        """Return the bytes of a row, about: of key, text and bytes their length, 8 of any other value."""
        size = len(key) + self._fixed_bytes
        for at in self._sized:
            value = values[at]
            size += _FIXED_BYTES if value is None or value is ABSENT else len(value)
        return size


def show_value(column: "SortedColumn", value: Any) -> Any:
    """Return a value as JSON has it."""
    show = _SHOW.get(column.type.name)
    return value if show is None or value is None else show(value)


def _chosen(columns: Sequence["SortedColumn"], names: Collection[str] | None) -> list[tuple[int, str, _Show | None]]:
    """Return position, name and form of each column that has one of the names."""
    return [
        (at, column.name, _SHOW.get(column.type.name))
        for at, column in enumerate(columns)
        if names is None or column.name in names
    ]
