"""Confluent's wire format: a 0, the number of the schema in four bytes, and the value; for Protobuf the path to its
message before the value."""

from typing import Final, NamedTuple

from pqbroker.registry.undecodable import INVALID_VALUE, NOT_FRAMED, Undecodable

FRAME_MAGIC: Final = 0
FRAME_BYTES: Final = 5
_VARINT_BYTES_MAX: Final = 10


class Framed(NamedTuple):
    """The number of a value's schema, and what stands behind it."""

    schema_id: int
    body: memoryview


def unframe(content: bytes) -> Framed:
    """Return the parts of a value. Undecodable NOT_FRAMED."""
    if len(content) < FRAME_BYTES or content[0] != FRAME_MAGIC:
        text = "does not begin with a 0 and the four bytes of a schema's number, as producers with a registry write"
        raise Undecodable(NOT_FRAMED, f"the content {text}")
    return Framed(int.from_bytes(content[1:FRAME_BYTES]), memoryview(content)[FRAME_BYTES:])


def read_varint(body: memoryview, position: int) -> tuple[int, int]:
    """Return a zigzag integer of 64 bits and the position behind it. Undecodable VALUE_INVALID."""
    found = shift = 0
    for place in range(position, min(position + _VARINT_BYTES_MAX, len(body))):
        byte = body[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            if found >> 64:
                break
            return (found >> 1) ^ -(found & 1), place + 1
        shift += 7
    raise Undecodable(INVALID_VALUE, f"byte {position} begins no integer of at most 64 bits")


def read_message_path(body: memoryview, levels_max: int) -> tuple[tuple[int, ...], memoryview]:
    """Return the path to a Protobuf message, by positions within the file and then within messages, and the message.
    Undecodable VALUE_INVALID."""
    count, position = read_varint(body, 0)
    if count == 0:
        return (0,), body[position:]
    if not 0 < count <= levels_max:
        raise Undecodable(INVALID_VALUE, f"the path to its message has {count} steps; at most {levels_max} are read")
    path = []
    for _ in range(count):
        step, position = read_varint(body, position)
        path.append(step)
    return tuple(path), body[position:]
