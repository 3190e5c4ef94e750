"""A short, self-describing form of what row sets hold: None, bool, int, float, str, bytes, lists and dicts of them.

Both ways go through a list or dict in one loop: a record of the scheme holds hundreds of values, and a call for each
would be most of what a change of it costs.
"""

import sys
from collections.abc import Iterator
from struct import Struct

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]

_NONE, _FALSE, _TRUE, _INT, _FLOAT, _STR, _BYTES, _LIST, _DICT = range(9)
_DOUBLE = Struct(">d")


def encode(value: object) -> bytes:
    """The value's bytes; a tuple counts as a list. TypeError for anything that is no value."""
    out = bytearray()
    encode_some(out, [value], sys.maxsize)
    return bytes(out)


def encode_some(out: bytearray, waiting: list[object], end: int) -> None:
    """Append the bytes of the values that wait, the last of them first, until `out` has `end` bytes or more; those in a
    list or dict that was begun wait then. TypeError as `encode`."""
    while waiting and len(out) < end:
        item = waiting.pop()
        body = b""
        if item is None or isinstance(item, bool):
            out.append(_NONE if item is None else _TRUE if item else _FALSE)
            continue
        if isinstance(item, float):
            out.append(_FLOAT)
            out += _DOUBLE.pack(item)
            continue
        if isinstance(item, int):
            tag, count = _INT, item << 1 if item >= 0 else ~item << 1 | 1
        elif isinstance(item, str | bytes):
            tag, body = (_STR, item.encode()) if isinstance(item, str) else (_BYTES, item)
            count = len(body)
        elif isinstance(item, list | tuple):
            tag, count = _LIST, len(item)
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            tag, count = _DICT, len(item)
            waiting += _values_and_names(item)
        else:
            raise TypeError(f"{item!r} cannot be stored")
        out.append(tag)
        if count <= 0x7F:
            out.append(count)
        else:
            out += _encode_count(count)
        out += body


def encode_list_head(count: int) -> bytes:
    """Return what stands before the bytes of a list's `count` values."""
    return bytes((_LIST,)) + _encode_count(count)


def decode(data: bytes | bytearray | memoryview) -> Value:
    """The value that `data` holds, all of it. ValueError when it holds none."""
    decoding = Decoding(data)
    decoding.go_on(sys.maxsize)
    return decoding.value


class Decoding:
    """The value that `data` holds, all of it, decoded in steps: for values that take long."""

    __slots__ = ("_data", "_part")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = bytes(data)
        self._part = _Part(0, 1)

    def go_on(self, size: int) -> bool:
        """Decode as much as begins within the next `size` bytes; return True when it is whole. ValueError when there is
        no value, or not only one."""
        try:
            is_whole = _decode(self._data, self._part, self._part.position + size)
        except (IndexError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError("cut or damaged value") from error
        behind = len(self._data) - self._part.position
        if is_whole and behind:
            raise ValueError(f"{behind} bytes behind the value")
        return is_whole

    @property
    def value(self) -> Value:
        """Return the value, which is whole."""
        (value,) = self._part.found
        return value


def decode_items(data: bytes) -> Iterator[tuple[Value, int]]:
    """The values of the list that `data` holds, one at a time, each with the position behind it; for lists that take
    long. ValueError, at the latest at the end, when it holds none."""
    try:
        if data[0] != _LIST:
            raise ValueError("a list was expected")
        count, position = _decode_count(data, 1)
        for _ in range(count):
            part = _Part(position, 1)
            _decode(data, part, sys.maxsize)
            (value,), position = part.found, part.position
            yield value, position
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("cut or damaged value") from error
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes behind the value")


def _values_and_names(fields: dict[object, object]) -> list[object]:
    """Names and values of a dict from its end on, each value before its name."""
    found: list[object] = []
    for name, value in reversed(fields.items()):
        if not isinstance(name, str):
            raise TypeError(f"a dict's keys are texts, {name!r} is not")
        found += (value, name)
    return found


def _encode_count(count: int) -> bytes:
    """A number in as many groups of seven bits as it takes, the lowest first."""
    out = bytearray()
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)
    return bytes(out)


class _Part:
    """Values that stand one behind another, of which some are decoded."""

    __slots__ = ("count", "found", "outer", "position")

    def __init__(self, position: int, count: int) -> None:
        self.position = position
        """Place behind everything that is decoded."""
        self.count = count
        """Values of `found` that are not decoded yet."""
        self.found: list[Value] = []
        """Values of the innermost list or dict that is not whole."""
        self.outer: list[tuple[list[Value], int, int]] = []
        """Lists and dicts around it: what was found of each, values that follow the one within, its tag."""


def _decode(data: bytes, part: _Part, stop: int) -> bool:
    """Decode what begins before `stop`; return True when all of the part is decoded. IndexError, UnicodeDecodeError,
    ValueError."""
    position, count, found, outer = part.position, part.count, part.found, part.outer
    while position < stop:
        if not count:
            if not outer:
                part.position, part.count, part.found = position, 0, found
                return True
            items = found
            found, count, tag = outer.pop()
            found.append(items if tag == _LIST else _fields(items))
            continue
        count -= 1
        tag = data[position]
        position += 1
        if tag <= _TRUE:
            found.append((None, False, True)[tag])
            continue
        if tag == _FLOAT:
            if position + 8 > len(data):
                raise IndexError
            found += _DOUBLE.unpack_from(data, position)
            position += 8
            continue
        number = data[position]
        position += 1
        if number > 0x7F:
            number, position = _decode_count(data, position - 1)
        if tag == _INT:
            found.append(~(number >> 1) if number & 1 else number >> 1)
        elif tag in (_STR, _BYTES):
            end = position + number
            if end > len(data):
                raise IndexError
            found.append(data[position:end].decode() if tag == _STR else data[position:end])
            position = end
        elif tag in (_LIST, _DICT):
            outer.append((found, count, tag))
            found, count = [], number if tag == _LIST else 2 * number
        else:
            raise ValueError(f"there is no value with tag {tag}")
    part.position, part.count, part.found = position, count, found
    return False


def _fields(items: list[Value]) -> dict[str, Value]:
    """The dict whose names and values these are, each name before its value."""
    fields: dict[str, Value] = {}
    for name, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(name, str):
            raise ValueError(f"a dict's keys are texts, {name!r} is not")
        fields[name] = value
    return fields


def _decode_count(data: bytes, position: int) -> tuple[int, int]:
    """A number as `_encode_count` wrote it, and the position behind it."""
    count = shift = 0
    while True:
        byte = data[position]
        position += 1
        count |= (byte & 0x7F) << shift
        if byte < 0x80:
            return count, position
        shift += 7
