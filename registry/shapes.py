"""Shapes: what a schema of any format says of a value, in words that columns are made of.

A decoded value is JSON: a number, a text, true, false, null, a list or an object. The shape says what a text stands
for: bytes in base64, a time, a decimal.
"""

from dataclasses import dataclass, field
from typing import Final

BOOLEAN: Final = "boolean"
INT: Final = "int"
LONG: Final = "long"
UNSIGNED_LONG: Final = "unsigned long"
FLOAT: Final = "float"
DOUBLE: Final = "double"
STRING: Final = "string"
BINARY: Final = "binary"
"""Bytes, as base64."""
TIMESTAMP: Final = "timestamp"
"""A moment, as 2026-01-01T00:00:00.000000Z."""
LOCAL_TIMESTAMP: Final = "local timestamp"
"""The same without Z."""
DATE: Final = "date"
DECIMAL: Final = "decimal"
"""A text of digits with a point."""
RECORD: Final = "record"
ARRAY: Final = "array"
MAP: Final = "map"
ANY: Final = "any"
"""Any JSON: what has several types, and what holds itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind with what it is made of."""

    kind: str
    is_optional: bool = True
    """True if null is one of its values, or it may be absent."""
    fields: tuple[tuple[str, "Shape"], ...] = field(default=())
    """Fields of a record, in order."""
    items: "Shape | None" = None
    """Elements of an array, values of a map."""
    precision: int = 0
    scale: int = 0


ANY_SHAPE: Final = Shape(ANY)
