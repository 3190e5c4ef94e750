"""A chunk of a sorted table: blocks (`blocks.py`) end to end, compressed by lz4, and behind them what finds their rows.

    the index:
        0   4 bytes  magic "PQSI"
        4   uint32   blocks, n
        8   uint32   words of the filter
        12  uint32   bytes of the facts
        16  n places of 32 bytes: uint64 position of a block; uint32 bytes that are stored, and bytes that they unpack
            to; uint32 rows; uint32 traits; uint32 crc32c of the bytes that are stored; uint32 bytes of its first key
            the filter's words, uint64; the facts, JSON (`ChunkSummary`); the first keys end to end
    the footer:
        0   4 bytes  magic "PQSF"
        4   uint32   version of this form
        8   uint64   bytes of the index
        16  uint32   crc32c of the index
        20  uint32   crc32c of the footer before

Numbers are little endian. The versions of one key may lie in several blocks, one after the other. Everything is read in
plain Python, so that a broker looks keys up without the libraries of its workers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import IntFlag
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

import cramjam
import msgspec
from crc32c import crc32c

from pqbroker.tables.sorted.blocks import Block, BlockDamaged

CHUNK_FORM: Final = 1
INDEX_MAGIC: Final = b"PQSI"
FOOTER_MAGIC: Final = b"PQSF"
BITS_PER_KEY: Final = 10
FILTER_MIX: Final = 0x9E3779B97F4A7C15
"""Odd factor that spreads a key's crc32 over the bits of a word."""
FILTER_SHIFTS: Final = (58, 52, 46, 40)
"""Bits of the product that choose a bit each."""
UNPACKED_BYTES_MAX: Final = 1 << 30
"""Bytes of a block whose row is larger than a block should be."""
_HEAD = Struct("<4sIII")
_PLACE = Struct("<QIIIIII")
_FOOTER = Struct("<4sIQI")
_SUM = Struct("<I")
FOOTER_BYTES: Final = _FOOTER.size + _SUM.size
_TRAITS_AT = 4
_WORD_BYTES = 8
_WORD = (1 << 64) - 1
_SIX_BITS = 63

Columns = tuple[tuple[str, str], ...]
"""Names and types."""


class ChunkDamaged(Exception):
    """Bytes of a chunk are not those that were written; the text says what and where."""


class Trait(IntFlag):
    """Traits of a block. One without any has a row for each key, with all columns: a scan takes it as it stands."""

    CONTINUES = 1
    """The block before has newer versions of the first key."""
    SEVERAL = 2
    """Some key has several versions here."""
    DELETES = 4
    ABSENT = 8
    """Some version leaves a column as it was."""


class Place(NamedTuple):
    """One block in its chunk. `stored_bytes`: compressed; `unpacked_bytes`: not."""

    position: int
    stored_bytes: int
    unpacked_bytes: int
    rows: int
    traits: int
    checksum: int
    first_key: bytes


class ChunkSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of a chunk's rows. Keys are hexadecimal."""

    rows: int
    """Versions."""
    keys: int
    deletes: int
    unpacked_bytes: int
    least_timestamp: int
    greatest_timestamp: int
    last_key: str
    key_columns: Columns
    value_columns: Columns
    """Value columns that the table had when the chunk was written."""
    samples: tuple[tuple[str, int], ...]
    """Some keys in order, each with the unpacked bytes from it to the next."""


class Places:
    """Places of a chunk's blocks, in order. They stay bytes until one is asked for: a chunk has thousands."""

    __slots__ = ("_packed", "first_keys")

    def __init__(self, packed: memoryview, first_keys: Sequence[bytes]) -> None:
        self._packed = packed
        self.first_keys = first_keys

    def __len__(self) -> int:
        return len(self.first_keys)

    def __getitem__(self, number: int) -> Place:
        first_key = self.first_keys[number]
        return Place._make((*_PLACE.unpack_from(self._packed, number * _PLACE.size)[:-1], first_key))

    def __iter__(self) -> Iterator[Place]:
        return map(self.__getitem__, range(len(self)))

    def continues(self, number: int) -> bool:
        """Return True if the block before has newer versions of the first key."""
        traits: int = _PLACE.unpack_from(self._packed, number * _PLACE.size)[_TRAITS_AT]
        return bool(traits & Trait.CONTINUES)


class ChunkIndex:
    """One chunk's index."""

    __slots__ = ("_filter", "_first_keys", "_types", "facts", "last_key", "places")

    def __init__(self, places: Places, words: memoryview, facts: ChunkSummary) -> None:
        """Take the filter's words as a view of uint64."""
        self.places = places
        self.facts = facts
        self.last_key = bytes.fromhex(facts.last_key)
        self._filter = words
        self._first_keys = places.first_keys
        self._types = tuple(kind for _, kind in (*facts.key_columns, *facts.value_columns))

    @classmethod
    def decode(cls, data: bytes) -> "ChunkIndex":
        """Read an index with the footer behind it, the last bytes of a chunk. ChunkDamaged."""
        size, checksum = _read_footer(data[-FOOTER_BYTES:])
        index = memoryview(data)[:-FOOTER_BYTES]
        if size != len(index):
            raise ChunkDamaged(f"the footer of a chunk says {size} bytes of index; {len(index)} are there")
        if crc32c(index) != checksum:
            raise ChunkDamaged(f"the index of a chunk, {size} bytes before its footer, does not have its checksum")
        return cls(*_read_index(index))

    @property
    def first_key(self) -> bytes:
        return self._first_keys[0]

    def may_have(self, key: bytes) -> bool:
        """Return False if the chunk has no version of the key: about one in fifty is wrongly thought to be there."""
        words = self._filter
        hashed = crc32(key)
        mixed = hashed * FILTER_MIX & _WORD
        mask = (
            1 << (mixed >> 58) | 1 << (mixed >> 52 & _SIX_BITS) | 1 << (mixed >> 46 & _SIX_BITS)
            | 1 << (mixed >> 40 & _SIX_BITS)
        )  # fmt: skip
        found: int = words[hashed % len(words)]
        return found & mask == mask

    def blocks_of(self, key: bytes) -> range:
        """Return the numbers of the blocks that may have versions of a key, the newest first. More than one: read on
        only while a block ends with the key."""
        end = bisect_right(self._first_keys, key)
        first = bisect_left(self._first_keys, key, 0, end)
        if first and (first == end or self.places.continues(first)):
            first -= 1
        return range(first, end) if key <= self.last_key else range(0)

    def blocks_of_range(self, first: bytes, end: bytes | None) -> range:
        """Return the numbers of the blocks that may have keys from `first` to before `end`; None: to the last one."""
        if first > self.last_key:
            return range(0)
        above = len(self.places) if end is None else bisect_left(self._first_keys, end)
        return range(min(self.blocks_of(first).start, above), above)

    def block(self, number: int, stored: bytes | memoryview) -> Block:
        """Unpack the bytes that are stored at a block's place. ChunkDamaged."""
        place = self.places[number]
        if len(stored) != place.stored_bytes or crc32c(stored) != place.checksum:
            raise _of_block(number, place, "does not have its checksum")
        try:
            found = Block(bytes(cramjam.lz4.decompress_block(stored, output_len=place.unpacked_bytes)), self._types)
        except (BlockDamaged, cramjam.DecompressionError) as damage:
            raise _of_block(number, place, f"is none: {damage}") from None
        if found.rows != place.rows:
            raise _of_block(number, place, f"has {found.rows} rows where the index says {place.rows}")
        return found


def read_index_bytes(footer: bytes) -> int:
    """Return the bytes of the index and its footer, given the last FOOTER_BYTES of a chunk. ChunkDamaged."""
    return _read_footer(footer)[0] + FOOTER_BYTES


def pack_block(block: bytes) -> bytes:
    """Return a block as it is stored."""
    return bytes(cramjam.lz4.compress_block(block, store_size=False))


def filter_words(keys: int) -> int:
    """Return how many words the filter of a chunk with this many keys has."""
    return keys * BITS_PER_KEY // 64 + 1


def encode_index(places: Sequence[Place], words: bytes, facts: ChunkSummary) -> bytes:
    """Return the index and its footer. `words`: of the filter."""
    facts_text = msgspec.json.encode(facts)
    index = b"".join((
        _HEAD.pack(INDEX_MAGIC, len(places), len(words) // _WORD_BYTES, len(facts_text)),
        *(_PLACE.pack(*place[:-1], len(place.first_key)) for place in places),
        words, facts_text, *(place.first_key for place in places),
    ))  # fmt: skip
    footer = _FOOTER.pack(FOOTER_MAGIC, CHUNK_FORM, len(index), crc32c(index))
    return index + footer + _SUM.pack(crc32c(footer))


def _read_footer(footer: bytes) -> tuple[int, int]:
    """Return the bytes of the index and their checksum."""
    if len(footer) != FOOTER_BYTES:
        raise ChunkDamaged(f"a chunk of {len(footer)} bytes has no room for its footer of {FOOTER_BYTES}")
    magic, version, size, checksum = _FOOTER.unpack_from(footer)
    (own,) = _SUM.unpack_from(footer, _FOOTER.size)
    if magic != FOOTER_MAGIC or crc32c(footer[: _FOOTER.size]) != own:
        raise ChunkDamaged(f"the last {FOOTER_BYTES} bytes of a chunk, {footer.hex()}, are no footer")
    if version != CHUNK_FORM:
        raise ChunkDamaged(f"a chunk is of form {version}; this version reads form {CHUNK_FORM}")
    return size, checksum


def _read_index(index: memoryview) -> tuple[Places, memoryview, ChunkSummary]:
    """Take the parts of an index whose checksum holds: what does not fit was written so. ChunkDamaged."""
    magic, blocks, words, facts_bytes = _HEAD.unpack_from(index) if len(index) >= _HEAD.size else (b"", 0, 0, 0)
    words_at = _HEAD.size + blocks * _PLACE.size
    facts_at = words_at + words * _WORD_BYTES
    keys_at = facts_at + facts_bytes
    if magic != INDEX_MAGIC or not blocks or not words or keys_at > len(index):
        raise ChunkDamaged(f"an index of {len(index)} bytes has {blocks} blocks, {words} words, {facts_bytes} of facts")
    try:
        facts = msgspec.json.decode(index[facts_at:keys_at], type=ChunkSummary)
        bytes.fromhex(facts.last_key)
    except ValueError as damage:
        raise ChunkDamaged(f"the facts in an index are none: {damage}") from None
    packed = index[_HEAD.size : words_at]
    places = Places(packed, _read_first_keys(packed, bytes(index[keys_at:])))
    return places, index[words_at:facts_at].cast("Q"), facts


def _read_first_keys(packed: memoryview, keys: bytes) -> list[bytes]:
    """Check the places, and return the first key of each block. ChunkDamaged."""
    found: list[bytes] = []
    end = key_at = 0
    for position, stored, unpacked, rows, _, _, key_size in _PLACE.iter_unpack(packed):
        if position != end:
            raise ChunkDamaged("blocks in an index do not follow one another")
        if not rows or unpacked > UNPACKED_BYTES_MAX:
            raise ChunkDamaged(f"a block in an index has no rows, or unpacks to more than {UNPACKED_BYTES_MAX} bytes")
        end += stored
        found.append(keys[key_at : key_at + key_size])
        key_at += key_size
    if key_at != len(keys):
        raise ChunkDamaged(f"the first keys in an index have {len(keys)} bytes, not {key_at}")
    return found


def _of_block(number: int, place: Place, text: str) -> ChunkDamaged:
    return ChunkDamaged(f"block {number} of a chunk, {place.stored_bytes} bytes at {place.position}, {text}")
