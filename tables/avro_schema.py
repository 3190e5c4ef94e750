"""Avro schemas of records' parts: one that a client gives, checked before anything is decoded by it, or the one that
columns make.

What decodes Avro has no limits of its own, so a schema has to be such that a datum takes no more than a fixed multiple
of its bytes: not recursive, not deep, and no items without bytes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pqbroker.tables.columns import Column
from pqbroker.tables.refusals import TableError, nearest

AVRO_DEPTH_MAX: Final = 32
"""Types within one another."""
AVRO_TYPES_MAX: Final = 10_000
"""Types of a datum; a named one counts wherever it is used."""
_OBJECTS_PER_BYTE_MAX = 16
"""What items of arrays and maps may decode to."""
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*")
_FIXED_BYTES_MAX = 1 << 20
JSON_TEXT: Final = "json"
"""Our logical type of a string: a JSON document, for a column of type `any`."""
DECIMAL: Final = "decimal"
MICROS: Final = "timestamp-micros"
_UINT64: Mapping[str, Any] = {"type": "bytes", "logicalType": DECIMAL, "precision": 20, "scale": 0}
_MADE: Mapping[str, Any] = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("int64", "uint32"), "long"),
    "uint64": _UINT64, "double": "double", "boolean": "boolean", "string": "bytes", "utf8": "string",
    "any": {"type": "string", "logicalType": JSON_TEXT},
    "timestamp": {"type": "long", "logicalType": MICROS},
}  # fmt: skip
"""By the name of a column's type."""


class Branch(NamedTuple):
    """What a field may hold: a kind of Avro's, and what its schema says besides."""

    kind: str
    logical: str = ""
    scale: int = 0
    size: int = 0


class AvroRecord(NamedTuple):
    """A checked schema. `document` is the same without logical types, which are `branches`', by field."""

    document: Any
    branches: Mapping[str, Sequence[Branch]]


def derive(columns: Sequence[Column]) -> str:
    """The schema that columns make, which every other client can use too. TableError INVALID_SCHEMA."""
    fields = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            cure = f"Give letters, digits and _ alone, or a schema of your own as {column.part}.avro.schema."
            raise TableError("INVALID_SCHEMA", f"column {column.name!r} has a name that Avro cannot have", cure)
        made = _MADE[column.type.name]
        optional = {} if column.is_required else {"default": None}
        fields.append({"name": column.name, "type": made if column.is_required else ["null", made], **optional})
    return json.dumps({"type": "record", "name": "Row", "fields": fields}, separators=(",", ":"))


def read_avro_schema(text: str, name: str) -> AvroRecord:
    """Check the schema that the config `name` holds. TableError INVALID_SCHEMA."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise TableError("INVALID_SCHEMA", f"{name} is no JSON", "Give the Avro schema of a record.") from None
    if not isinstance(given, dict) or given.get("type") != "record":
        text = f"{name} is no record"
        raise TableError("INVALID_SCHEMA", text, 'Give {"type": "record", "name": …, "fields": […]}.')
    top = _Walk(name).read(given, "", "the schema", 1)
    return AvroRecord(top.document, top.fields)


class _Type(NamedTuple):
    """A checked type. `objects` and `least_bytes` are those of the datum that decodes to most objects a byte."""

    document: Any
    branches: tuple[Branch, ...]
    types: int = 1
    height: int = 1
    objects: int = 1
    least_bytes: int = 1
    fields: Mapping[str, Sequence[Branch]] = MappingProxyType({})
    """Of a record."""


class _Walk:
    """Reads types from outside in, each named one before it is used."""

    def __init__(self, config: str) -> None:
        self._config = config
        self._named: dict[str, _Type | None] = {}
        """None: it is being read, so what names it now is within it."""

    def read(self, given: Any, namespace: str, where: str, depth: int) -> _Type:
        if depth > AVRO_DEPTH_MAX:
            raise self._wrong(where, f"is nested deeper than {AVRO_DEPTH_MAX} types", "Nest less.")
        if isinstance(given, list):
            return self._union(given, namespace, where, depth)
        if isinstance(given, str):
            return self._primitive({}, given) if given in PRIMITIVES else self._use(given, namespace, where)
        if not isinstance(given, dict):
            raise self._wrong(where, "is no type", "Give a name, an object or an array of types.")
        kind = given.get("type")
        if not isinstance(kind, str):
            return self.read(kind, namespace, f"{where}.type", depth + 1)
        if kind in PRIMITIVES:
            return self._primitive(given, kind)
        if kind in ("array", "map"):
            return self._block(given, kind, namespace, where, depth)
        if kind in ("record", "enum", "fixed"):
            return self._define(given, kind, namespace, where, depth)
        return self._use(kind, namespace, where)

    def _primitive(self, given: Mapping[str, Any], kind: str) -> _Type:
        least = _LEAST_BYTES.get(kind, 1)
        return _Type(kind, (_branch(given, kind),), objects=int(kind != "null"), least_bytes=least)

    def _union(self, given: Sequence[Any], namespace: str, where: str, depth: int) -> _Type:
        parts = [self.read(each, namespace, f"{where}[{at}]", depth + 1) for at, each in enumerate(given)]
        if not parts:
            raise self._wrong(where, "is a union of nothing", "Give a type at least.")
        densest = max(parts, key=lambda part: part.objects / (1 + part.least_bytes))
        branches = tuple(branch for part in parts for branch in part.branches)
        made = _Type([part.document for part in parts], branches, objects=densest.objects)
        return self._around(made._replace(least_bytes=1 + densest.least_bytes), parts, where)

    def _block(self, given: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> _Type:
        inner = "items" if kind == "array" else "values"
        item = self.read(given.get(inner), namespace, f"{where}.{inner}", depth + 1)
        own = int(kind == "map")  # an item of a map has a name besides
        objects, least_bytes = item.objects + own, item.least_bytes + own
        if objects > _OBJECTS_PER_BYTE_MAX * least_bytes:
            cure = f"Have items that decode to no more than {_OBJECTS_PER_BYTE_MAX} values a byte."
            raise self._wrong(f"{where}.{inner}", "takes too few bytes for all its fields", cure)
        if not least_bytes:
            raise self._wrong(f"{where}.{inner}", "takes no bytes", "Have items that have some, or no such field.")
        return self._around(_Type({"type": kind, inner: item.document}, (Branch(kind),)), [item], where)

    def _define(self, given: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> _Type:
        name, spaces = given.get("name"), given.get("namespace", namespace)
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name) or not isinstance(spaces, str):
            raise self._wrong(where, "has no name, or a wrong one", "Give each record, enum and fixed one.")
        full = name if "." in name or not spaces else f"{spaces}.{name}"
        if full in self._named or full in PRIMITIVES:
            raise self._wrong(where, f"is named {full[:100]!r} as another type is", "Give each type a name of its own.")
        self._named[full] = None
        document = {"type": kind, "name": f"Type{len(self._named)}"}
        if kind == "record":
            made = self._record(document, given, full.rpartition(".")[0], where, depth)
        else:
            made = self._sized(document, given, kind, where)
        self._named[full] = made._replace(document=document["name"])
        return made

    def _record(
        self, document: dict[str, Any], given: Mapping[str, Any], namespace: str, where: str, depth: int
    ) -> _Type:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise self._wrong(f"{where}.fields", "is no array", 'Give {"name": …, "type": …} for each field.')
        read: dict[str, _Type] = {}
        documents = []
        for at, field in enumerate(fields):
            place = f"{where}.fields[{at}]"
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in read:
                raise self._wrong(place, "has no name, or a wrong one, or one twice", "Give letters, digits and _.")
            read[name] = self.read(field.get("type"), namespace, f"{place}.type", depth + 1)
            default = {"default": field["default"]} if "default" in field else {}
            documents.append({"name": name, "type": read[name].document, **default})
        parts = list(read.values())
        branches = {name: part.branches for name, part in read.items()}
        made = _Type({**document, "fields": documents}, (Branch("record"),), fields=branches)
        objects, least_bytes = sum(part.objects for part in parts), sum(part.least_bytes for part in parts)
        return self._around(made._replace(objects=1 + objects, least_bytes=least_bytes), parts, where)

    def _sized(self, document: dict[str, Any], given: Mapping[str, Any], kind: str, where: str) -> _Type:
        if kind == "fixed":
            size = given.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _FIXED_BYTES_MAX:
                raise self._wrong(f"{where}.size", "is no size", f"Give 1 to {_FIXED_BYTES_MAX} bytes.")
            return _Type({**document, "size": size}, (_branch(given, kind)._replace(size=size),), least_bytes=size)
        symbols = given.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
            raise self._wrong(f"{where}.symbols", "is no array of names", "Give one at least.")
        return _Type({**document, "symbols": symbols}, (Branch(kind),))

    def _use(self, name: str, namespace: str, where: str) -> _Type:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full, self._named.get(name, _UNKNOWN))
        if found is _UNKNOWN:
            raise self._wrong(where, f"is the unknown type {name[:100]!r}", nearest(name[:100], PRIMITIVES))
        if found is None:
            raise self._wrong(where, f"is {name[:100]}, which it is part of", "Recursive types are not served.")
        return found

    def _around(self, made: _Type, parts: Sequence[_Type], where: str) -> _Type:
        types = 1 + sum(part.types for part in parts)
        height = 1 + max((part.height for part in parts), default=0)
        if types > AVRO_TYPES_MAX:
            raise self._wrong(where, f"has more than {AVRO_TYPES_MAX} types", "Have fewer fields.")
        if height > AVRO_DEPTH_MAX:
            raise self._wrong(where, f"is nested deeper than {AVRO_DEPTH_MAX} types", "Nest less.")
        return made._replace(types=types, height=height)

    def _wrong(self, where: str, what: str, cure: str) -> TableError:
        return TableError("INVALID_SCHEMA", f"{self._config}: {where} {what}", cure)


def _branch(given: Mapping[str, Any], kind: str) -> Branch:
    """An unknown logical type means nothing, as Avro says."""
    logical, scale = given.get("logicalType"), given.get("scale", 0)
    if not isinstance(logical, str) or isinstance(scale, bool) or not isinstance(scale, int):
        return Branch(kind)
    return Branch(kind, logical, scale)


_UNKNOWN: Final = _Type(None, ())
