"""Encoders and decoders, compiled once for each message and version from its declaration."""

from collections.abc import Callable
from typing import TypeVar, cast

from pqbroker.protocol.decoding import decoder_source
from pqbroker.protocol.encoding import encoder_source
from pqbroker.protocol.primitives import Buffer
from pqbroker.protocol.schema import message

T = TypeVar("T")


def decoder(declared: type[T], version: int) -> Callable[[memoryview], T]:
    """A function from the whole body of a message to an object; ProtocolError when it is malformed.

    Record data stays a slice of the input. What is allocated is bounded by a multiple of the input's size.
    """
    return cast(Callable[[memoryview], T], _function("decode", decoder_source, declared, version))


def encoder(declared: type[T], version: int) -> Callable[[T], list[Buffer]]:
    """A function from an object to the buffers of its body, end to end; record data is passed on uncopied."""
    return cast(Callable[[T], list[Buffer]], _function("encode", encoder_source, declared, version))


_Writer = Callable[[type, int], tuple[str, dict[str, object]]]

_functions: dict[tuple[str, type, int], object] = {}


def _function(name: str, write: _Writer, declared: type, version: int) -> object:
    """The function `name` of a message at a version, compiled when it is first asked for."""
    known = _functions.get((name, declared, version))
    if known is not None:
        return known
    assert version in message(declared).versions
    source, names = write(declared, version)
    exec(compile(source, f"<{name} {declared.__name__} v{version}>", "exec"), names)
    return _functions.setdefault((name, declared, version), names[name])
