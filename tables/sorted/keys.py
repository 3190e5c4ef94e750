"""Keys of sorted tables as bytes that sort as their values do, column by column, null first.

    value      1 byte 0 for null, else 1 and the value's bytes
    integer    8 bytes, big endian; of a signed one the sign's bit is turned
    double     8 bytes, big endian; of a negative one all bits are turned, else the sign's; -0 counts as 0
    boolean    1 byte
    string     its bytes, a zero written as 0 255, and two zeros behind: a prefix sorts before what it begins
    timestamp  as an unsigned integer

A prefix of key columns is a prefix of the bytes, so that pivots, block indexes and searches compare bytes alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

ENCODED_KEY_BYTES_MAX: Final = 4096
KEY_COLUMNS_MAX: Final = 32
_NULL, _VALUE = b"\0", b"\1"
_UNSIGNED = Struct(">BQ")
_SIGNED_SHIFT = 1 << 63
_DOUBLE, _WORD = Struct(">d"), Struct(">Q")
_ALL_BITS = (1 << 64) - 1

EncodeKey = Callable[[Any], bytes]
DecodeKey = Callable[[bytes, int], tuple[Any, int]]
"""Takes a key and the position behind a value's first byte: the value, and the position behind it."""


def key_encoder(types: Sequence[str]) -> Callable[[Sequence[Any]], bytes]:
    """Return what encodes the values of key columns of these types, or of the first of them. ValueError names what is
    wanted instead."""
    encoders = tuple(_ENCODERS[name] for name in types)

    def encode(values: Sequence[Any]) -> bytes:
        key = b"".join([
            _NULL if value is None else each(value) for each, value in zip(encoders, values, strict=False)
        ])  # fmt: skip
        if len(key) > ENCODED_KEY_BYTES_MAX:
            text = f"give a key of at most {ENCODED_KEY_BYTES_MAX} bytes; this one has {len(key)} when it is encoded"
            raise ValueError(text)
        return key

    return encode


def key_decoder(types: Sequence[str]) -> Callable[[bytes], list[Any]]:
    """Return what gives the values of an encoded key, or of a prefix of one. ValueError for bytes that are none."""
    decoders = tuple(_DECODERS[name] for name in types)

    def decode(key: bytes) -> list[Any]:
        values: list[Any] = []
        position = 0
        try:
            for each in decoders:
                if position == len(key):
                    break
                first, position = key[position : position + 1], position + 1
                value, position = (None, position) if first == _NULL else each(key, position)
                values.append(value)
        except (IndexError, ValueError, struct_error) as damage:
            raise ValueError(f"{key[:100].hex()} is no key of {', '.join(types)}: {damage}") from None
        if position != len(key):
            raise ValueError(f"{key[:100].hex()} has {len(key) - position} bytes behind a key of {', '.join(types)}")
        return values

    return decode


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least bytes that sort behind all that begin with `prefix`; None: there are none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None


def _signed(value: int) -> bytes:
    return _UNSIGNED.pack(1, value + _SIGNED_SHIFT)


def _unsigned(value: int) -> bytes:
    return _UNSIGNED.pack(1, value)


def _double(value: float) -> bytes:
    if math.isnan(value):
        raise ValueError("give a number: NaN has no place among keys")
    (bits,) = _WORD.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 + 0.0 is 0.0
    return _UNSIGNED.pack(1, bits ^ (_ALL_BITS if bits & _SIGNED_SHIFT else _SIGNED_SHIFT))


def _boolean(value: bool) -> bytes:
    return b"\1\1" if value else b"\1\0"


def _string(value: bytes) -> bytes:
    return b"%s%s\0\0" % (_VALUE, value.replace(b"\0", b"\0\xff"))


def _utf8(value: str) -> bytes:
    return _string(value.encode())


def _read_signed(key: bytes, position: int) -> tuple[int, int]:
    (value,) = _WORD.unpack_from(key, position)
    return value - _SIGNED_SHIFT, position + _WORD.size


def _read_unsigned(key: bytes, position: int) -> tuple[int, int]:
    (value,) = _WORD.unpack_from(key, position)
    return value, position + _WORD.size


def _read_double(key: bytes, position: int) -> tuple[float, int]:
    (bits,) = _WORD.unpack_from(key, position)
    (value,) = _DOUBLE.unpack(_WORD.pack(bits ^ (_SIGNED_SHIFT if bits & _SIGNED_SHIFT else _ALL_BITS)))
    return value, position + _WORD.size


def _read_boolean(key: bytes, position: int) -> tuple[bool, int]:
    return bool(key[position]), position + 1


def _read_string(key: bytes, position: int) -> tuple[bytes, int]:
    end = position
    while True:
        end = key.index(b"\0", end)
        if key[end + 1] == 0:
            return key[position:end].replace(b"\0\xff", b"\0"), end + 2
        end += 2


def _read_utf8(key: bytes, position: int) -> tuple[str, int]:
    value, end = _read_string(key, position)
    return value.decode(), end


_ENCODERS: Mapping[str, EncodeKey] = {
    **{f"int{bits}": _signed for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _unsigned for bits in (8, 16, 32, 64)},
    "double": _double,
    "boolean": _boolean,
    "string": _string,
    "utf8": _utf8,
    "timestamp": _unsigned,
}
"""Encoders by the name of a type; `any` has none, since it has no order."""
_DECODERS: Mapping[str, DecodeKey] = {
    **{f"int{bits}": _read_signed for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _read_unsigned for bits in (8, 16, 32, 64)},
    "double": _read_double,
    "boolean": _read_boolean,
    "string": _read_string,
    "utf8": _read_utf8,
    "timestamp": _read_unsigned,
}
