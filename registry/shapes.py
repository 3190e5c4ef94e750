"""Shapes: what a schema of any format says of a value, in words that columns are made of.

A decoded value is JSON: a number, a text, true, false, null, a list or an object. The shape says what a text stands
for: bytes in base64, a time, a decimal.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class ShapeKind(Enum):
    """Kinds of values."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    UNSIGNED_LONG = "unsigned long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    """Bytes, as base64."""
    TIMESTAMP = "timestamp"
    """A moment, as 2026-01-01T00:00:00.000000Z."""
    LOCAL_TIMESTAMP = "local timestamp"
    """The same without Z."""
    DATE = "date"
    DECIMAL = "decimal"
    """A text of digits with a point."""
    RECORD = "record"
    ARRAY = "array"
    MAP = "map"
    ANY = "any"
    """Any JSON: what has several types, and what holds itself."""


@dataclass(frozen=True, slots=True)
class ValueShape:
    """A kind with what it is made of."""

    kind: ShapeKind
    is_optional: bool = True
    """True if null is one of its values, or it may be absent."""
    fields: tuple[tuple[str, "ValueShape"], ...] = field(default=())
    """Fields of a record, in order."""
    items: "ValueShape | None" = None
    """Elements of an array, values of a map."""
    precision: int = 0
    scale: int = 0


ANY_SHAPE: Final = ValueShape(ShapeKind.ANY)
