"""What a start takes from the commit log: all that was acknowledged, a torn end left out, damage refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits.commit_log import log_files
from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES
from pqbroker.storage.disk.commits.commit_scan import scan_commits
from pqbroker.storage.engine import IndexDamaged
from tests.storage.disk.commits.logs import SEED, Written, flip, overwrite, rows_of
from tests.support.depth import some

UNIT_BYTES = 4096
SECTOR_BYTES = 512


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def spans(path: Path) -> list[tuple[int, int]]:
    """Where the records of a file begin and end, payloads with them."""
    return [
        (each.position - each.header.payload_bytes, each.position + each.header.record_bytes)
        for each in scan_commits(path, 0, SEED).records
    ]


def units(begin: int, end: int, step: int) -> list[tuple[int, int]]:
    """The pieces in which a disk may have written [begin, end)."""
    starts = range(begin - begin % step, end, step)
    return [(max(start, begin), min(start + step, end)) for start in starts]


def without(path: Path, *pieces: tuple[int, int]) -> None:
    for start, end in pieces:
        overwrite(path, start, bytes(end - start))


def test_rounds_stand_in_log_and_segments_and_are_taken_in_order_of_numbers(written: Written) -> None:
    log = written.begin(1)
    for number in range(1, 20):
        if number % 3:
            log.write(number, rows_of(number))
        else:
            written.write_behind(log, 1, number, (5_000, 70_000))
    assert written.numbers() == list(range(1, 20))
    written.flushed = 11
    assert written.numbers() == list(range(12, 20))
    log.close()


def test_a_directory_without_a_log_is_refused(written: Written) -> None:
    with pytest.raises(IndexDamaged, match="no commit log that can be read; restore"):
        written.history()
    written.begin(1).close()
    assert written.numbers() == []
    log_files(written.index)[0].unlink()
    with pytest.raises(IndexDamaged, match="no commit log that can be read; restore"):
        written.history()


def test_an_index_that_is_older_than_the_log_is_refused(written: Written) -> None:
    log = written.begin(1)
    for number in range(1, 20):
        log.write(number, rows_of(number))
    log.begin_again()
    log.forget(19)
    log.close()
    written.flushed = 19
    assert written.numbers() == []
    written.flushed = 18
    with pytest.raises(IndexDamaged, match="commits up to 18, but the commit log begins behind commit 19"):
        written.history()


@pytest.mark.parametrize("step", [SECTOR_BYTES, UNIT_BYTES])
@pytest.mark.parametrize("size", [20, 600, 12_000, 70_000])
def test_a_torn_last_round_in_the_log_is_left_out(written: Written, size: int, step: int) -> None:
    log = written.begin(1)
    for number in range(1, 30):
        log.write(number, rows_of(number, 150))
    log.write(30, rows_of(30, size))
    path = written.newest()
    whole = path.read_bytes()
    pieces = units(*spans(path)[-1], step)
    torn = [[piece] for piece in pieces] + [pieces[1:], pieces[:-1]]
    for lacking in filter(None, torn):
        without(path, *lacking)
        assert written.numbers() == list(range(1, 30)), lacking
        path.write_bytes(whole)
    assert written.numbers() == list(range(1, 31))
    log.close()


@pytest.mark.parametrize("step", [SECTOR_BYTES, UNIT_BYTES])
@pytest.mark.parametrize("sizes", [(600,), (5_000, 3_000), (70_000, 200)])
def test_a_torn_last_round_behind_its_payload_is_left_out(
    written: Written, sizes: tuple[int, ...], step: int
) -> None:
    log = written.begin(1)
    for number in range(1, 4):
        written.write_behind(log, 1, number)
    begin = written.write_behind(log, 1, 4, sizes)
    path = written.segment(1)
    whole = path.read_bytes()
    pieces = units(begin, len(whole), step)
    for lacking in [*([piece] for piece in pieces), pieces[1:], pieces[:-1], pieces]:
        without(path, *lacking)
        assert written.numbers() == [1, 2, 3], lacking
        path.write_bytes(whole)
        if lacking[-1] == pieces[-1]:
            path.write_bytes(whole[: lacking[0][0]])
            assert written.numbers() == [1, 2, 3], lacking
            path.write_bytes(whole)
    assert written.numbers() == [1, 2, 3, 4]
    log.close()


def test_a_torn_payload_is_left_out_where_it_is_the_first_that_the_index_lacks(written: Written) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    begin = written.write_behind(log, 1, 2)
    without(written.segment(1), (begin + 1_000, begin + 3_000))
    written.flushed = 1
    assert written.numbers() == []
    assert len(written.history().left_out) == 1
    log.close()


@pytest.mark.parametrize("place", [lambda begin, end: begin + 1, lambda begin, end: (begin + end) // 2])
@pytest.mark.parametrize("number", [1, 15, 30])
def test_a_flipped_byte_in_the_log_is_damage_unless_the_index_has_the_round(
    written: Written, number: int, place: Callable[[int, int], int]
) -> None:
    log = written.begin(1)
    for each in range(1, 31):
        log.write(each, rows_of(each, 900))
    path = written.newest()
    begin, end = spans(path)[number]
    flip(path, place(begin, end))
    with pytest.raises(IndexDamaged, match="acknowledged rows are lost; restore"):
        written.history()
    written.flushed = number
    if number == 30 and place(begin, end) < begin + COMMIT_HEADER_BYTES:  # it may be the next round's
        with pytest.raises(IndexDamaged, match="commit log is damaged"):
            written.history()
    else:
        assert written.numbers() == list(range(number + 1, 31))
    log.close()


def test_every_byte_of_the_last_round_in_the_log_counts(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    log.write(2, rows_of(2))
    path = written.newest()
    for position in some(range(*spans(path)[-1])):
        flip(path, position)
        with pytest.raises(IndexDamaged, match="commit log is damaged at byte"):
            written.history()
        flip(path, position)
    log.close()


def test_rows_that_lack_a_sector_are_damage_where_a_later_round_is_anywhere(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    log.write(2, rows_of(2, 5_000))
    path = written.newest()
    begin, _ = spans(path)[-1]
    written.write_behind(log, 1, 3)
    without(path, (begin + 1_000, begin + 3_000))
    with pytest.raises(IndexDamaged, match=rf"commit 2 is missing, though commit 3 .*byte {begin} of .*cannot be read"):
        written.history()
    written.segment(1).unlink()
    assert written.numbers() == [1]
    log.close()


def test_a_round_that_is_missing_between_files_is_damage(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    written.write_behind(log, 1, 2)
    log.write(3, rows_of(3))
    log.close()
    written.segment(1).unlink()
    with pytest.raises(IndexDamaged, match=r"commit 2 is missing, though commit 3"):
        written.history()


def test_a_flipped_byte_in_a_payload_costs_its_blob_and_not_its_rows(written: Written) -> None:
    log = written.begin(1)
    begins = [written.write_behind(log, 1, number, (5_000, 40_000)) for number in range(1, 4)]
    for begin in begins:
        for position in (begin + 2, begin + 30, begin + 50, begin + 1_000, begin + 30_000):
            flip(written.segment(1), position)
            assert written.numbers() == [1, 2, 3], position
            flip(written.segment(1), position)
    log.close()


def test_what_an_owner_writes_that_was_taken_over_never_counts(written: Written) -> None:
    first = written.begin(1)
    first.write(1, rows_of(1))
    second = written.begin(2, taken=1)
    first.write(2, rows_of(2, 7_000))
    written.write_behind(first, 1, 3)
    assert written.numbers() == [1]
    second.write(2, rows_of(2))
    written.write_behind(second, 2, 3)
    assert written.numbers() == [1, 2, 3]
    third = written.begin(3, taken=3)
    second.write(4, rows_of(4))
    assert written.numbers() == [1, 2, 3]
    third.write(4, rows_of(4))
    assert written.history().rounds[-1].header.generation == 3
    for log in (first, second, third):
        log.close()


def test_what_an_owner_leaves_half_that_was_taken_over_is_no_damage(written: Written) -> None:
    first = written.begin(1)
    first.write(1, rows_of(1))
    second = written.begin(2, taken=1)
    first.write(2, rows_of(2, 7_000))
    flip(log_files(written.index)[0], spans(log_files(written.index)[0])[-1][0] + 500)
    second.write(2, rows_of(2))
    assert written.numbers() == [1, 2]
    first.close()
    second.close()


def test_an_owner_that_began_and_committed_nothing_leaves_all_to_the_next(written: Written) -> None:
    first = written.begin(1)
    first.write(1, rows_of(1))
    written.begin(2, taken=1).close()
    third = written.begin(3, taken=1)
    third.write(2, rows_of(2))
    assert written.numbers() == [1, 2]
    first.close()
    third.close()


def test_two_rounds_of_a_number_are_refused(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    log.write(1, rows_of(1))
    with pytest.raises(IndexDamaged, match=r"commit 1 is both at byte .* and at byte"):
        written.history()
    log.close()


def test_what_a_client_sends_is_never_taken_for_a_round(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    other = Written(written.index.parent / "other")
    foreign = other.begin(9)
    forged = foreign.header(rows_of(2), number=2)
    # Another cell's seed: what a client, which does not know ours, can make.
    path = written.newest()
    end = spans(path)[-1][1]
    record = bytearray(forged + rows_of(2))
    record[36] ^= 1
    overwrite(path, end + 100, bytes(record))
    assert written.numbers() == [1]
    log.close()
    foreign.close()


def test_rounds_that_were_not_synced_end_at_the_first_that_is_not_whole(tmp_path: Path) -> None:
    written = Written(tmp_path, is_synced=False)
    log = written.begin(1)
    for number in range(1, 10):
        log.write(number, rows_of(number, 2_000))
    path = written.newest()
    flip(path, spans(path)[5][0] + 100)
    assert written.numbers() == [1, 2, 3, 4]
    log.close()


def test_a_log_file_that_a_crash_left_empty_is_passed_over(written: Written) -> None:
    log = written.begin(1)
    log.write(1, rows_of(1))
    half = written.index / "commits" / "0000000000000002-00000001.commits"
    for left in (b"", bytes(4_096)):
        half.write_bytes(left)
        assert written.numbers() == [1]
    log.close()
