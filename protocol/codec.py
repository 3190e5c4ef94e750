"""Encoders and decoders, compiled once for each message and version from its declaration."""

from collections.abc import Callable, Generator
from typing import Protocol, TypeVar, cast

from pqbroker.protocol.decoding import decoder_source, sliced_decoder_source
from pqbroker.protocol.encoding import encoder_source, sliced_encoder_source
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.primitives import Buffer
from pqbroker.protocol.schema import message

T = TypeVar("T")


T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Decode(Protocol[T_co]):
    """Takes a body apart. `elements_max`: how many array elements and tagged fields it may have, all together."""

    def __call__(self, data: memoryview, elements_max: int = ...) -> T_co: ...


class Encode(Protocol[T_contra, T_co]):
    """Writes a body. `on_error` is called with each error code of the message (`schema.ERROR_CODE`), NONE excepted."""

    def __call__(self, message: T_contra, on_error: Callable[[ErrorCode], None] = ...) -> T_co: ...


def decoder(declared: type[T], version: int) -> Decode[T]:
    """Return a function from the whole body of a message to an object; it raises ProtocolError for a malformed one.

    Record data stays a slice of the input. What is allocated is bounded by a multiple of the input's size.
    TooManyElements where it is well-formed so far.
    """
    return cast(Decode[T], _function("decode", "", decoder_source, declared, version))


def sliced_decoder(declared: type[T], version: int) -> Decode[Generator[None, None, tuple[T, int]]]:
    """Return a decoder for long messages: it pauses after each element, and returns the object and the count of
    elements."""
    made = _function("decode", "sliced ", sliced_decoder_source, declared, version)
    return cast(Decode[Generator[None, None, tuple[T, int]]], made)


def encoder(declared: type[T], version: int) -> Encode[T, list[Buffer]]:
    """Return a function from an object to the buffers of its body, end to end; record data is passed on uncopied."""
    return cast(Encode[T, list[Buffer]], _function("encode", "", encoder_source, declared, version))


def sliced_encoder(declared: type[T], version: int) -> Encode[T, Generator[int, None, list[Buffer]]]:
    """Return an encoder for long messages: it pauses after each element of an array, and yields the count of bytes made
    since then."""
    made = _function("encode", "sliced ", sliced_encoder_source, declared, version)
    return cast(Encode[T, Generator[int, None, list[Buffer]]], made)


_Writer = Callable[[type, int], tuple[str, dict[str, object]]]

_functions: dict[tuple[str, str, type, int], object] = {}


def _function(name: str, how: str, write: _Writer, declared: type, version: int) -> object:
    """The function `name` of a message at a version, compiled when it is first asked for."""
    known = _functions.get((name, how, declared, version))
    if known is not None:
        return known
    assert version in message(declared).versions
    source, names = write(declared, version)
    exec(compile(source, f"<{how}{name} {declared.__name__} v{version}>", "exec"), names)
    return _functions.setdefault((name, how, declared, version), names[name])
