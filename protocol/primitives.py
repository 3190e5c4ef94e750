"""Variable-length integers and the buffer type: what every other file of the wire format stands on."""

from typing import Final

from pqbroker.protocol.errors import ProtocolError, TooManyElements

Buffer = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
"""Kafka's absent id."""

ELEMENTS_MAX: Final = 1 << 20
"""Array elements and tagged fields of one message, all together: bounds what decoding it takes in memory and time."""

STRING_BYTES_MAX: Final = 32_767
"""The longest string, in UTF-8, in every version: as in Kafka, where a compact length could say more."""

TAGGED_FIELDS_MAX: Final = 1000
"""Unknown tagged fields of one struct: newer clients send a few."""

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The value at `position` and the position behind it; ProtocolError when it is longer than 5 bytes."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError("a varint is longer than 5 bytes")


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """The zigzag value at `position` (up to 64 bits) and the position behind it. Most have one or two bytes."""
    value = data[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    byte = data[position + 1]
    if byte < 0x80:
        value = value & 0x7F | byte << 7
        return (value >> 1) ^ -(value & 1), position + 2
    return _read_long_varlong(data, position)


def _read_long_varlong(data: Buffer, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARLONG_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise ProtocolError("a varlong is longer than 10 bytes")


def unsigned_varint(value: int) -> bytes:
    """Encode `value` >= 0, seven bits a byte, the lowest first."""
    if value < len(_SHORT):
        return _SHORT[value]
    return _long_varint(value)


def varlong(value: int) -> bytes:
    """Encode a signed value in zigzag form, so that small negative numbers stay short."""
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def skip_tagged_fields(data: Buffer, position: int, end: int, fields_max: int) -> tuple[int, int]:
    """The position behind a section of tagged fields, none of which is looked at (KIP-482), and their number."""
    count, position = read_unsigned_varint(data, position)
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"a struct has {count} unknown tagged fields; the most allowed is {TAGGED_FIELDS_MAX}")
    if count > fields_max:
        raise TooManyElements(f"a message has {count} unknown tagged fields; {fields_max} more elements are allowed")
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > end:
            raise ProtocolError("a tagged field runs past the end")
    return position, count


def _long_varint(value: int) -> bytes:
    assert value >= 0
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT: Final = tuple(_long_varint(value) for value in range(1024))
