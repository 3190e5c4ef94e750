"""The changes that one round makes in the index, in order, and the bytes by which the commit log keeps them.

    count u32 · kind u8 of each change · sizes of each key and value, u32 · keys and values, alternating    big-endian

Kinds: 1 put, 2 delete (no value), 3 delete the range from the key to the value.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, cast

_PUT, _DELETE, _DELETE_RANGE = 1, 2, 3
_PUTS, _DELETES, _RANGE_DELETES = b"\1", b"\2", b"\3"
_COUNT = struct.Struct(">I")
_SIZE_BYTES = 4
GONE: Final = cast(bytes, bytearray())
"""Stands for the value of a key that is deleted. No value is this very object: all empty `bytes` are one, not it."""


class IndexBatch(Protocol):
    """Receiver of changes of the index, in order: RocksDB's batch, or ours."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, begin: bytes, end: bytes) -> None: ...


class IndexChanges:
    """An `IndexBatch` that keeps what it is given."""

    __slots__ = ("_kinds", "_texts", "deletes_ranges")

    def __init__(self) -> None:
        self._kinds = bytearray()
        self._texts: list[bytes] = []
        self.deletes_ranges = False

    @property
    def count(self) -> int:
        return len(self._kinds)

    def put(self, key: bytes, value: bytes) -> None:
        self._kinds += _PUTS
        self._texts += (key, value)

    def delete(self, key: bytes) -> None:
        self._kinds += _DELETES
        self._texts += (key, GONE)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.deletes_ranges = True
        self._kinds += _RANGE_DELETES
        self._texts += (begin, end)

    def add(self, prefix: bytes, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put or, where the value is None, delete keys behind a prefix: in one call, since every round has such."""
        kinds, texts = self._kinds, self._texts
        for key, value in rows:
            if value is None:
                kinds += _DELETES
                texts += (prefix + key, GONE)
            else:
                kinds += _PUTS
                texts += (prefix + key, value)

    def replace_value(self, position: int, value: bytes) -> None:
        """Give the change at `position` another value of the same size."""
        at = 2 * position + 1
        assert len(value) == len(self._texts[at])
        self._texts[at] = value

    def encoded_bytes(self) -> int:
        """Return how long `encoded` is."""
        sizes = len(self._kinds) + _SIZE_BYTES * len(self._texts)
        return _COUNT.size + sizes + sum(map(len, self._texts))

    def encoded(self) -> bytes:
        texts = self._texts
        sizes = struct.pack(f">{len(texts)}I", *map(len, texts))
        return b"".join((_COUNT.pack(len(self._kinds)), self._kinds, sizes, *texts))

    def rows(self) -> Iterable[tuple[bytes, bytes]]:
        """Keys and values in the order of the changes, GONE for what is deleted. Not of deleted ranges."""
        assert not self.deletes_ranges
        texts = iter(self._texts)
        return zip(texts, texts, strict=True)

    def apply(self, batch: IndexBatch) -> None:
        """Add the changes to a batch of the index, in order."""
        texts = iter(self._texts)
        for kind, key, value in zip(self._kinds, texts, texts, strict=True):
            if kind == _PUT:
                batch.put(key, value)
            elif kind == _DELETE:
                batch.delete(key)
            else:
                batch.delete_range(key, value)


def decode_changes(content: bytes) -> IndexChanges:
    """The changes that `encoded` wrote. ValueError for bytes that it never wrote."""
    try:
        (count,) = _COUNT.unpack_from(content)
        kinds = content[_COUNT.size : _COUNT.size + count]
        sizes = struct.unpack_from(f">{2 * count}I", content, _COUNT.size + count)
    except struct.error as short:
        raise ValueError(f"rows of a commit that end early: {short}") from short
    changes = IndexChanges()
    position = _COUNT.size + count + _SIZE_BYTES * 2 * count
    if position + sum(sizes) != len(content) or not set(kinds) <= {_PUT, _DELETE, _DELETE_RANGE}:
        raise ValueError("rows of a commit in a form that is not known")
    pairs = iter(sizes)
    for kind, key_bytes, value_bytes in zip(kinds, pairs, pairs, strict=True):
        middle = position + key_bytes
        key, value = content[position:middle], content[middle : middle + value_bytes]
        position = middle + value_bytes
        if kind == _PUT:
            changes.put(key, value)
        elif kind == _DELETE:
            changes.delete(key)
        else:
            changes.delete_range(key, value)
    return changes
