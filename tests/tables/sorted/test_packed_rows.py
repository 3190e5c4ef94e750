"""KeyVersions of rows as bytes, and the log entries that say them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.log_entries import ENTRY_HEAD, EntryDamaged, LoggedRow, NewRow, decode_entries, encode_entry
from pqbroker.tables.sorted.packed_rows import ABSENT, DELETED, TIMESTAMP, Kind, RowForm, timestamp_of
from pqbroker.tables.sorted.store import KEY_MEMORY, LIST_MEMORY, VERSION_MEMORY, RowStore

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127), "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1), "double": st.floats(allow_nan=False), "boolean": st.booleans(),
    "string": st.binary(max_size=9), "utf8": st.text("a\0é😀", max_size=5), "any": st.sampled_from(["{}", "[1]"]),
    "timestamp": st.integers(0, 1 << 52),
}  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[str], list[Any], bool]:
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=20))
    is_update = draw(st.booleans())
    absent = [st.just(ABSENT)] if is_update else []
    return types, [draw(st.one_of(st.none(), VALUES[name], *absent)) for name in types], is_update


@given(rows(), st.integers(0, (1 << 64) - 1))
def test_a_version_gives_its_values_back(row: tuple[list[str], list[Any], bool], timestamp: int) -> None:
    types, values, is_update = row
    version = TIMESTAMP.pack(timestamp) + RowForm(types).pack(values, is_update=is_update)
    assert RowForm(types).values(version) == values
    assert timestamp_of(version) == timestamp
    assert version[8] == (Kind.UPDATE if is_update else Kind.WRITE)


@given(rows(), st.integers(0, 3))
def test_a_version_is_widened_by_columns_that_came_later(row: tuple[list[str], list[Any], bool], added: int) -> None:
    types, values, is_update = row
    version = TIMESTAMP.pack(7) + RowForm(types).pack(values, is_update=is_update)
    form = RowForm([*types, *["utf8"] * added])
    assert form.values(form.widened(version, len(types))) == values + [ABSENT if is_update else None] * added
    assert form.widened(TIMESTAMP.pack(7) + DELETED, len(types)) == TIMESTAMP.pack(7) + DELETED


@given(rows(), st.data())
def test_bytes_that_are_no_version_are_refused(row: tuple[list[str], list[Any], bool], data: st.DataObject) -> None:
    types, values, is_update = row
    version = TIMESTAMP.pack(7) + RowForm(types).pack(values, is_update=is_update)
    cut = version[: data.draw(st.integers(0, len(version) - 1))]
    with pytest.raises(ValueError, match=r"version|bytes"):
        RowForm(types).values(cut)
    with pytest.raises(ValueError, match="version"):
        RowForm(types).values(version + b"\0")


def test_entries_stand_end_to_end() -> None:
    first = encode_entry(2, [(5, [NewRow(b"a", b"\2aa"), NewRow(b"b", DELETED)]), (6, [NewRow(b"a", b"\3")])])
    second = encode_entry(3, [(9, [NewRow(b"", b"\2")])])
    stamps = [TIMESTAMP.pack(number) for number in (5, 5, 6, 9)]
    assert list(decode_entries(first + second)) == [
        LoggedRow(b"a", stamps[0] + b"\2aa", 2), LoggedRow(b"b", stamps[1] + DELETED, 2),
        LoggedRow(b"a", stamps[2] + b"\3", 2), LoggedRow(b"", stamps[3] + b"\2", 3),
    ]  # fmt: skip
    assert list(decode_entries(b"")) == []


def test_a_damaged_entry_is_named_wherever_its_lengths_lie() -> None:
    entry = encode_entry(1, [(5, [NewRow(b"key", DELETED), NewRow(b"k", b"\2value")])])
    for position in range(len(entry)):
        for bits in (0xFF, 0x01, 0x80):
            damaged = bytearray(entry)
            damaged[position] ^= bits
            try:
                found = list(decode_entries(bytes(damaged)))
            except EntryDamaged:
                continue
            assert len(found) == 2, "what is no length is a value, which the blob's checksum guards"
    for end in range(1, len(entry)):
        with pytest.raises(EntryDamaged):
            list(decode_entries(entry[:end]))
    with pytest.raises(EntryDamaged, match="bytes stand behind"):
        list(decode_entries(ENTRY_HEAD.pack(b"PQL1", 0, 0, 0, 1) + b"x"))


def _row(key: bytes, timestamp: int) -> tuple[bytes, bytes]:
    return key, TIMESTAMP.pack(timestamp) + DELETED


@pytest.mark.spec("C.2")
def test_a_store_has_the_versions_of_each_key_and_its_keys() -> None:
    store = RowStore(1, 0)
    store.apply([_row(b"b", 6), _row(b"a", 5), _row(b"b", 7)], 5, 7)
    assert sorted(key for keys in store.key_slices() for key in keys) == [b"a", b"b"]
    store.apply([_row(b"c", 4), _row(b"b", 9)], 4, 9)
    assert (store.key_count, store.row_count) == (3, 5)
    assert (store.least_timestamp, store.greatest_timestamp) == (4, 9)
    assert [timestamp_of(version) for version in store.versions(b"b")] == [6, 7, 9]
    assert [timestamp_of(version) for version in store.versions(b"a")] == [5]
    assert store.versions(b"x") == ()
    slices = store.key_slices()
    store.apply([_row(b"d", 10)], 10, 10)
    assert sorted(key for keys in slices for key in keys) == [b"a", b"b", b"c", b"d"]
    assert store.memory_bytes == 4 * (KEY_MEMORY + 1) + 2 * VERSION_MEMORY + LIST_MEMORY + 6 * 9
    assert (store.list_count, store.memory_blocks) == (1, 4 + 6 + 2)
