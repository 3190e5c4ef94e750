"""Types of JSON values as Spark's own reader would infer them, pure: a value's type, two types as one, a schema in SQL.

A type is one of the texts below, a struct (fields by name) or an array (the type of its elements).
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

NULL: Final = "NULL"
BOOLEAN: Final = "BOOLEAN"
BIGINT: Final = "BIGINT"
DOUBLE: Final = "DOUBLE"
TEXT_TYPE: Final = "STRING"
FIELDS_MAX: Final = 10_000
"""Fields of a schema. Values with more have data in the names of their fields."""

_INT64: Final = range(-(1 << 63), 1 << 63)
_INT64_DIGITS, _DECIMAL_DIGITS_MAX = 20, 38
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Decimal:
    """An integer beyond 64 bits, of a number of digits."""

    digits: int


@dataclass(frozen=True, slots=True)
class Elements:
    """An array's type: that of its elements."""

    of: "JsonType"


@dataclass(frozen=True, slots=True)
class Fields:
    """An object's type: those of its fields, and in how many objects each field is and is not null."""

    types: dict[str, "JsonType"] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)


JsonType = str | Decimal | Elements | Fields


class TooManyFields(ValueError):
    """Objects have more different fields than a schema may have."""


def type_of(value: Any) -> JsonType:
    """Return the type of a value as `json.loads` returns it. TooManyFields."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if value in _INT64 else _decimal(len(str(abs(value))))
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, list):
        found: JsonType = NULL
        for each in value:
            found = merged(found, type_of(each))
        return Elements(found)
    if isinstance(value, dict):
        if len(value) > FIELDS_MAX:
            raise TooManyFields
        present = {name: 1 for name, each in value.items() if each is not None}
        return Fields({name: type_of(each) for name, each in value.items()}, present)
    return TEXT_TYPE


def merged(one: JsonType, other: JsonType) -> JsonType:
    """Return the type that takes values of both; text, where no other does. TooManyFields."""
    if one == other and not isinstance(one, Fields):
        return one
    if NULL in (one, other):
        return other if one == NULL else one
    if isinstance(one, Fields) and isinstance(other, Fields):
        return _merged_fields(one, other)
    if isinstance(one, Elements) and isinstance(other, Elements):
        return Elements(merged(one.of, other.of))
    if _is_number(one) and _is_number(other):
        return DOUBLE if DOUBLE in (one, other) else _decimal(max(_digits(one), _digits(other)))
    return TEXT_TYPE


def schema_sql(found: Fields, objects: int) -> str:
    """Return the schema of objects in SQL; fields that all `objects` have are NOT NULL. Empty without fields."""
    columns = []
    for name in sorted(found.types):
        sql = _sql(found.types[name])
        if sql:
            columns.append(f"{_quoted(name)} {sql}{' NOT NULL' * (found.present.get(name, 0) == objects)}")
    return ", ".join(columns)


def _merged_fields(one: Fields, other: Fields) -> Fields:
    types = {**one.types}
    for name, kind in other.types.items():
        types[name] = merged(types[name], kind) if name in types else kind
    if len(types) > FIELDS_MAX:
        raise TooManyFields
    present = {**one.present}
    for name, count in other.present.items():
        present[name] = present.get(name, 0) + count
    return Fields(types, present)


def _sql(kind: JsonType) -> str:
    """Return a type in SQL; nothing for an object without fields, which no column can hold."""
    if isinstance(kind, Decimal):
        return f"DECIMAL({kind.digits}, 0)"
    if isinstance(kind, Elements):
        inner = _sql(kind.of)
        return f"ARRAY<{inner}>" if inner else ""
    if isinstance(kind, Fields):
        inner = ", ".join(f"{_quoted(name)}: {_sql(kind.types[name])}" for name in sorted(kind.types)
                          if _sql(kind.types[name]))  # fmt: skip
        return f"STRUCT<{inner}>" if inner else ""
    return TEXT_TYPE if kind == NULL else kind


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _is_number(kind: JsonType) -> bool:
    return kind in (BIGINT, DOUBLE) or isinstance(kind, Decimal)


def _digits(kind: JsonType) -> int:
    return kind.digits if isinstance(kind, Decimal) else _INT64_DIGITS


def _decimal(digits: int) -> JsonType:
    return Decimal(digits) if digits <= _DECIMAL_DIGITS_MAX else DOUBLE
