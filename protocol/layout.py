"""Layout of messages for what compares or cuts their bytes instead of decoding them, by the same declarations."""

import struct
from collections.abc import Collection
from functools import cache
from itertools import takewhile
from typing import Any

from pqbroker.protocol.codec import encoder
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import Field, Kind, wire_fields


@cache
def codes(declared: type, version: int, *, after: str = "", until: str = "", only: Collection[str] = ()) -> str:
    """Return the `struct` codes of a struct's fields behind `after`, up to `until` or to one without a fixed size.

    `only`: the fields whose values count; the bytes of the others are stepped over.
    """
    fields = [item for item in wire_fields(declared, version) if item.tag is None]
    begin = [item.name for item in fields].index(after) + 1 if after else 0
    found = ""
    for item in takewhile(lambda item: item.name != until and _code(item), fields[begin:]):
        found += f"{struct.calcsize('>' + _code(item))}x" if only and item.name not in only else _code(item)
    return found


def count_bytes(count: int, *, flexible: bool) -> bytes:
    """Return the bytes that begin an array of `count` elements."""
    return unsigned_varint(count + 1) if flexible else count.to_bytes(4, "big")


def encoded(message: Any, version: int) -> bytes:
    """Return the bytes of a whole message."""
    return b"".join(encoder(type(message), version)(message))


def _code(item: Field) -> str:
    return item.kind.code if isinstance(item.kind, Kind) else ""
