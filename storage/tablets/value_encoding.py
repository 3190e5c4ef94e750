"""A short, self-describing form of what row sets hold: None, bool, int, float, str, bytes, lists and dicts of them."""

from collections.abc import Iterator
from struct import Struct

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]

_NONE, _FALSE, _TRUE, _INT, _FLOAT, _STR, _BYTES, _LIST, _DICT = range(9)
_DOUBLE = Struct(">d")


def encode(value: object) -> bytes:
    """The value's bytes; a tuple counts as a list. TypeError for anything that is no value."""
    out = bytearray()
    _encode(out, value)
    return bytes(out)


def encode_list_head(count: int) -> bytes:
    """Return what stands before the bytes of a list's `count` values."""
    out = bytearray()
    _encode_head(out, _LIST, count)
    return bytes(out)


def decode(data: bytes | bytearray | memoryview) -> Value:
    """The value that `data` holds, all of it. ValueError when it holds none."""
    data = bytes(data)
    try:
        value, position = _decode(data, 0)
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("cut or damaged value") from error
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes behind the value")
    return value


def decode_items(data: bytes) -> Iterator[tuple[Value, int]]:
    """The values of the list that `data` holds, one at a time, each with the position behind it; for lists that take
    long. ValueError, at the latest at the end, when it holds none."""
    try:
        if data[0] != _LIST:
            raise ValueError("a list was expected")
        count, position = _decode_count(data, 1)
        for _ in range(count):
            value, position = _decode(data, position)
            yield value, position
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("cut or damaged value") from error
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes behind the value")


def _encode(out: bytearray, value: object) -> None:
    if value is None:
        out.append(_NONE)
    elif isinstance(value, bool):
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        _encode_head(out, _INT, value << 1 if value >= 0 else ~value << 1 | 1)
    elif isinstance(value, float):
        out.append(_FLOAT)
        out += _DOUBLE.pack(value)
    elif isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        _encode_head(out, _STR if isinstance(value, str) else _BYTES, len(data))
        out += data
    elif isinstance(value, list | tuple):
        _encode_head(out, _LIST, len(value))
        for item in value:
            _encode(out, item)
    elif isinstance(value, dict):
        _encode_head(out, _DICT, len(value))
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"a dict's keys are texts, {name!r} is not")
            _encode(out, name)
            _encode(out, item)
    else:
        raise TypeError(f"{value!r} cannot be stored")


def _encode_head(out: bytearray, tag: int, count: int) -> None:
    """A tag, and a number in as many groups of seven bits as it takes, the lowest first."""
    out.append(tag)
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)


def _decode(data: bytes, position: int) -> tuple[Value, int]:
    tag = data[position]
    position += 1
    if tag <= _TRUE:
        return (None, False, True)[tag], position
    if tag == _FLOAT:
        end = position + 8
        return _DOUBLE.unpack(_whole(data[position:end], 8))[0], end
    count = data[position]
    position += 1
    if count > 0x7F:
        count, position = _decode_count(data, position - 1)
    if tag == _INT:
        return ~(count >> 1) if count & 1 else count >> 1, position
    if tag in (_STR, _BYTES):
        end = position + count
        raw = _whole(data[position:end], count)
        return raw.decode() if tag == _STR else raw, end
    if tag == _LIST:
        items: list[Value] = []
        for _ in range(count):
            item, position = _decode(data, position)
            items.append(item)
        return items, position
    if tag != _DICT:
        raise ValueError(f"there is no value with tag {tag}")
    fields: dict[str, Value] = {}
    for _ in range(count):
        name, position = _decode(data, position)
        if not isinstance(name, str):
            raise ValueError(f"a dict's keys are texts, {name!r} is not")
        fields[name], position = _decode(data, position)
    return fields, position


def _decode_count(data: bytes, position: int) -> tuple[int, int]:
    count = shift = 0
    while True:
        byte = data[position]
        position += 1
        count |= (byte & 0x7F) << shift
        if byte < 0x80:
            return count, position
        shift += 7


def _whole(found: bytes, count: int) -> bytes:
    """Return what was cut out, if it is all there; else raise IndexError."""
    if len(found) != count:
        raise IndexError
    return found
