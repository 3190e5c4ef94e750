"""Avro: a schema becomes a reader of values, which are JSON, and their shape.

It reads by the schema of the writer and shows each field by its name; a union shows the value alone. It is not
fastavro: that reads recursive types and empty elements without end, and a payload of a kilobyte ends the process.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from pqbroker.registry.cursor import Cursor, show_float
from pqbroker.registry.limits import SCHEMA_LEVELS_MAX, DecodingLimits
from pqbroker.registry.schema_documents import check_name, parse_document, shorten
from pqbroker.registry.shapes import ANY_SHAPE, ValueShape
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.times import (
    DECIMAL_SCALE_MAX,
    show_date,
    show_decimal,
    show_local_moment,
    show_moment,
    show_time,
)
from pqbroker.registry.undecodable import (
    DEEP_SCHEMA,
    INVALID_SCHEMA,
    INVALID_VALUE,
    LARGE_SCHEMA,
    Undecodable,
)

Read = Callable[[Cursor], Any]
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_FIXED_BYTES_MAX: Final = 1 << 30


class AvroReader(NamedTuple):
    """A compiled schema."""

    read_part: Read
    shape: ValueShape

    def read(self, body: memoryview, limits: DecodingLimits) -> Any:
        """Return a value, which takes the whole body. Undecodable."""
        cursor = Cursor(body, limits)
        value = self.read_part(cursor)
        if not cursor.is_at_end:
            raise Undecodable(INVALID_VALUE, f"{cursor.left} bytes follow the value, as its schema has it")
        return value


def compile_avro(text: str, references: Sequence[str], limits: DecodingLimits) -> AvroReader:
    """Compile a schema; `references` are the texts of those that it refers to, each after those that it needs itself.
    Undecodable."""
    compiler = _Compiler(limits)
    for each in references:
        compiler.compile(parse_document(each), "", 0)
    return compiler.compile(parse_document(text), "", 0)


class _Named:
    """A named type; its reader comes once its fields are known, which may be of this very type."""

    __slots__ = ("reader",)

    def __init__(self) -> None:
        self.reader: AvroReader | None = None

    def read(self, cursor: Cursor) -> Any:
        assert self.reader is not None
        return self.reader.read_part(cursor)

    def use(self) -> AvroReader:
        """Return the type where it is named; within itself its shape has no end."""
        return self.reader or AvroReader(self.read, ANY_SHAPE)


class _Compiler:
    """Compiles schemas that know each other's names."""

    def __init__(self, limits: DecodingLimits) -> None:
        self._types_max = limits.schema_types_max
        self._types = 0
        self._named: dict[str, _Named] = {}

    def compile(self, schema: Any, namespace: str, level: int) -> AvroReader:
        self._count(1)
        if level > SCHEMA_LEVELS_MAX:
            raise Undecodable(DEEP_SCHEMA, f"the schema has more than {SCHEMA_LEVELS_MAX} levels of types")
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._find(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, level)
        if not isinstance(schema, Mapping):
            raise Undecodable(INVALID_SCHEMA, f"a type is {shorten(schema)}; it is a name, a union or an object")
        kind = schema.get("type")
        if isinstance(kind, list | Mapping):
            return self.compile(kind, namespace, level + 1)
        if isinstance(kind, str) and kind in _COMPLEX:
            return _COMPLEX[kind](self, schema, namespace, level)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _logical(kind, schema)
        return self.compile(kind, namespace, level + 1)

    def record(self, schema: Mapping[str, Any], namespace: str, level: int) -> AvroReader:
        name, named = self._declare(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise Undecodable(INVALID_SCHEMA, f"the record {shorten(name)} has no array of fields")
        self._count(len(fields))
        found: dict[str, AvroReader] = {}
        for each in fields:
            if not isinstance(each, Mapping) or "type" not in each:
                raise Undecodable(INVALID_SCHEMA, f"the record {shorten(name)} has a field without a type")
            field = check_name(each.get("name"), f"the record {shorten(name)}")
            if field in found:
                raise Undecodable(INVALID_SCHEMA, f"the record {shorten(name)} has two fields {shorten(field)}")
            found[field] = self.compile(each["type"], name.rpartition(".")[0], level + 1)
        readers = [(field, reader.read_part) for field, reader in found.items()]
        shape = ValueShape(Kind.RECORD, False, tuple((field, reader.shape) for field, reader in found.items()))
        named.reader = AvroReader(_record_reader(readers), shape)
        return named.reader

    def enum(self, schema: Mapping[str, Any], namespace: str, level: int) -> AvroReader:
        name, named = self._declare(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list):
            raise Undecodable(INVALID_SCHEMA, f"the enum {shorten(name)} has no array of symbols")
        self._count(len(symbols))
        known = [check_name(each, f"the enum {shorten(name)}") for each in symbols]

        def read(cursor: Cursor) -> str:
            number = cursor.read_long()
            if not 0 <= number < len(known):
                raise Undecodable(INVALID_VALUE, f"symbol {number} of {shorten(name)}, which has {len(known)}")
            return known[number]

        named.reader = AvroReader(read, ValueShape(Kind.STRING, False))
        return named.reader

    def fixed(self, schema: Mapping[str, Any], namespace: str, level: int) -> AvroReader:
        name, named = self._declare(schema, namespace)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _FIXED_BYTES_MAX:
            raise Undecodable(INVALID_SCHEMA, f"the size of {shorten(name)} is {shorten(size)}; give a number of bytes")
        named.reader = _fixed(schema, size)
        return named.reader

    def array(self, schema: Mapping[str, Any], namespace: str, level: int) -> AvroReader:
        items = self.compile(schema.get("items"), namespace, level + 1)
        return AvroReader(_array_reader(items.read_part), ValueShape(Kind.ARRAY, False, items=items.shape))

    def map(self, schema: Mapping[str, Any], namespace: str, level: int) -> AvroReader:
        values = self.compile(schema.get("values"), namespace, level + 1)
        return AvroReader(_map_reader(values.read_part), ValueShape(Kind.MAP, False, items=values.shape))

    def _union(self, schema: Sequence[Any], namespace: str, level: int) -> AvroReader:
        self._count(len(schema))
        branches = [self.compile(each, namespace, level + 1) for each in schema]
        readers = [each.read_part for each in branches]
        shapes = [each.shape for each in branches if each.read_part is not _read_null]
        is_optional = len(shapes) < len(branches)

        def read(cursor: Cursor) -> Any:
            number = cursor.read_long()
            if not 0 <= number < len(readers):
                raise Undecodable(INVALID_VALUE, f"branch {number} of a union, which has {len(readers)}")
            return readers[number](cursor)

        shape = shapes[0] if len(shapes) == 1 else ValueShape(Kind.ANY, False)
        return AvroReader(read, replace(shape, is_optional=True) if is_optional else shape)

    def _declare(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, _Named]:
        name = check_name(schema.get("name"), f"the {schema['type']}")
        space = schema.get("namespace", namespace)
        if space and "." not in name:
            name = f"{check_name(space, 'a namespace')}.{name}"
        if name in self._named:
            raise Undecodable(INVALID_SCHEMA, f"the type {shorten(name)} is declared twice")
        self._named[name] = named = _Named()
        return name, named

    def _find(self, name: str, namespace: str) -> AvroReader:
        found = self._named.get(f"{namespace}.{name}") if namespace and "." not in name else None
        found = found or self._named.get(name)
        if found is None:
            raise Undecodable(INVALID_SCHEMA, f"the type {shorten(name)} is unknown; no reference declares it before")
        return found.use()

    def _count(self, count: int) -> None:
        self._types += count
        if self._types > self._types_max:
            text = f"the schema has more than pqbroker.registry.schema.types.max = {self._types_max} types and fields"
            raise Undecodable(LARGE_SCHEMA, text)


def _record_reader(fields: Sequence[tuple[str, Read]]) -> Read:
    count = len(fields) + 1

    def read(cursor: Cursor) -> Any:
        cursor.take_parts(count)
        cursor.enter()
        value = {name: read_field(cursor) for name, read_field in fields}
        cursor.leave()
        return value

    return read


def _array_reader(read_item: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        cursor.enter()
        items: list[Any] = []
        while count := _block(cursor):
            items += [read_item(cursor) for _ in range(count)]
        cursor.leave()
        return items

    return read


def _map_reader(read_value: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        cursor.enter()
        entries: dict[str, Any] = {}
        while count := _block(cursor):
            for _ in range(count):
                key = _read_string(cursor)
                entries[key] = read_value(cursor)
        cursor.leave()
        return entries

    return read


def _block(cursor: Cursor) -> int:
    """Return how many items follow; a count below 0 has the size of its block behind it."""
    count = cursor.read_long()
    if count < 0:
        cursor.read_long()
        count = -count
    cursor.take_parts(count)
    return count


def _read_null(cursor: Cursor) -> None:
    return None


def _read_boolean(cursor: Cursor) -> bool:
    return cursor.take(1)[0] != 0


def _read_float(cursor: Cursor) -> Any:
    return show_float(_FLOAT.unpack(cursor.take(4))[0])


def _read_double(cursor: Cursor) -> Any:
    return show_float(_DOUBLE.unpack(cursor.take(8))[0])


def _read_bytes(cursor: Cursor) -> str:
    return b64encode(cursor.take(cursor.read_long())).decode()


def _read_string(cursor: Cursor) -> str:
    try:
        return str(cursor.take(cursor.read_long()), "utf-8")
    except UnicodeDecodeError:
        raise Undecodable(INVALID_VALUE, f"a string before byte {cursor.position} is no UTF-8") from None


def _fixed(schema: Mapping[str, Any], size: int) -> AvroReader:
    logical = schema.get("logicalType")
    if logical == "decimal":
        scale, shape = _decimal(schema)
        return AvroReader(lambda cursor: show_decimal(bytes(cursor.take(size)), scale), shape)
    if logical == "uuid" and size == 16:
        return AvroReader(lambda cursor: str(UUID(bytes=bytes(cursor.take(size)))), ValueShape(Kind.STRING, False))
    return AvroReader(lambda cursor: b64encode(cursor.take(size)).decode(), ValueShape(Kind.BINARY, False))


def _logical(kind: str, schema: Mapping[str, Any]) -> AvroReader:
    """A primitive type, perhaps with a logical one; one that is unknown is left aside, as Avro says."""
    logical = schema.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        scale, shape = _decimal(schema)
        return AvroReader(lambda cursor: show_decimal(bytes(cursor.take(cursor.read_long())), scale), shape)
    if kind == "string" or not isinstance(logical, str):
        return _PRIMITIVES[kind]
    return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])


def _decimal(schema: Mapping[str, Any]) -> tuple[int, ValueShape]:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    for number in (precision, scale):
        if not isinstance(number, int) or not 0 <= number <= DECIMAL_SCALE_MAX:
            text = f"precision or scale of a decimal is {shorten(number)}; give 0 to {DECIMAL_SCALE_MAX}"
            raise Undecodable(INVALID_SCHEMA, text)
    return scale, ValueShape(Kind.DECIMAL, False, precision=precision, scale=scale)


_PRIMITIVES: Final[Mapping[str, AvroReader]] = {
    "null": AvroReader(_read_null, ANY_SHAPE),
    "boolean": AvroReader(_read_boolean, ValueShape(Kind.BOOLEAN, False)),
    "int": AvroReader(Cursor.read_long, ValueShape(Kind.INT, False)),
    "long": AvroReader(Cursor.read_long, ValueShape(Kind.LONG, False)),
    "float": AvroReader(_read_float, ValueShape(Kind.FLOAT, False)),
    "double": AvroReader(_read_double, ValueShape(Kind.DOUBLE, False)),
    "bytes": AvroReader(_read_bytes, ValueShape(Kind.BINARY, False)),
    "string": AvroReader(_read_string, ValueShape(Kind.STRING, False)),
}
_COMPLEX: Final[Mapping[str, Callable[[_Compiler, Mapping[str, Any], str, int], AvroReader]]] = {
    "record": _Compiler.record, "error": _Compiler.record, "enum": _Compiler.enum, "fixed": _Compiler.fixed,
    "array": _Compiler.array, "map": _Compiler.map,
}  # fmt: skip


def _moments(unit: Callable[[int], int], show: Callable[[int], str], kind: Kind) -> AvroReader:
    return AvroReader(lambda cursor: show(unit(cursor.read_long())), ValueShape(kind, False))


_UNITS: Final[Mapping[str, Callable[[int], int]]] = {
    "millis": lambda stored: stored * 1000, "micros": lambda stored: stored, "nanos": lambda stored: stored // 1000,
}  # fmt: skip
_LOGICAL: Final[Mapping[tuple[str, str], AvroReader]] = {
    ("int", "date"): _moments(_UNITS["micros"], show_date, Kind.DATE),
    ("int", "time-millis"): _moments(_UNITS["millis"], show_time, Kind.STRING),
    ("long", "time-micros"): _moments(_UNITS["micros"], show_time, Kind.STRING),
    **{("long", f"timestamp-{name}"): _moments(unit, show_moment, Kind.TIMESTAMP) for name, unit in _UNITS.items()},
    **{
        ("long", f"local-timestamp-{name}"): _moments(unit, show_local_moment, Kind.LOCAL_TIMESTAMP)
        for name, unit in _UNITS.items()
    },
}
