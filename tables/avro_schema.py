"""Avro schemas of records' parts: one that a client gives, checked before anything is decoded by it, or the one that
columns make.

What decodes Avro has no limits of its own, so a schema has to be such that a datum takes no more memory than a fixed
multiple of its bytes: not recursive, not deep, and no items that are small and decode to much.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pqbroker.tables.columns import Column
from pqbroker.tables.refusals import TableError, nearest

AVRO_CHARACTERS_MAX: Final = 32_768
"""Characters of a schema's text at most; one of that length is read within 20 ms."""
AVRO_DEPTH_MAX: Final = 32
"""Types within one another."""
AVRO_TYPES_MAX: Final = 10_000
"""Types of a datum; a named one counts wherever it is used."""
_MEMORY_PER_BYTE_MAX: Final = 256
"""Bytes of memory that items of arrays and maps may take, once decoded, for each byte of their own."""
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}
_MEMORY = {"null": 0, "boolean": 0, "int": 32, "long": 32, "float": 24, "double": 24}
_TEXT_MEMORY = 64
_RECORD_MEMORY = 200
_FIELD_MEMORY = 16
_LIST_MEMORY = 64
_ITEM_MEMORY = 8
"""Bytes of an item of a list, about; as those above, in CPython."""
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
"""Avro types by the name of a column's type."""


class Branch(NamedTuple):
    """The values that a field may hold: a kind of Avro's, and what its schema says besides."""

    kind: str
    logical: str = ""
    scale: int = 0
    size: int = 0


class AvroRecord(NamedTuple):
    """A checked schema. `document` is the same without logical types, which are `branches`', by field."""

    document: Any
    branches: Mapping[str, Sequence[Branch]]
    definitions: Mapping[str, Any]
    """Documents of the types that have names, by these."""
    unbounded: Collection[str]
    """Fields with arrays or maps in them."""

    def narrowed(self, names: Collection[str]) -> Any:
        """A document without the fields that may hold much, but for those of some names. Others are read: what reads
        Avro does not see that a text which it skips is cut off."""
        left_out = set(self.unbounded).difference(names)
        fields = [field for field in self.document["fields"] if field["name"] not in left_out]
        return self._defined({**self.document, "fields": fields}, set())

    def _defined(self, document: Any, seen: set[str]) -> Any:
        """Return the document with each type defined where it is used first."""
        if isinstance(document, str):
            return document if document in PRIMITIVES or document in seen else self._defined(
                self.definitions[document], seen
            )  # fmt: skip
        if isinstance(document, list):
            return [self._defined(each, seen) for each in document]
        seen |= {document["name"]} if "name" in document else set()
        inner = {name: self._defined(document[name], seen) for name in ("items", "values") if name in document}
        fields = [{**each, "type": self._defined(each["type"], seen)} for each in document.get("fields", ())]
        return {**document, **inner, **({"fields": fields} if "fields" in document else {})}


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
    if len(text) > AVRO_CHARACTERS_MAX:
        cause = f"{name} has {len(text)} characters, and {AVRO_CHARACTERS_MAX} are the most"
        raise TableError("INVALID_SCHEMA", cause, "Leave out spaces and docs, or fields that no column needs.")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise TableError("INVALID_SCHEMA", f"{name} is no JSON", "Give the Avro schema of a record.") from None
    if not isinstance(given, dict) or given.get("type") != "record":
        text = f"{name} is no record"
        raise TableError("INVALID_SCHEMA", text, 'Give {"type": "record", "name": …, "fields": […]}.')
    walk = _Walk(name)
    top = walk.read(given, "", "the schema", 1)
    return AvroRecord(top.document, top.fields, walk.definitions, top.unbounded)


class _Type(NamedTuple):
    """A checked type. `excess`: by how many bytes its worst datum, once decoded, goes over what its own bytes allow;
    items do not count, for theirs is never above 0."""

    document: Any
    branches: tuple[Branch, ...]
    types: int = 1
    height: int = 1
    excess: int = 0
    fields: Mapping[str, Sequence[Branch]] = MappingProxyType({})
    """Fields of a record."""
    unbounded: frozenset[str] = frozenset()
    """Fields of a record that contain arrays or maps."""
    has_items: bool = False


class _Walk:
    """Reads types from outside in, each named one before it is used."""

    def __init__(self, config: str) -> None:
        self._config = config
        self._named: dict[str, _Type | None] = {}
        """None: it is being read, so what names it now is within it."""
        self.definitions: dict[str, Any] = {}

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
        excess = _MEMORY.get(kind, _TEXT_MEMORY) - _LEAST_BYTES.get(kind, 1) * _MEMORY_PER_BYTE_MAX
        return _Type(kind, (_branch(given, kind),), excess=excess)

    def _union(self, given: Sequence[Any], namespace: str, where: str, depth: int) -> _Type:
        parts = [self.read(each, namespace, f"{where}[{at}]", depth + 1) for at, each in enumerate(given)]
        if not parts:
            raise self._wrong(where, "is a union of nothing", "Give a type at least.")
        branches = tuple(branch for part in parts for branch in part.branches)
        excess = max(part.excess for part in parts) - _MEMORY_PER_BYTE_MAX
        return self._around(_Type([part.document for part in parts], branches, excess=excess), parts, where)

    def _block(self, given: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> _Type:
        inner = "items" if kind == "array" else "values"
        item = self.read(given.get(inner), namespace, f"{where}.{inner}", depth + 1)
        of_name = _TEXT_MEMORY - _MEMORY_PER_BYTE_MAX if kind == "map" else 0
        if item.excess + _ITEM_MEMORY + of_name > 0:
            cure = f"Have items that take no more than {_MEMORY_PER_BYTE_MAX} bytes of memory for each of their own."
            raise self._wrong(f"{where}.{inner}", "takes too few bytes for all that it decodes to", cure)
        memory = _LIST_MEMORY if kind == "array" else _RECORD_MEMORY
        document = {"type": kind, inner: item.document}
        made = _Type(document, (Branch(kind),), excess=memory - _MEMORY_PER_BYTE_MAX, has_items=True)
        return self._around(made, [item], where)

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
        self.definitions[document["name"]] = made.document
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
        excess = _RECORD_MEMORY + _FIELD_MEMORY * len(parts) + sum(part.excess for part in parts)
        unbounded = frozenset(name for name, part in read.items() if part.has_items)
        return self._around(made._replace(excess=excess, unbounded=unbounded), parts, where)

    def _sized(self, document: dict[str, Any], given: Mapping[str, Any], kind: str, where: str) -> _Type:
        if kind == "fixed":
            size = given.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _FIXED_BYTES_MAX:
                raise self._wrong(f"{where}.size", "is no size", f"Give 1 to {_FIXED_BYTES_MAX} bytes.")
            excess = _TEXT_MEMORY - size * _MEMORY_PER_BYTE_MAX
            return _Type({**document, "size": size}, (_branch(given, kind)._replace(size=size),), excess=excess)
        symbols = given.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
            raise self._wrong(f"{where}.symbols", "is no array of names", "Give one at least.")
        return _Type({**document, "symbols": symbols}, (Branch(kind),), excess=-_MEMORY_PER_BYTE_MAX)

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
        has_items = made.has_items or any(part.has_items for part in parts)
        return made._replace(types=types, height=height, has_items=has_items)

    def _wrong(self, where: str, what: str, cure: str) -> TableError:
        return TableError("INVALID_SCHEMA", f"{self._config}: {where} {what}", cure)


def _branch(given: Mapping[str, Any], kind: str) -> Branch:
    """An unknown logical type means nothing, as Avro says."""
    logical, scale = given.get("logicalType"), given.get("scale", 0)
    if not isinstance(logical, str) or isinstance(scale, bool) or not isinstance(scale, int):
        return Branch(kind)
    return Branch(kind, logical, scale)


_UNKNOWN: Final = _Type(None, ())
