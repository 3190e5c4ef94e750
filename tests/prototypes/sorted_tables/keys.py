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
from typing import Any, Final

KEY_BYTES_MAX: Final = 4096
KEY_COLUMNS_MAX: Final = 32
_NULL, _VALUE = b"\0", b"\1"
_UNSIGNED = Struct(">BQ")
_SIGNED_SHIFT = 1 << 63
_DOUBLE, _WORD = Struct(">d"), Struct(">Q")
_ALL_BITS = (1 << 64) - 1

Encode = Callable[[Any], bytes]


def key_encoder(types: Sequence[str]) -> Callable[[Sequence[Any]], bytes]:
    """Return what encodes the values of key columns of these types, or of the first of them. ValueError names what is
    wanted instead."""
    encoders = tuple(_ENCODERS[name] for name in types)

    def encode(values: Sequence[Any]) -> bytes:
        key = b"".join([
            _NULL if value is None else each(value) for each, value in zip(encoders, values, strict=False)
        ])  # fmt: skip
        if len(key) > KEY_BYTES_MAX:
            raise ValueError(f"give a key of at most {KEY_BYTES_MAX} bytes; this one has {len(key)} when it is encoded")
        return key

    return encode


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


_ENCODERS: Mapping[str, Encode] = {
    **{f"int{bits}": _signed for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _unsigned for bits in (8, 16, 32, 64)},
    "double": _double,
    "boolean": _boolean,
    "string": _string,
    "utf8": _utf8,
    "timestamp": _unsigned,
}
"""Encoders by the name of a type; `any` has none, since it has no order."""
