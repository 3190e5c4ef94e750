"""Encoders and decoders, compiled once for each message and version from its declaration."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

from pqbroker.protocol.decoding import decoder_source
from pqbroker.protocol.encoding import encoder_source
from pqbroker.protocol.primitives import Buffer
from pqbroker.protocol.schema import message

T = TypeVar("T")


@cache
def decoder(declared: type[T], version: int) -> Callable[[memoryview], T]:
    """A function from the whole body of a message to an object; ProtocolError when it is malformed.

    Record data stays a slice of the input. What is allocated is bounded by a multiple of the input's size.
    """
    assert version in message(declared).versions
    return cast(Callable[[memoryview], T], _compile("decode", declared, version, *decoder_source(declared, version)))


@cache
def encoder(declared: type[T], version: int) -> Callable[[T], list[Buffer]]:
    """A function from an object to the buffers of its body, end to end; record data is passed on uncopied."""
    assert version in message(declared).versions
    return cast(Callable[[T], list[Buffer]], _compile("encode", declared, version, *encoder_source(declared, version)))


def _compile(name: str, declared: type, version: int, source: str, names: dict[str, object]) -> object:
    exec(compile(source, f"<{name} {declared.__name__} v{version}>", "exec"), names)
    return names[name]
