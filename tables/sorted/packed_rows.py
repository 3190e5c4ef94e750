"""KeyVersions of rows as bytes: what a log entry says, a memory store keeps and a worker makes columns of.

    0  uint64  timestamp of the commit
    8  uint8   kind: 1 delete, 2 write (what is not valid is null), 3 update (what is not present stays as it was)
       of a write or an update:
       presence and validity, a bitmap each: bit i & 7 of byte i >> 3 is of value column i
       a slot for each value column: 8 bytes of a fixed type (integers, timestamps and booleans as 64-bit integers,
           signed for int*, doubles as they are), 4 bytes with the length of any other
       bytes of the columns with a length, end to end

Numbers are little endian. A row is packed before its commit has a timestamp; that is put before it then.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

TIMESTAMP: Final = Struct("<Q")
KIND_AT: Final = TIMESTAMP.size
HEAD_BYTES: Final = KIND_AT + 1
"""Bytes of a delete."""


class Kind(IntEnum):
    """Kinds of versions. The numbers are stored."""

    DELETE = 1
    WRITE = 2
    UPDATE = 3


class Absent:
    """The value that an update leaves as it was."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()
DELETED: Final = bytes((Kind.DELETE,))
"""A delete, but for its timestamp."""

_LETTERS = {**{f"int{bits}": "q" for bits in (8, 16, 32, 64)}, "double": "d", "string": "I", "utf8": "I", "any": "I"}
_UNSIGNED = "Q"
LENGTH: Final = "I"
"""The slot, as `struct` spells it, of a column whose bytes stand behind the slots."""


def slot_letter(name: str) -> str:
    """Return a column's slot, as `struct` spells it."""
    return _LETTERS.get(name, _UNSIGNED)


class RowForm:
    """The packed form of rows with value columns of these types, in order."""

    __slots__ = ("_bitmap_bytes", "_body", "_letters", "_types")

    def __init__(self, types: Sequence[str]) -> None:
        self._types = tuple(types)
        self._letters = tuple(map(slot_letter, types))
        self._bitmap_bytes = -(-len(types) // 8)
        self._body = Struct(f"<B{self._bitmap_bytes}s{self._bitmap_bytes}s{''.join(self._letters)}")

    def pack(self, values: Sequence[Any], *, is_update: bool) -> bytes:
        """Pack a row, but for its timestamp. Values: None is null; ABSENT stays as it was, in an update alone; texts
        and JSON are str, strings bytes."""
        presence = validity = 0
        slots: list[Any] = []
        contents: list[bytes] = []
        bit = 1
        for letter, value in zip(self._letters, values, strict=True):
            if value is ABSENT:
                slots.append(0)
            elif value is None:
                presence |= bit
                slots.append(0)
            else:
                presence |= bit
                validity |= bit
                if letter == LENGTH:
                    content = value if type(value) is bytes else value.encode()
                    contents.append(content)
                    slots.append(len(content))
                else:
                    slots.append(value)
            bit <<= 1
        if not is_update:
            presence = bit - 1
        size, kind = self._bitmap_bytes, Kind.UPDATE if is_update else Kind.WRITE
        head = self._body.pack(kind, presence.to_bytes(size, "little"), validity.to_bytes(size, "little"), *slots)
        return b"".join((head, *contents)) if contents else head

    def values(self, version: bytes) -> list[Any]:
        """Return the values of a write or an update, as `pack` takes them. ValueError for bytes that are none."""
        try:
            return self._values(version)
        except (struct_error, UnicodeDecodeError) as damage:
            text = f"no version of a row with {len(self._types)} value columns: {damage}"
            raise ValueError(text) from None

    def widened(self, version: bytes, columns: int) -> bytes:
        """Return a version that was packed with the first `columns` columns alone, with all of them. ValueError."""
        if columns == len(self._types) or version[KIND_AT] == Kind.DELETE:
            return version
        is_update = version[KIND_AT] == Kind.UPDATE
        lacking = len(self._types) - columns
        values = RowForm(self._types[:columns]).values(version) + [ABSENT if is_update else None] * lacking
        return version[:KIND_AT] + self.pack(values, is_update=is_update)

    def _values(self, version: bytes) -> list[Any]:
        _, presence, validity, *slots = self._body.unpack_from(version, KIND_AT)
        presence, validity = int.from_bytes(presence, "little"), int.from_bytes(validity, "little")
        position = KIND_AT + self._body.size
        values: list[Any] = []
        for name, letter, slot in zip(self._types, self._letters, slots, strict=True):
            if not presence & 1:
                values.append(ABSENT)
            elif not validity & 1:
                values.append(None)
            elif letter == LENGTH:
                content = version[position : position + slot]
                if len(content) < slot:
                    raise ValueError(f"a {name} of {slot} bytes has {len(content)}")
                position += slot
                values.append(content if name == "string" else content.decode())
            else:
                values.append(bool(slot) if name == "boolean" else slot)
            presence >>= 1
            validity >>= 1
        if position != len(version):
            raise ValueError(f"a version of {len(version)} bytes ends at {position}")
        return values


def timestamp_of(version: bytes) -> int:
    """Return the timestamp of a version's commit."""
    found: int = TIMESTAMP.unpack_from(version)[0]
    return found
