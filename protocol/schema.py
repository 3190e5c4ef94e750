"""The words messages are declared in, read like Kafka's JSON: one class per struct, for all its versions.

Nothing is encoded here; `protocol.codec` compiles a declaration and a version to functions.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, dataclass_transform, overload

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.primitives import ZERO_UUID

T = TypeVar("T")

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1


class Versions(NamedTuple):
    """An inclusive range of message versions."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


NO_VERSIONS: Final = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type on the wire: its `struct` format in `code` when its size is fixed, else empty; an array's `element`."""

    name: str
    code: str
    default: Any
    element: "Kind[Any] | type | None" = None


BOOL: Final[Kind[bool]] = Kind("bool", "?", False)
INT8: Final[Kind[int]] = Kind("int8", "b", 0)
INT16: Final[Kind[int]] = Kind("int16", "h", 0)
UINT16: Final[Kind[int]] = Kind("uint16", "H", 0)
ERROR_CODE: Final[Kind[ErrorCode]] = Kind("error_code", "h", ErrorCode.NONE)
"""The encoder reports each one that is not NONE, so that no handler has to."""
INT32: Final[Kind[int]] = Kind("int32", "i", 0)
INT64: Final[Kind[int]] = Kind("int64", "q", 0)
UUID: Final[Kind[bytes]] = Kind("uuid", "16s", ZERO_UUID)
FLOAT64: Final[Kind[float]] = Kind("float64", "d", 0.0)
STRING: Final[Kind[str]] = Kind("string", "", "")
BYTES: Final[Kind[bytes]] = Kind("bytes", "", b"")
"""Opaque bytes, copied out of the input: what is remembered of a request does not keep its frame."""
RECORDS: Final[Kind[memoryview]] = Kind("records", "", None)
"""Record batches: decoded to a slice of the input; encoded from one buffer or a sequence of them, never copied."""


def array(element: Kind[T] | type[T]) -> Kind[list[T]]:
    """An array of a kind or of a struct."""
    return Kind("array", "", MISSING, element)


@dataclass(frozen=True, slots=True)
class Field:
    """One field as declared; `tag` is None unless it travels as a tagged field."""

    name: str
    kind: Kind[Any] | type
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Any

    @property
    def is_constant(self) -> bool:
        """Return True if the default is one value; else it is a new list or struct."""
        return self.default is not MISSING

    @property
    def literal(self) -> str:
        """The default as source code, where it is a constant."""
        return str(int(self.default)) if self.kind is ERROR_CODE else repr(self.default)

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


@dataclass(frozen=True, slots=True)
class Message:
    """The declaration of a message class; data that travels inside another message has no API's key."""

    api_key: int | None
    versions: Versions
    flexible: Versions
    may_be_longer: bool


@overload
def field(kind: Kind[T], versions: str = "0+", *, tag: int | None = None, default: T = ...) -> T: ...
@overload
def field(
    kind: Kind[T], versions: str = "0+", *, nullable: str, tag: int | None = None, default: T | None = ...
) -> T | None: ...
@overload
def field(kind: type[T], versions: str = "0+", *, tag: int) -> T | None: ...
@overload
def field(kind: type[T], versions: str = "0+", *, nullable: str) -> T | None: ...
@overload
def field(kind: type[T], versions: str = "0+") -> T: ...
def field(
    kind: Kind[Any] | type, versions: str = "0+", *, nullable: str = "", tag: int | None = None, default: Any = MISSING
) -> Any:
    """Declare a field and the versions that have it; outside them it keeps its default and is not sent.

    A struct is declared by its class; with a `tag` or `nullable` it is None unless it is sent, else a struct of
    defaults. A field with a `tag` is sent only when it differs from its default.
    """
    if default is MISSING:
        default = kind.default if isinstance(kind, Kind) else None if nullable or tag is not None else MISSING
    declared = Field("", kind, parse_versions(versions), parse_versions(nullable) if nullable else None, tag, default)
    metadata = {"wire": declared}
    if default is MISSING:
        made: Callable[[], Any] = list if isinstance(kind, Kind) else kind
        return dataclasses.field(default_factory=made, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True)
def struct(declared: type[T]) -> type[T]:
    """Make a struct of a class of declared fields: mutable, slotted, every field with a default."""
    return dataclass(slots=True, kw_only=True)(declared)


@dataclass_transform(kw_only_default=True)
def request(api_key: int, *, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Declare a request: its versions, and those that are flexible (KIP-482)."""

    def declare(declared: type[T]) -> type[T]:
        made = struct(declared)
        _messages[made] = Message(api_key, parse_versions(versions), parse_versions(flexible), may_be_longer=True)
        _flexible_requests[api_key] = parse_versions(flexible)
        return made

    return declare


@dataclass_transform(kw_only_default=True)
def response(api_key: int, *, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Declare the response to the request of the same key."""

    def declare(declared: type[T]) -> type[T]:
        made = struct(declared)
        _messages[made] = Message(api_key, parse_versions(versions), parse_versions(flexible), may_be_longer=False)
        return made

    return declare


@dataclass_transform(kw_only_default=True)
def data(*, versions: str) -> Callable[[type[T]], type[T]]:
    """Declare what travels as bytes inside a message; no version of it is flexible, and later ones only add to it."""

    def declare(declared: type[T]) -> type[T]:
        made = struct(declared)
        _messages[made] = Message(None, parse_versions(versions), NO_VERSIONS, may_be_longer=True)
        return made

    return declare


def message(declared: type) -> Message:
    """Return the declaration of a request, response or data class."""
    return _messages[declared]


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return True if that version of an API is flexible; False for an API that is not declared."""
    low, high = _flexible_requests.get(api_key, NO_VERSIONS)
    return low <= api_version <= high


def wire_fields(declared: type, version: int) -> list[Field]:
    """The fields that a version of a struct has, in the order declared."""
    every = [dataclasses.replace(item.metadata["wire"], name=item.name) for item in dataclasses.fields(declared)]
    return [item for item in every if version in item.versions]


_messages: dict[type, Message] = {}
_flexible_requests: dict[int, Versions] = {}

_VERSION_MAX: Final = 32_767


def parse_versions(text: str) -> Versions:
    """Parse Kafka's notation: `3+`, `0-12`, `5`, `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _VERSION_MAX)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))
