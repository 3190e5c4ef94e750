"""A KV tablet's row: a value inline, or the ids of the blobs it is chained from.

    form 1   created_ms 8 | the value (under the empty key: the user generation, 8 bytes)
    form 2   created_ms 8 | blob keys, 24 bytes each; no other row holds these blobs
    form 3   the same, but another row (or this one twice) may hold some of them: they are counted at start
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from pqbroker.storage.blobs.blob_id import blob_size
from pqbroker.storage.engine import BLOB_KEY_BYTES, BlobKey, Buffer
from pqbroker.storage.kv.commands import INLINE
from pqbroker.storage.tablets.tablet import USER_CHANNEL

KV_FORMAT = 1
"""Version of a KV tablet's rows, of which each one says its form: the forms above."""

ROW_FORM = 1
SHARED_FORM = 3
"""First bytes of an entry's row: the value itself, or blobs that may have several holders."""
_INLINE = ROW_FORM
_OWNED = 2
_SHARED = SHARED_FORM
_HEADER = Struct(">BQ")
_HEADER_BYTES = _HEADER.size
_NUMBER = Struct(">Q")
_CHANNEL_BYTE = 8
"""Position of the channel in a blob key, behind the tablet's id."""


class Entry:
    """One key's value as the tablet knows it: the stored row and the value's size in bytes. Never changes."""

    __slots__ = ("row", "size")

    def __init__(self, row: bytes, size: int) -> None:
        self.row = row
        self.size = size

    @classmethod
    def inline(cls, created_ms: int, buffers: Sequence[Buffer], size: int) -> "Entry":
        return cls(b"".join((_HEADER.pack(_INLINE, created_ms), *buffers)), size)

    @classmethod
    def number(cls, created_ms: int, number: int) -> "Entry":
        """A row of the tablet's own that holds a number."""
        return cls.inline(created_ms, [_NUMBER.pack(number)], _NUMBER.size)

    @classmethod
    def chained(cls, created_ms: int, blobs: bytes, size: int, *, shared: bool = False) -> "Entry":
        """A value of the blobs whose keys stand end to end in `blobs`."""
        return cls(_HEADER.pack(_SHARED if shared else _OWNED, created_ms) + blobs, size)

    @classmethod
    def stored(cls, row: bytes) -> "Entry":
        """The entry of a row that was read. ValueError for a row of another form."""
        kind = row[0] if len(row) >= _HEADER_BYTES else 0
        if kind == _INLINE:
            return cls(row, len(row) - _HEADER_BYTES)
        if not _INLINE < kind <= _SHARED or (len(row) - _HEADER_BYTES) % BLOB_KEY_BYTES:
            raise ValueError(f"it is damaged or written by a newer version: {len(row)} bytes of format {row[:1].hex()}")
        if len(row) == _HEADER_BYTES + BLOB_KEY_BYTES:
            return cls(row, blob_size(row, _HEADER_BYTES))
        return cls(row, sum(blob_size(row, at) for at in range(_HEADER_BYTES, len(row), BLOB_KEY_BYTES)))

    @property
    def is_inline(self) -> bool:
        return self.row[0] == _INLINE

    @property
    def identity(self) -> bytes:
        """The same for the same bytes in the same blobs: a blob never changes, and its id is never given again."""
        return bytes((min(self.row[0], _OWNED),)) + self.row[_HEADER_BYTES:]

    @property
    def is_shared(self) -> bool:
        """Another row may hold some of the blobs too."""
        return self.row[0] == _SHARED

    @property
    def created_ms(self) -> int:
        return int.from_bytes(self.row[1:_HEADER_BYTES], "big")

    @property
    def value(self) -> memoryview:
        """The bytes of an inline value."""
        assert self.row[0] == _INLINE
        return memoryview(self.row)[_HEADER_BYTES:]

    @property
    def channel(self) -> int:
        """Return where the value is: INLINE, or the channel of its first blob (MAIN, EXTRA)."""
        return INLINE if self.row[0] == _INLINE else self.row[_HEADER_BYTES + _CHANNEL_BYTE] - USER_CHANNEL

    @property
    def blob_keys(self) -> bytes:
        """The blobs' keys end to end; none for an inline value."""
        return b"" if self.row[0] == _INLINE else self.row[_HEADER_BYTES:]

    @property
    def piece_count(self) -> int:
        """Return how many pieces the value is chained from."""
        return 1 if self.row[0] == _INLINE else (len(self.row) - _HEADER_BYTES) // BLOB_KEY_BYTES

    @property
    def pieces(self) -> tuple[int, ...]:
        """Sizes of the pieces that the value is chained from; an inline value is one piece."""
        if self.row[0] == _INLINE:
            return (self.size,)
        return tuple(blob_size(self.row, at) for at in range(_HEADER_BYTES, len(self.row), BLOB_KEY_BYTES))

    def blobs(self) -> Iterator[BlobKey]:
        """The blobs' keys in order; none for an inline value."""
        row = self.row
        if row[0] != _INLINE:
            for at in range(_HEADER_BYTES, len(row), BLOB_KEY_BYTES):
                yield BlobKey(row[at : at + BLOB_KEY_BYTES])

    def sharing(self) -> "Entry":
        """Return this entry in the form that says its blobs may be held elsewhere too."""
        if self.row[0] != _OWNED:
            return self
        return Entry(bytes((_SHARED,)) + self.row[1:], self.size)
