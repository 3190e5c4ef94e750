"""The stored form of a chunk in plain Python: what finds a key, and damage wherever it lies."""

import gc
from collections.abc import Sequence
from struct import pack_into
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.blocks import BLOCK_BYTES_MAX
from pqbroker.tables.sorted.chunks import (
    FOOTER_BYTES,
    ChunkDamaged,
    ChunkIndex,
    ChunkSummary,
    Place,
    Trait,
    encode_index,
    filter_words,
    read_index_bytes,
)
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.versions import Version
from tests.tables.work.sorted.worker_line import Table, index_of, log_of, merged, versions_of

pytestmark = pytest.mark.spec("C.2")

TABLE: Table = ([["id", "int64"]], [["text", "utf8"], ["number", "int64"]])
TEXT = "0123456789" * 30
SHORT = st.binary(max_size=2)
encode = key_encoder(["int64"])


def chunk_of(counts: Sequence[int]) -> bytes:
    """A chunk in which key number n has so many versions."""
    rows: list[Any] = []
    for number, count in enumerate(counts):
        rows += [((number,), 1 + len(rows) + at, [TEXT, at], False) for at in range(count)]
    (chunk,), _ = merged(TABLE, [log_of(TABLE, rows)])
    return chunk


def index_with_first_keys(keys: Sequence[bytes], continues: frozenset[int], last_key: bytes) -> ChunkIndex:
    """An index of blocks that nobody reads."""
    places = [
        Place(at * 10, 10, 100, 1, Trait.CONTINUES if at in continues else 0, 0, key) for at, key in enumerate(keys)
    ]
    facts = ChunkSummary(1, 1, 0, 0, 0, 0, last_key.hex(), (("k", "string"),), (), ())
    return ChunkIndex.decode(encode_index(places, bytes(8 * filter_words(len(keys))), facts))


def find(chunk: bytes, key: bytes) -> list[Version]:
    """The versions of a key, as a lookup reads them: no block more than it needs."""
    index = index_of(chunk)
    found: list[Version] = []
    for number in index.blocks_of(key):
        place = index.places[number]
        block = index.block(number, chunk[place.position : place.position + place.stored_bytes])
        rows = block.rows_of(key)
        found += [block.version(row, 1) for row in rows]
        if rows.stop < block.rows:
            break
    return found


def test_a_key_is_found_with_all_its_versions_in_however_many_blocks_they_lie() -> None:
    counts = [1, 3, 500, 200, 1, 215, 1]
    chunk = chunk_of(counts)
    index = index_of(chunk)
    assert len(index.places) > 4
    assert all(place.unpacked_bytes <= BLOCK_BYTES_MAX for place in index.places)
    assert [bool(place.traits & Trait.CONTINUES) for place in index.places].count(True) >= 3
    for number, count in enumerate(counts):
        found = find(chunk, encode((number,)))
        assert [version.values for version in found] == [[TEXT, at] for at in range(count)][::-1]
        assert found == sorted(found, reverse=True)
        assert index.may_have(encode((number,)))
    assert find(chunk, encode((-1,))) == find(chunk, encode((7,))) == []


def test_a_key_that_begins_a_block_is_looked_for_in_that_one_alone() -> None:
    index = index_with_first_keys([b"a", b"c", b"e", b"e"], frozenset((3,)), b"g")
    expected = {b"A": [], b"a": [0], b"b": [0], b"c": [1], b"d": [1], b"e": [2, 3], b"f": [3], b"g": [3], b"h": []}
    assert {key: list(index.blocks_of(key)) for key in expected} == expected
    continued = index_with_first_keys([b"a", b"c", b"c", b"c"], frozenset((1, 2, 3)), b"c")
    assert list(continued.blocks_of(b"c")) == [0, 1, 2, 3]
    assert list(continued.blocks_of(b"b")) == [0]


@given(st.lists(SHORT, min_size=1, max_size=6), SHORT, st.none() | SHORT)
def test_a_range_names_each_block_that_may_have_its_keys(keys: list[bytes], first: bytes, end: bytes | None) -> None:
    keys.sort()
    index = index_with_first_keys(keys, frozenset(), keys[-1])
    numbers = index.blocks_of_range(first, end)
    for number, key in enumerate(keys):
        if first <= key and (end is None or key < end):
            assert number in numbers
    lasts = [*keys[1:], keys[-1]]
    assert all(lasts[number] >= first and (end is None or keys[number] < end) for number in numbers)


def test_the_index_says_what_the_chunk_has() -> None:
    rows = [((at,), 10 + at, None if at % 3 == 2 else ["x", None], False) for at in range(9)]
    (chunk,), found = merged(TABLE, [log_of(TABLE, [*rows, ((0,), 50, ["y", 1], False)])])
    index = index_of(chunk)
    facts = index.facts
    assert (facts.rows, facts.keys, facts.deletes) == (10, 9, 3)
    assert (facts.least_timestamp, facts.greatest_timestamp) == (10, 50)
    assert (index.first_key, index.last_key) == (encode((0,)), encode((8,)))
    assert facts.key_columns == (("id", "int64"),)
    assert facts.value_columns == (("text", "utf8"), ("number", "int64"))
    said = found["chunks"][0]
    assert {name: said[name] for name in ("rows", "keys", "deletes", "least_timestamp", "greatest_timestamp")} == {
        "rows": 10, "keys": 9, "deletes": 3, "least_timestamp": 10, "greatest_timestamp": 50,
    }  # fmt: skip
    assert (said["first_key"], said["last_key"]) == (index.first_key.hex(), facts.last_key)
    assert said["index_bytes"] == read_index_bytes(chunk[-FOOTER_BYTES:])


def test_a_key_that_is_absent_rarely_passes_the_filter() -> None:
    index = index_of(chunk_of([1] * 2000))
    assert all(index.may_have(encode((number,))) for number in range(2000))
    assert sum(index.may_have(encode((number,))) for number in range(2000, 12_000)) < 400


def test_a_wrong_byte_anywhere_is_damage_that_is_named() -> None:
    chunk = chunk_of([1, 2])
    for position in range(len(chunk)):
        damaged = bytearray(chunk)
        damaged[position] ^= 0x41
        with pytest.raises(ChunkDamaged, match=r"chunk|index"):
            list(versions_of(bytes(damaged), 1))


@pytest.mark.parametrize("size", [0, 1, FOOTER_BYTES - 1, FOOTER_BYTES, FOOTER_BYTES + 1])
def test_a_chunk_that_lacks_its_beginning_is_damage(size: int) -> None:
    chunk = chunk_of([1])
    with pytest.raises(ChunkDamaged):
        ChunkIndex.decode(chunk[len(chunk) - size :])


def test_a_form_of_a_later_version_is_named() -> None:
    chunk = bytearray(chunk_of([1]))
    footer = len(chunk) - FOOTER_BYTES
    pack_into("<I", chunk, footer + 4, 2)
    pack_into("<I", chunk, footer + 20, crc32c(bytes(chunk[footer : footer + 20])))
    with pytest.raises(ChunkDamaged, match=r"form 2.*form 1"):
        index_of(bytes(chunk))


@given(st.data())
def test_an_index_that_was_written_wrong_is_damage_too(data: st.DataObject) -> None:
    """Checksums hold, and what they guard does not fit."""
    chunk = chunk_of([1, 1])
    index = bytearray(chunk[-read_index_bytes(chunk[-FOOTER_BYTES:]) : -FOOTER_BYTES])
    for _ in range(data.draw(st.integers(1, 3))):
        index[data.draw(st.integers(0, len(index) - 1))] ^= data.draw(st.integers(1, 255))
    footer = bytearray(chunk[-FOOTER_BYTES:])
    pack_into("<I", footer, 16, crc32c(bytes(index)))
    pack_into("<I", footer, 20, crc32c(bytes(footer[:20])))
    try:
        found = ChunkIndex.decode(bytes(index + footer))
        found.may_have(b"x")
        found.blocks_of(b"x")
        for number, place in enumerate(found.places):
            found.block(number, chunk[place.position : place.position + place.stored_bytes])
    except ChunkDamaged:
        pass


def test_a_row_larger_than_a_block_is_one_alone() -> None:
    rows = [((at,), 1 + at, ["z" * size, at], False) for at, size in enumerate((10, 70_000, 10, 10))]
    (chunk,), _ = merged(TABLE, [log_of(TABLE, rows)])
    index = index_of(chunk)
    assert [place.rows for place in index.places] == [1, 1, 2]
    assert [len(version.values[0]) for _, version in versions_of(chunk, 1) if version.values] == [10, 70_000, 10, 10]


def test_an_index_is_few_objects_for_the_collector_of_cycles_however_many_blocks_it_has() -> None:
    """A tuple for each block had its passes begin: 15 ms in the turn that decoded the index."""
    places = [Place(at * 10, 10, 100, 1, 0, 0, b"%06d" % at) for at in range(5_000)]
    facts = ChunkSummary(1, 1, 0, 0, 0, 0, b"9".hex(), (("k", "string"),), (), ())
    data = encode_index(places, bytes(8 * filter_words(5_000)), facts)
    gc.disable()
    before = len(gc.get_objects())
    index = ChunkIndex.decode(data)
    made = len(gc.get_objects()) - before
    gc.enable()
    assert made < 100
    assert list(index.places) == places
