"""Rounds that hold sectors of zeros: one flipped bit is damage, a sector that a power cut left out is a torn end."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from pqbroker.storage.disk.commits.commit_record import EARLIER_HEADER_BYTES, parse_commit
from pqbroker.storage.disk.commits.commit_scan import scan_commits
from pqbroker.storage.engine import IndexDamaged
from tests.storage.disk.commits.logs import SEED, Written, flip, overwrite, rows_of
from tests.storage.disk.commits.test_commit_history import SECTOR_BYTES, UNIT_BYTES, spans, units, without
from tests.support.depth import some

ZEROS = {
    "zeros": bytes(9_000),
    "zeros at the end": b"\1" + bytes(5_000),
    "images": (bytes(1_500) + b"\xff" * 700) * 5,
    "magics": (bytes(600) + b"PQC2PQB1PQC1") * 9,
    "a zero sector": b"\xaa" * 2_000 + bytes(1_200) + b"\xaa" * 2_000,
}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def is_zeros(path: Path, begin: int, end: int) -> bool:
    return not any(path.read_bytes()[begin:end])


@pytest.mark.parametrize("value", ZEROS.values(), ids=ZEROS)
def test_a_flipped_bit_in_the_last_record_of_the_log_is_damage(written: Written, value: bytes) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    log.write(2, rows_of(2, value=value))
    path = written.newest()
    begin, end = spans(path)[-1]
    for position in some([*range(begin, end, 97), *range(begin, begin + 60), *range(end - 60, end)]):
        flip(path, position)
        with pytest.raises(IndexDamaged, match="commit log is damaged at byte"):
            written.history()
        flip(path, position)
    assert [each.header.number for each in written.history().rounds] == [1, 2]
    log.close()


@pytest.mark.parametrize("step", [SECTOR_BYTES, UNIT_BYTES])
@pytest.mark.parametrize("value", ZEROS.values(), ids=ZEROS)
def test_a_sector_that_a_power_cut_left_out_of_the_log_is_torn(written: Written, value: bytes, step: int) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    log.write(2, rows_of(2, value=value))
    path = written.newest()
    whole = path.read_bytes()
    pieces = [piece for piece in units(*spans(path)[-1], step) if not is_zeros(path, *piece)]
    for lacking in [*([piece] for piece in pieces), pieces[1:], pieces[:-1], pieces]:
        without(path, *lacking)
        assert [each.header.number for each in written.history().rounds] == [1], lacking
        path.write_bytes(whole)
    log.close()


@pytest.mark.parametrize("value", ZEROS.values(), ids=ZEROS)
def test_a_flipped_bit_in_the_last_payload_of_a_segment_is_not_torn(written: Written, value: bytes) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    begin = written.write_behind(log, 1, 2, blobs=[value, b"\1" + value])
    path = written.segment(1)
    end = path.stat().st_size
    payload_end = scan_commits(path, 0, SEED).records[-1].position
    for position in some([*range(begin, end, 97), *range(begin, begin + 70), *range(end - 60, end)]):
        flip(path, position)
        if position < payload_end:  # the blob says so when it is read
            history = written.history()
            assert ([each.header.number for each in history.rounds], history.left_out) == ([1, 2], ())
        else:
            with pytest.raises(IndexDamaged, match="commit log is damaged at byte"):
                written.history()
        flip(path, position)
    log.close()


@pytest.mark.parametrize("step", [SECTOR_BYTES, UNIT_BYTES])
@pytest.mark.parametrize("value", ZEROS.values(), ids=ZEROS)
def test_a_sector_that_a_power_cut_left_out_of_a_segment_is_torn(written: Written, value: bytes, step: int) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    begin = written.write_behind(log, 1, 2, blobs=[value, b"\1" + value])
    path = written.segment(1)
    whole = path.read_bytes()
    pieces = [piece for piece in units(begin, len(whole), step) if not is_zeros(path, *piece)]
    for lacking in [*([piece] for piece in pieces), pieces[1:], pieces[:-1], pieces]:
        without(path, *lacking)
        assert [each.header.number for each in written.history().rounds] == [1], lacking
        path.write_bytes(whole)
    log.close()


LONG_ROWS = {"zeros": bytes(5_000), "other bytes": b"\xaa" * 5_000, "images": ZEROS["images"]}


@pytest.mark.parametrize("blob", [bytes(9_000), b"\xaa" * 9_000, ZEROS["images"]], ids=["zeros", "others", "images"])
@pytest.mark.parametrize("value", LONG_ROWS.values(), ids=LONG_ROWS)
def test_a_flipped_bit_in_long_rows_behind_a_payload_is_damage(written: Written, value: bytes, blob: bytes) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    written.write_behind(log, 1, 2, blobs=[blob], rows=rows_of(2, value=value))
    path = written.segment(1)
    for position in some(range(scan_commits(path, 0, SEED).records[-1].position, path.stat().st_size, 97)):
        flip(path, position)
        with pytest.raises(IndexDamaged, match="commit log is damaged at byte"):
            written.history()
        flip(path, position)
    log.close()


@pytest.mark.parametrize("blob", [bytes(9_000), b"\xaa" * 9_000, ZEROS["images"]], ids=["zeros", "others", "images"])
@pytest.mark.parametrize("value", LONG_ROWS.values(), ids=LONG_ROWS)
def test_a_sector_left_out_of_long_rows_behind_a_payload_is_torn(written: Written, value: bytes, blob: bytes) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    written.write_behind(log, 1, 2, blobs=[blob], rows=rows_of(2, value=value))
    path = written.segment(1)
    whole = path.read_bytes()
    rows_at = scan_commits(path, 0, SEED).records[-1].position
    for piece in units(rows_at, len(whole), SECTOR_BYTES):
        if is_zeros(path, *piece):
            continue
        without(path, piece)
        assert [each.header.number for each in written.history().rounds] == [1], piece
        path.write_bytes(whole)
    log.close()


def earlier_record(rows: bytes, generation: int, number: int) -> bytes:
    fields = struct.pack(">4sIIQQII", b"PQC1", len(rows), 0, generation, number, 0, crc32c(rows, SEED))
    return fields + crc32c(fields, SEED).to_bytes(4, "big") + rows


def test_a_record_of_the_earlier_form_is_read_and_judged_by_the_earlier_rule(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    path = written.newest()
    begin = spans(path)[-1][1]
    record = earlier_record(rows_of(2, value=bytes(3_000)), 1, 2)
    header = parse_commit(record[:EARLIER_HEADER_BYTES], SEED)
    assert header is not None
    assert header.record_bytes == len(record)
    overwrite(path, begin, record)
    overwrite(path, begin + len(record), earlier_record(rows_of(3), 1, 3))
    assert [each.header.number for each in written.history().rounds] == [1, 2, 3]
    overwrite(path, begin + len(record), bytes(1_000))
    flip(path, begin + len(record) - 2)
    history = written.history()
    assert [each.header.number for each in history.rounds] == [1]
    assert history.left_out
    log.close()


@pytest.mark.parametrize("before", range(4))
def test_a_record_whose_magic_lies_across_two_chunks_of_the_search_is_found(written: Written, before: int) -> None:
    log = written.begin(1)
    begin = written.write_behind(log, 1, 1, (200_000,) * 8)
    path = written.segment(1)
    whole = path.read_bytes()
    at = scan_commits(path, 0, SEED).records[-1].position
    damaged_at = at - (1 << 20) - 1 + before  # the search begins right behind
    assert damaged_at > begin
    path.write_bytes(b"\xaa" * (at - damaged_at) + whole[at:])
    (found,) = scan_commits(path, 0, SEED).records
    assert found.position == at - damaged_at
    log.close()
