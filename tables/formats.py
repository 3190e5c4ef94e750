"""Formats in which the value or the key of a record holds its columns: as a JSON document, an Avro record, or one
column's bytes.

The topic's configs say which: `value.format`, `value.avro.schema`, and the same of the key.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from pqbroker.tables.avro_schema import derive
from pqbroker.tables.columns import PARTS, Column
from pqbroker.tables.refusals import TableError
from pqbroker.tables.types import bytes_of, show_string

JSON: Final = "json"
AVRO: Final = "avro"
RAW: Final = "raw"
FORMAT: Final = "{}.format"
AVRO_SCHEMA: Final = "{}.avro.schema"
"""Names of the topic's configs, by part."""
_RAW_TYPES = ("string", "utf8")

Formats = Mapping[str, str]
"""Texts by config."""


class PartFormat(Protocol):
    """The columns of one part. It has no state: any thread may use it."""

    @property
    def name(self) -> str: ...

    def read(self, stored: bytes | None) -> Mapping[str, Any]:
        """The fields by column, as `ColumnType.read` takes them; others are left out by the reader. ValueError."""
        ...

    def write(self, fields: Mapping[str, Any]) -> bytes | None:
        """The part, of what `ColumnType.read` gave; what is null is left out of `fields`. ValueError."""
        ...


class JsonFormat:
    """A JSON object with a field for each column that is not null."""

    __slots__ = ("_part",)
    name = JSON

    def __init__(self, part: str) -> None:
        self._part = part

    def read(self, stored: bytes | None) -> Mapping[str, Any]:
        if stored is None:
            return {}
        try:
            document = json.loads(stored)
        except (ValueError, RecursionError):
            raise ValueError(f"the {self._part} is no JSON") from None
        if not isinstance(document, dict):
            raise ValueError(f"the {self._part} is no JSON object")
        return document

    def write(self, fields: Mapping[str, Any]) -> bytes:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


class RawFormat:
    """The bytes of one column; no bytes at all where that is null."""

    __slots__ = ("_is_text", "_name", "_part")
    name = RAW

    def __init__(self, part: str, column: Column) -> None:
        self._part = part
        self._name = column.name
        self._is_text = column.type.name == "utf8"

    def read(self, stored: bytes | None) -> Mapping[str, Any]:
        if stored is None:
            return {}
        if not self._is_text:
            return {self._name: show_string(stored)}
        try:
            return {self._name: stored.decode()}
        except UnicodeDecodeError:
            raise ValueError(f"the {self._part} is no UTF-8") from None

    def write(self, fields: Mapping[str, Any]) -> bytes | None:
        given = fields.get(self._name)
        return None if given is None else bytes_of(given)


def read_formats(configs: Formats, columns: Sequence[Column]) -> tuple[Mapping[str, PartFormat], Formats]:
    """Return the formats by part, and the configs that say all of it: with the Avro schemas that columns make.
    TableError INVALID_SCHEMA names the config."""
    formats: dict[str, PartFormat] = {}
    said: dict[str, str] = {}
    for part in PARTS:
        some = [column for column in columns if column.part == part]
        name = configs.get(FORMAT.format(part)) or JSON
        avro_schema = ""
        if name == AVRO:
            avro_schema = configs.get(AVRO_SCHEMA.format(part)) or derive(some)
        formats[part] = _read_format(name, part, some, avro_schema)
        if name != JSON:
            said[FORMAT.format(part)] = name
        if avro_schema:
            said[AVRO_SCHEMA.format(part)] = avro_schema
    return formats, said


def _read_format(name: str, part: str, columns: Sequence[Column], avro_schema: str) -> PartFormat:
    if name == RAW:
        if len(columns) != 1 or columns[0].type.name not in _RAW_TYPES:
            text = f"{part}.format is raw, and {_listed(columns)} from the {part}"
            cure = f"Have exactly one column from the {part}, of type {' or '.join(_RAW_TYPES)}; or give json or avro."
            raise TableError("INVALID_SCHEMA", text, cure)
        return RawFormat(part, columns[0])
    if name == AVRO:
        from pqbroker.tables.avro_format import avro_format  # loaded with the first topic that needs it

        return avro_format(part, tuple(columns), avro_schema)
    return JsonFormat(part)


def _listed(columns: Sequence[Column]) -> str:
    if not columns:
        return "no column comes"
    named = ", ".join(f"{column.name!r} ({column.type.name})" for column in columns[:10])
    return f"{named} {'come' if columns[1:] else 'comes'}"
