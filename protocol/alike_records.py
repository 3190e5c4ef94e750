"""A quick look at keys where the records of a batch are alike, as those of one program often are.

Records of a run have the same size, and so have their keys and values. So they lie a fixed number of bytes apart, and
a slice with a step has the same byte of all of them, which is compared in one call. Where that proves nothing,
`record_parts` walks through the records.
"""

from typing import Final

from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.primitives import read_unsigned_varint

ALIKE_RECORDS_MIN: Final = 32
"""Fewer records are walked through in less time."""
_RUN_RECORDS: Final = 32
"""Records of an average run from which on this takes clearly less time than a walk."""
_RUNS_SPARE: Final = 4
"""Runs that may be shorter."""
_TIME_BYTES_MAX: Final = 10
"""Bytes of the longest varint that a time is. Who looks for the end of a longer one looks through the whole batch."""
_DELTAS_MAX: Final = 1 << 15
_BLOCK: Final = 64
"""Offset deltas this far apart have the same first byte: its seven bits are six of the number and its sign."""
_LAST: Final = bytes(range(128))
"""Last bytes of varints."""
_MORE: Final = bytes(range(128, 256))
"""Bytes of varints that have one behind them."""
_NULL: Final = 1

_FIRST: Final = bytes(range(128, 256, 2)) * (_DELTAS_MAX // _BLOCK)
_HIGHER: Final = b"".join(bytes([number]) * _BLOCK for number in range(128))
_DELTAS: Final = (
    (_BLOCK, (bytes(range(0, 128, 2)),)),
    (_BLOCK << 7, (_FIRST, _HIGHER)),
    (
        _DELTAS_MAX,
        (
            _FIRST,
            b"".join(bytes([number]) * _BLOCK for number in _MORE) * (_DELTAS_MAX // _BLOCK // 128),
            b"".join(bytes([number]) * (_BLOCK << 7) for number in range(_DELTAS_MAX // _BLOCK // 128)),
        ),
    ),
)
"""Offset deltas of one, two and three bytes: the limit below which they lie, and a column for each of their bytes."""


def have_keys_alike(data: bytes | bytearray, count: int) -> bool:
    """Return True if the bytes are proven to be `count` records with offset deltas from 0 on, all with a key. False:
    they are not, or differ too often."""
    if count > _DELTAS_MAX:
        return False
    at = index = runs = 0
    while index < count:
        if runs > _RUNS_SPARE + index // _RUN_RECORDS:
            return False
        try:
            size, alike = _run(data, at, index, count)
        except (IndexError, ProtocolError):
            return False
        if not alike:
            return False
        at += size * alike
        index += alike
        runs += 1
    return at == len(data)


def _run(data: bytes | bytearray, at: int, index: int, count: int) -> tuple[int, int]:
    """Return the size of the record at a position, and how many records from there on are alike and have a key; 0: not
    even this one. IndexError and ProtocolError for numbers that end too late."""
    length, attributes = read_unsigned_varint(data, at)
    delta = attributes + 1
    while data[delta] >= 128:  # the time
        delta += 1
        if delta > attributes + _TIME_BYTES_MAX:
            return 0, 0
    delta += 1
    last, columns = next(each for each in _DELTAS if index < each[0])
    key = delta + len(columns)
    key_length, key_at = read_unsigned_varint(data, key)
    value = key_at + (key_length >> 1)
    value_length, value_at = read_unsigned_varint(data, value)
    headers = value_at if value_length == _NULL else value_at + (value_length >> 1)
    size = headers + 1 - at
    is_sound = attributes + (length >> 1) == headers + 1 and not data[headers]
    if not is_sound or (length | key_length) & 1 or (value_length & 1 and value_length != _NULL):
        return size, 0
    alike = min(min(last, count) - index, (len(data) - at) // size)
    for column in (*range(at, attributes), *range(key, key_at), *range(value, value_at), headers):
        found = data[column : column + size * alike : size]
        alike -= len(found.lstrip(found[:1]))
    for column in range(attributes + 1, delta - 1):
        alike -= len(data[column : column + size * alike : size].lstrip(_MORE))
    found = data[delta - 1 : delta - 1 + size * alike : size]
    if not found.isascii():
        alike -= len(found.lstrip(_LAST))
    for position, column in enumerate(columns, delta):
        if data[position : position + size * alike : size] != column[index : index + alike]:
            return size, 0
    return size, alike
