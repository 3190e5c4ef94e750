"""Protobuf: values by a schema's messages, as JSON, and their shape.

Fields have the names of the schema, and integers are numbers, unlike in Protobuf's own JSON. A field without presence
has its default where it was not sent; another one is null.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pqbroker.registry.cursor import Budget, show_float
from pqbroker.registry.limits import SCHEMA_LEVELS_MAX, DecodingLimits
from pqbroker.registry.protobuf_files import load_files
from pqbroker.registry.shapes import ANY_SHAPE, ValueShape
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.times import show_moment
from pqbroker.registry.undecodable import INVALID_SCHEMA, INVALID_VALUE, Undecodable
from pqbroker.registry.wire_format import read_message_path

_SHAPES: Final[Mapping[int, Kind]] = {
    FieldDescriptor.CPPTYPE_INT32: Kind.INT, FieldDescriptor.CPPTYPE_UINT32: Kind.LONG,
    FieldDescriptor.CPPTYPE_INT64: Kind.LONG, FieldDescriptor.CPPTYPE_UINT64: Kind.UNSIGNED_LONG,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.DOUBLE, FieldDescriptor.CPPTYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.CPPTYPE_BOOL: Kind.BOOLEAN, FieldDescriptor.CPPTYPE_ENUM: Kind.STRING,
    FieldDescriptor.CPPTYPE_STRING: Kind.STRING,
}  # fmt: skip
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufReader:
    """The messages of a schema."""

    def __init__(self, text: str, references: Mapping[str, str], limits: DecodingLimits) -> None:
        """Compile a schema. Undecodable."""
        self._file = load_files(text, references, limits)
        self._types_max = limits.schema_types_max
        self._messages: dict[tuple[int, ...], Any] = {}

    @property
    def shape(self) -> ValueShape:
        """Return the shape of the first message, which values have unless their path says otherwise."""
        return _MessageShaping(self._types_max).message(self._message((0,)), ())

    def read(self, body: memoryview, limits: DecodingLimits) -> Any:
        """Return a value, behind the path to its message. Undecodable."""
        path, rest = read_message_path(body, SCHEMA_LEVELS_MAX)
        message = GetMessageClass(self._message(path))()
        try:
            message.ParseFromString(bytes(rest))
        except DecodeError as error:
            raise Undecodable(INVALID_VALUE, f"the value is no such message: {str(error)[:100]}") from None
        return _show_message(message, Budget(limits))

    def _message(self, path: tuple[int, ...]) -> Any:
        found = self._messages.get(path)
        if found is None:
            held: Any = self._file.message_types_by_name
            for step in path:
                found = _nth(held, step)
                held = found.nested_types
            self._messages[path] = found
        return found


def _nth(held: Any, step: int) -> Any:
    messages = [each for each in (held.values() if hasattr(held, "values") else held) if not _is_entry(each)]
    if not 0 <= step < len(messages):
        code = INVALID_SCHEMA if hasattr(held, "values") and not messages else INVALID_VALUE
        raise Undecodable(code, f"the value names message {step}, and its schema has {len(messages)} there")
    return messages[step]


def _is_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


class _MessageShaping:
    """Finds the shapes of messages, each as often as it is named: beyond as many parts as a schema may have, anything.
    """

    def __init__(self, types_max: int) -> None:
        self._left = types_max

    def message(self, message: Any, path: tuple[str, ...]) -> ValueShape:
        """Return the shape of a message that lies in those of `path`."""
        known = self._known(message)
        if known is not None:
            return known
        self._left -= len(message.fields) + 1
        if message.full_name in path or len(path) > SCHEMA_LEVELS_MAX or self._left < 0:
            return ANY_SHAPE
        inner = (*path, message.full_name)
        return ValueShape(Kind.RECORD, True, tuple((field.name, self._field(field, inner)) for field in message.fields))

    def _known(self, message: Any) -> ValueShape | None:
        name = message.full_name
        if name == "google.protobuf.Timestamp":
            return ValueShape(Kind.TIMESTAMP)
        if name in _WRAPPERS:
            return replace(self._single(message.fields_by_name["value"], ()), is_optional=True)
        if name == "google.protobuf.Duration":
            return ValueShape(Kind.STRING)
        return ANY_SHAPE if name in _OPEN else None

    def _field(self, field: Any, path: tuple[str, ...]) -> ValueShape:
        if not field.is_repeated:
            return replace(self._single(field, path), is_optional=field.has_presence)
        if field.message_type is not None and _is_entry(field.message_type):
            return ValueShape(Kind.MAP, False, items=self._single(field.message_type.fields_by_name["value"], path))
        return ValueShape(Kind.ARRAY, False, items=self._single(field, path))

    def _single(self, field: Any, path: tuple[str, ...]) -> ValueShape:
        if field.message_type is not None:
            return self.message(field.message_type, path)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return ValueShape(Kind.BINARY, False)
        return ValueShape(_SHAPES[field.cpp_type], False)


def _show_message(message: Any, budget: Budget) -> Any:
    descriptor = message.DESCRIPTOR
    known = _KNOWN.get(descriptor.full_name)
    if known is not None:
        return known(message, budget)
    budget.take_parts(len(descriptor.fields) + 1)
    budget.enter()
    shown = {field.name: _show_field(message, field, budget) for field in descriptor.fields}
    budget.leave()
    return shown


def _show_field(message: Any, field: Any, budget: Budget) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if not field.is_repeated:
        return _show(field, value, budget)
    budget.take_parts(len(value))
    if field.message_type is not None and _is_entry(field.message_type):
        held = field.message_type.fields_by_name["value"]
        return {_key(key): _show(held, value[key], budget) for key in value}
    return [_show(field, each, budget) for each in value]


def _show(field: Any, value: Any, budget: Budget) -> Any:
    if field.message_type is not None:
        return _show_message(value, budget)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return show_float(value) if isinstance(value, float) else value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _show_timestamp(message: Any, budget: Budget) -> Any:
    return show_moment(message.seconds * 1_000_000 + message.nanos // 1000)


def _show_duration(message: Any, budget: Budget) -> Any:
    try:
        return message.ToJsonString()
    except ValueError as error:
        raise Undecodable(INVALID_VALUE, f"a duration is invalid: {str(error)[:100]}") from None


def _show_wrapper(message: Any, budget: Budget) -> Any:
    budget.take_parts(1)
    return _show(message.DESCRIPTOR.fields_by_name["value"], message.value, budget)


def _show_struct(message: Any, budget: Budget) -> Any:
    budget.take_parts(len(message.fields))
    budget.enter()
    shown = {name: _show_open(message.fields[name], budget) for name in message.fields}
    budget.leave()
    return shown


def _show_list(message: Any, budget: Budget) -> Any:
    budget.take_parts(len(message.values))
    budget.enter()
    shown = [_show_open(each, budget) for each in message.values]
    budget.leave()
    return shown


def _show_open(message: Any, budget: Budget) -> Any:
    """A value of any JSON."""
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    value = getattr(message, kind)
    if kind == "struct_value":
        return _show_struct(value, budget)
    if kind == "list_value":
        return _show_list(value, budget)
    return show_float(value) if kind == "number_value" else value


_OPEN: Final[Mapping[str, Callable[[Any, Budget], Any]]] = {
    "google.protobuf.Struct": _show_struct, "google.protobuf.Value": _show_open,
    "google.protobuf.ListValue": _show_list,
}  # fmt: skip
_KNOWN: Final[Mapping[str, Callable[[Any, Budget], Any]]] = {
    **_OPEN, **dict.fromkeys(_WRAPPERS, _show_wrapper), "google.protobuf.Timestamp": _show_timestamp,
    "google.protobuf.Duration": _show_duration,
}  # fmt: skip
