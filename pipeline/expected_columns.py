"""Columns that a job makes of JSON values, compared with the topic: with its schema where it is a table, and with the
fields of its newest values. Pure.

A table's columns are certain, so a column that fits none is refused. Fields of some values are not: there a line warns.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.schema_text import BOOLEAN, FRACTIONS, INTEGERS, SchemaColumn
from pqbroker.tables.columns import Column
from pqbroker.tables.refusals import nearest

JSON = "json"
_INTEGRAL = frozenset((*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "timestamp"))
_ANY = "any"
_FRAMED = b"\0"
"""First byte of a value that a schema registry's client wrote."""


@dataclass(frozen=True, slots=True)
class TopicValues:
    """Facts about the values of a topic."""

    topic: str
    columns: Sequence[Column] = ()
    """Columns of the table; none where the topic is no table."""
    value_format: str = JSON
    objects: Sequence[dict[str, Any]] = ()
    """Newest values that are JSON objects."""
    others: Sequence[bytes] = ()
    """Newest values that are none."""


def check_columns(wanted: Sequence[SchemaColumn], found: TopicValues) -> list[str]:
    """Return lines that warn. JobError for a column that no row of the table can have."""
    fields = {name for one in found.objects for name in one}
    if found.columns:
        _check_format(found)
        for column in wanted:
            _check_column(column, found, fields)
        return []
    if not found.objects:
        return list(_other_values(found))
    absent = [column.name for column in wanted if column.name not in fields]
    return [_absent(name, wanted, found, fields) for name in absent]


def check_written(topic: str, columns: Iterable[Column], names: Collection[str], origin: str) -> None:
    """JobError where rows with columns of these names are none of a table that refuses such records."""
    for column in columns:
        if column.is_required and column.part == "value" and column.name not in names:
            raise JobError(
                f"table {topic} requires the column {column.name!r}, and {origin} has none: it has "
                f"{', '.join(sorted(names)) or 'no columns'}; add it there, or write into another topic"
            )


def _check_format(found: TopicValues) -> None:
    if found.value_format != JSON:
        raise JobError(
            f"--format json: values of table {found.topic} are {found.value_format} (its value.format); leave --format "
            "and --schema out, which lands their bytes"
        )


def _check_column(column: SchemaColumn, found: TopicValues, fields: Collection[str]) -> None:
    known = {one.name: one for one in found.columns}
    held = known.get(column.name)
    if held is None:
        if column.name not in fields:
            cure = nearest(column.name, (one.name for one in found.columns if one.part == "value"))
            raise JobError(f"--schema: table {found.topic} has no column {column.name!r}. {cure}")
        return
    if held.part != "value":
        raise JobError(
            f"--schema: the column {column.name!r} of table {found.topic} lies in the key of its records, which rows "
            "have as `key`; leave it out"
        )
    if (types := _fitting_types(held.type.name)) and column.type in _CHECKED - types:
        raise JobError(
            f"--schema: the column {column.name!r} of table {found.topic} is {held.type.name}, which {column.type} "
            f"does not fit; give {_SPARK_TYPES[held.type.name]}"
        )


_CHECKED = frozenset((*INTEGERS, *FRACTIONS, BOOLEAN))
"""Types that take one kind of JSON value alone."""
_SPARK_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "timestamp"), "BIGINT"),
    "uint64": "DECIMAL(20, 0)", "double": "DOUBLE", "boolean": BOOLEAN, "utf8": "STRING", "string": "STRING",
}  # fmt: skip
"""Spark's types by those of columns."""


def _fitting_types(held: str) -> frozenset[str]:
    """Return the checked types that values of a column fit; none where that is left open."""
    if held in _INTEGRAL:
        return INTEGERS | FRACTIONS
    if held == "double":
        return FRACTIONS
    return frozenset() if held == _ANY else frozenset({held.upper()})


def _other_values(found: TopicValues) -> Iterable[str]:
    if found.others:
        cure = "see `pqbroker-pipeline infer`"
        if all(value.startswith(_FRAMED) for value in found.others):
            cure = "they look like values of a schema registry: give --registry URL in place of --format json"
        count = len(found.others)
        yield f"none of the newest {count:,} values of topic {found.topic} is a JSON object; {cure}"


def _absent(name: str, wanted: Sequence[SchemaColumn], found: TopicValues, fields: Collection[str]) -> str:
    is_required = any(column.name == name and column.is_required for column in wanted)
    comes = f"such values go to {found.topic}.dlq" if is_required else "the column is null there"
    newest = f"none of the newest {len(found.objects):,} JSON objects of topic {found.topic}"
    return f"{newest} has the field {name!r}: {comes}. {nearest(name, sorted(fields)[:20])}"
