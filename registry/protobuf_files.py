"""Protobuf schemas: text becomes descriptors, of which the library makes message classes.

Options are left aside but for aliases of enums, and so are services and extensions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from pqbroker.registry.limits import SCHEMA_LEVELS_MAX, DecodingLimits
from pqbroker.registry.schema_documents import check_levels, check_name, shorten
from pqbroker.registry.undecodable import INVALID_SCHEMA, LARGE_SCHEMA, Undecodable

MAIN_FILE: Final = "pqbroker/schema.proto"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final[Mapping[str, Any]] = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS: Final[Mapping[Any, Any]] = {
    ast.FieldCardinality.REPEATED: _Field.LABEL_REPEATED, ast.FieldCardinality.REQUIRED: _Field.LABEL_REQUIRED,
}  # fmt: skip
_KNOWN_FILES: Final = {
    each.DESCRIPTOR.name: each.DESCRIPTOR
    for each in (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2,
                 wrappers_pb2)
}  # fmt: skip
_CONFLUENT: Final[Mapping[str, str]] = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;'
        " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
}
"""Files that Confluent's registry has built in."""


def load_files(text: str, references: Mapping[str, str], limits: DecodingLimits) -> Any:
    """Return the descriptor of a schema's file; `references` are texts by the names that imports have. Undecodable."""
    pool = DescriptorPool()
    loading = _Loading(pool, references, limits.schema_types_max)
    try:
        return loading.add(MAIN_FILE, text, ())
    except TypeError as error:  # the library's one error for what a descriptor must not have
        raise Undecodable(INVALID_SCHEMA, f"the schema is no valid Protobuf: {str(error)[:200]}") from None


class _Loading:
    """Files that are put into a pool, those that a file imports before it."""

    def __init__(self, pool: DescriptorPool, references: Mapping[str, str], types_max: int) -> None:
        self._pool = pool
        self._references = references
        self._types_max = types_max
        self._types = 0
        self._loaded: set[str] = set()

    def add(self, name: str, text: str, path: tuple[str, ...]) -> Any:
        parsed = _parse(text)
        found = descriptor_pb2.FileDescriptorProto(name=name)
        if parsed.edition:
            found.syntax, found.edition = "editions", descriptor_pb2.EDITION_2023
        elif parsed.syntax == "proto3":
            found.syntax = "proto3"
        for each in parsed.file_elements:
            self._add_element(found, each, (*path, name))
        self._pool.Add(found) if hasattr(self._pool, "Add") else self._pool.AddSerializedFile(found.SerializeToString())
        self._loaded.add(name)
        return self._pool.FindFileByName(name)

    def _add_element(self, file: Any, element: Any, path: tuple[str, ...]) -> None:
        if isinstance(element, ast.Package):
            file.package = check_name(element.name, "a package")
        elif isinstance(element, ast.Import):
            self._import(check_name(element.name, "an import"), path)
            file.dependency.append(element.name)
            if element.public:
                file.public_dependency.append(len(file.dependency) - 1)
        elif isinstance(element, ast.Message):
            self._fill(file.message_type.add(), element.name, element.elements, file.syntax)
        elif isinstance(element, ast.Enum):
            self._fill_enum(file.enum_type.add(), element)

    def _import(self, name: str, path: tuple[str, ...]) -> None:
        if name in self._loaded:
            return
        if name in path:
            raise Undecodable(INVALID_SCHEMA, f"the file {shorten(name)} imports itself")
        if name in self._references:
            self.add(name, self._references[name], path)
        elif name in _CONFLUENT:
            self.add(name, _CONFLUENT[name], path)
        elif name in _KNOWN_FILES:
            self._add_known(_KNOWN_FILES[name])
        else:
            text = f"the schema imports {shorten(name)}, which is none of its references in the registry"
            raise Undecodable(INVALID_SCHEMA, text)

    def _add_known(self, file: Any) -> None:
        for each in file.dependencies:
            self._add_known(each)
        if file.name not in self._loaded:
            self._loaded.add(file.name)
            self._pool.AddSerializedFile(file.serialized_pb)

    def _fill(self, message: Any, name: str, elements: Sequence[Any], syntax: str) -> None:
        message.name = check_name(name, "a message")
        self._count(len(elements) + 1)
        for each in elements:
            if isinstance(each, ast.Message):
                self._fill(message.nested_type.add(), each.name, each.elements, syntax)
            elif isinstance(each, ast.Enum):
                self._fill_enum(message.enum_type.add(), each)
            elif isinstance(each, ast.OneOf):
                message.oneof_decl.add(name=check_name(each.name, "a oneof"))
                number = len(message.oneof_decl) - 1
                self._count(len(each.elements))
                for one in each.elements:
                    self._add_field(message, one, syntax, number)
            else:
                self._add_field(message, each, syntax, None)
        for field in message.field:  # those of real choices come first
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _add_field(self, message: Any, element: Any, syntax: str, oneof: int | None) -> None:
        if not isinstance(element, ast.Field | ast.MapField | ast.Group):
            return
        name = check_name(element.name, "a field")
        field = message.field.add(name=name, number=_number(element.number, name), label=_Field.LABEL_OPTIONAL)
        if oneof is not None:
            field.oneof_index = oneof
        if isinstance(element, ast.MapField):
            _add_entry(message, field, element)
            return
        field.label = _LABELS.get(element.cardinality, _Field.LABEL_OPTIONAL)
        if isinstance(element, ast.Group):
            self._fill(message.nested_type.add(), element.name, element.elements, syntax)
            field.name, field.type, field.type_name = element.name.lower(), _Field.TYPE_GROUP, element.name
            return
        _set_type(field, element.type)
        if syntax == "proto3" and element.cardinality is ast.FieldCardinality.OPTIONAL:
            field.proto3_optional = True

    def _fill_enum(self, enum: Any, element: ast.Enum) -> None:
        enum.name = check_name(element.name, "an enum")
        self._count(len(element.elements) + 1)
        for each in element.elements:
            if isinstance(each, ast.EnumValue):
                enum.value.add(name=check_name(each.name, "a value"), number=_number(each.number, each.name))
            elif isinstance(each, ast.Option) and each.name == "allow_alias" and each.value is True:
                enum.options.allow_alias = True

    def _count(self, count: int) -> None:
        self._types += count
        if self._types > self._types_max:
            text = f"the schema has more than pqbroker.registry.schema.types.max = {self._types_max} types and fields"
            raise Undecodable(LARGE_SCHEMA, text)


def _add_entry(message: Any, field: Any, element: ast.MapField) -> None:
    """A map is a repeated message of key and value."""
    name = "".join(part[:1].upper() + part[1:] for part in element.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
    _set_type(key, element.key_type)
    _set_type(value, element.value_type)
    field.label, field.type, field.type_name = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, name


def _set_type(field: Any, name: str) -> None:
    """A type that is none of the scalars is a message or an enum, which the library finds out."""
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = check_name(name, "a type")


def _number(number: Any, name: str) -> int:
    if not isinstance(number, int) or not -(1 << 31) <= number < 1 << 31:
        raise Undecodable(INVALID_SCHEMA, f"the number of {shorten(name)} is {shorten(number)}; it has 32 bits")
    return number


class _Refusing(ErrorListener):  # type: ignore[misc]
    """Refuses what the parser would mend."""

    def syntaxError(self, *details: Any) -> NoReturn:  # noqa: N802 - the library's name
        _, _, line, column, message, _ = details
        text = f"the schema is no Protobuf at line {line}, column {column}: {message[:100]}"
        raise Undecodable(INVALID_SCHEMA, text)


def _parse(text: str) -> ast.File:
    check_levels(text, SCHEMA_LEVELS_MAX)

    def refuse(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(_Refusing())

    try:
        return Parser(setup_lexer=refuse, setup_parser=refuse).parse(text)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError) as error:
        raise Undecodable(INVALID_SCHEMA, f"the schema is no Protobuf: {str(error)[:100]}") from None


