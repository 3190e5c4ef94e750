"""Stored form of blobs: checksums cover every byte, ranges touch only their pages."""

import os
from pathlib import Path

import pytest

from pqbroker.storage.disk.checksums import SEGMENT_PAGE_BYTES as PAGE
from pqbroker.storage.disk.segments import (
    BLOB_HEADER_BYTES,
    Location,
    SegmentFile,
    encode_record,
    parse_segment_name,
    read_range,
    record_bytes,
    segment_name,
    verify_range,
    walk,
)
from pqbroker.storage.engine import BlobCorrupt
from tests.storage.cells import blob_key, content

BLOB = blob_key(5)


def segment_of(path: Path, *sizes: int) -> tuple[int, list[Location]]:
    """An open segment with one blob per size, and where they are."""
    data, places = bytearray(), []
    for number, size in enumerate(sizes):
        places.append(Location("main", 1, 1, len(data), size))
        for buffer in encode_record(blob_key(number), [content(number, size)], size, 100 + number, 0):
            data += buffer
    file = path / segment_name(1, 1)
    file.write_bytes(data)
    return os.open(file, os.O_RDWR), places


def flip(file: int, position: int) -> None:
    (byte,) = os.pread(file, 1, position)
    os.pwrite(file, bytes([byte ^ 0x10]), position)


@pytest.mark.parametrize("size", [1, 100, PAGE, PAGE + 1, 3 * PAGE])
def test_a_record_takes_the_bytes_foretold(size: int) -> None:
    assert sum(map(len, encode_record(BLOB, [bytes(size)], size, 1, 0))) == record_bytes(size)


def test_a_large_buffer_is_not_copied() -> None:
    data = bytes(100_000)
    assert encode_record(BLOB, [data], len(data), 1, 0)[1] is data


@pytest.mark.parametrize("size", [1, 700, PAGE + 7])
def test_a_flipped_byte_anywhere_is_never_served(tmp_path: Path, size: int) -> None:
    file, (_, at) = segment_of(tmp_path, 50, size)
    whole = content(1, size)
    end = at.position + record_bytes(size)
    positions = [*range(at.position, at.position + BLOB_HEADER_BYTES + 8), *range(at.position, end, 97), end - 1]
    for position in positions:
        if position >= end:
            continue
        flip(file, position)
        with pytest.raises(BlobCorrupt, match=blob_key(1).hex()):
            read_range(SegmentFile(file), blob_key(1), at, 0, size, "here")
        with pytest.raises(BlobCorrupt, match=blob_key(1).hex()):
            verify_range(file, blob_key(1), at, (0, size), "here", bytearray(PAGE))
        flip(file, position)
        assert bytes(read_range(SegmentFile(file), blob_key(1), at, 0, size, "here")) == whole
    os.close(file)


@pytest.mark.parametrize("pages", [3, 40])
def test_a_range_is_served_when_only_other_pages_are_bad(tmp_path: Path, pages: int) -> None:
    size = pages * PAGE
    file, (at,) = segment_of(tmp_path, size)
    bad = pages - 2
    flip(file, at.position + BLOB_HEADER_BYTES + 4 * pages + bad * PAGE + 5)
    whole = content(0, size)
    for offset, count in [(0, bad * PAGE), ((bad + 1) * PAGE, PAGE), (PAGE - 1, 1)]:
        found = read_range(SegmentFile(file), blob_key(0), at, offset, count, "here")
        assert bytes(found) == whole[offset : offset + count]
        begin, size = verify_range(file, blob_key(0), at, (offset, count), "here", bytearray(4 * PAGE))
        assert os.pread(file, size, begin) == whole[offset : offset + count]
    with pytest.raises(BlobCorrupt) as told:
        read_range(SegmentFile(file), blob_key(0), at, bad * PAGE + 100, 1, "here")
    assert told.value.position == bad * PAGE
    with pytest.raises(BlobCorrupt) as told:
        verify_range(file, blob_key(0), at, (0, at.size), "here", bytearray(4 * PAGE))
    assert told.value.position == bad * PAGE
    os.close(file)


def test_a_record_read_under_another_blobs_name_is_corrupt(tmp_path: Path) -> None:
    file, (first, second) = segment_of(tmp_path, 500, 500)
    with pytest.raises(BlobCorrupt):
        read_range(SegmentFile(file), blob_key(0), second, 0, 500, "here")
    with pytest.raises(BlobCorrupt):
        read_range(SegmentFile(file), blob_key(0), first._replace(size=499), 0, 499, "here")
    os.close(file)


@pytest.mark.parametrize("left", [0, 10, BLOB_HEADER_BYTES, BLOB_HEADER_BYTES + 4, BLOB_HEADER_BYTES + 4 + 499])
def test_a_segment_cut_short_is_corrupt(tmp_path: Path, left: int) -> None:
    file, (at,) = segment_of(tmp_path, 500)
    os.ftruncate(file, left)
    with pytest.raises(BlobCorrupt):
        read_range(SegmentFile(file), blob_key(0), at, 0, 500, "here")
    os.close(file)


def test_a_walk_sees_headers_until_one_is_torn(tmp_path: Path) -> None:
    file, places = segment_of(tmp_path, 10, 50_000, 10, 10)
    flip(file, places[3].position + 30)
    seen = [(position, header.blob, header.size, header.commit) for position, header in walk(file, 0)]
    assert seen == [(at.position, blob_key(number), at.size, 100 + number) for number, at in enumerate(places[:3])]
    os.close(file)


def test_segment_names_tell_generation_and_sequence_and_sort_by_them() -> None:
    names = [segment_name(generation, sequence) for generation in (1, 2, 300) for sequence in (1, 2, 300)]
    assert names == sorted(names)
    assert parse_segment_name(segment_name(300, 2)) == (300, 2)


@pytest.mark.parametrize(
    "name",
    [
        "pool",
        "foo-bar.segment",
        "-1--2.segment",
        "1-7.segment",
        "0000000000000001-00000001.segment.bak",
        "000000000000000A-00000001.segment",
        "0000000000000001-00000001.segment\n",
    ],
)
def test_a_name_of_another_form_is_none_of_a_segment(name: str) -> None:
    assert parse_segment_name(name) is None


def test_what_was_expected_is_read_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, places = segment_of(tmp_path, 300, 40_000, 500)
    segment = SegmentFile(file)
    segment.expect(places[0].position, places[1].position + record_bytes(40_000))
    monkeypatch.setattr(os, "pread", None)
    for index, at in enumerate(places[:2]):
        assert bytes(read_range(segment, blob_key(index), at, 0, at.size, "here")) == content(index, at.size)
    with pytest.raises(TypeError):
        read_range(segment, blob_key(2), places[2], 0, 500, "here")
