"""What a salvage takes of a damaged commit log: it mends single bits, gives up the rest, and reads on behind it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits.commit_history import LogPlaces, apply_history
from pqbroker.storage.disk.commits.commit_log import CommitLog
from pqbroker.storage.disk.commits.commit_record import BEGIN, COMMIT_HEADER_BYTES
from pqbroker.storage.disk.commits.commit_scan import CommitAt, scan_commits
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.index_rows import number_row
from pqbroker.storage.disk.mending.damaged_rounds import LogDamage, read_damaged
from pqbroker.storage.engine import IndexDamaged, LogDamaged
from tests.storage.cells import content
from tests.storage.disk.commits.logs import SEED, Rows, Written, overwrite

LAST = 9


def round_rows(number: int, size: int = 100) -> bytes:
    changes = IndexChanges()
    changes.put(b"K%06d" % number, content(number, size))
    changes.put(*number_row(number))
    return changes.encoded()


def write(log: CommitLog, *numbers: int) -> None:
    for number in numbers:
        log.write(number, round_rows(number))
    log.sync()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A log of rounds 1 to LAST, in one file that is still open, as after kill -9."""
    found = Written(tmp_path)
    write(found.begin(1), *range(1, LAST + 1))
    return found


def damage_of(written: Written) -> LogDamage:
    tails = [(path, 0) for path in sorted(written.pool.glob("*.segment"))]
    return read_damaged(LogPlaces(written.index, tails, SEED, written.is_synced), written.flushed)


def applied(damage: LogDamage) -> list[int]:
    """Numbers of the rounds whose rows are applied; those given up have a row of their number alone."""
    index = Rows()
    apply_history(damage.history, index)
    assert index.numbers == list(range(index.numbers[0], damage.history.last_number + 1)) if index.numbers else True
    for number in index.numbers:
        key, value = number_row(number)
        assert index.rows[key] == value
    return sorted(int(key[1:]) for key in index.rows if key.startswith(b"K"))


def records(path: Path) -> dict[int, CommitAt]:
    return {each.header.number: each for each in scan_commits(path, 0, SEED).records if not each.header.flags & BEGIN}


def garble(record: CommitAt, at: int) -> None:
    """Three bytes of a record, counted from its beginning: more than one bit."""
    overwrite(record.path, record.position + at, b"\xaa\x55\xaa")


def flip(record: CommitAt, at: int) -> None:
    byte = record.path.read_bytes()[record.position + at]
    overwrite(record.path, record.position + at, bytes([byte ^ 0x10]))


def test_a_whole_log_has_nothing_to_salvage(written: Written) -> None:
    damage = damage_of(written)
    assert not damage.is_damaged
    assert damage.lost_rounds_max == 0
    assert applied(damage) == list(range(1, LAST + 1))


@pytest.mark.parametrize("number", [1, 5, LAST])
@pytest.mark.parametrize("at", [0, 5, 12, 20, 45, COMMIT_HEADER_BYTES, COMMIT_HEADER_BYTES + 60])
def test_one_wrong_bit_costs_nothing(written: Written, number: int, at: int) -> None:
    flip(records(written.newest())[number], at)
    with pytest.raises(LogDamaged, match=r"or see with `pqbroker doctor --salvage`"):
        written.history()
    damage = damage_of(written)
    assert [each.record.header.number for each in damage.mended] == [number]
    assert not damage.given_up
    assert damage.lost_rounds_max == 0
    assert applied(damage) == list(range(1, LAST + 1))


def test_wrong_bits_of_rounds_side_by_side_are_all_mended(written: Written) -> None:
    for number in (3, 4, 5):
        flip(records(written.newest())[number], 30)
    assert [each.record.header.number for each in damage_of(written).mended] == [3, 4, 5]


@pytest.mark.parametrize("at", [0, 4, 12, COMMIT_HEADER_BYTES - 3, COMMIT_HEADER_BYTES, COMMIT_HEADER_BYTES + 60])
def test_a_round_with_more_damage_is_given_up_and_those_behind_it_are_taken(written: Written, at: int) -> None:
    record = records(written.newest())[5]
    garble(record, at)
    damage = damage_of(written)
    assert damage.given_up == (5,)
    assert [(gap.position, gap.end) for gap in damage.gaps] == [
        (record.position, record.position + record.header.record_bytes)
    ]
    assert damage.lost_bytes == record.header.record_bytes
    assert damage.lost_rounds_max == 1
    assert applied(damage) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_mended_round_beside_one_that_is_given_up_is_taken(written: Written) -> None:
    found = records(written.newest())
    garble(found[4], 12)
    flip(found[5], 30)
    garble(found[6], COMMIT_HEADER_BYTES + 10)
    damage = damage_of(written)
    assert damage.given_up == (4, 6)
    assert [each.record.header.number for each in damage.mended] == [5]
    assert applied(damage) == [1, 2, 3, 5, 7, 8, 9]


def test_the_last_round_is_given_up_when_no_power_cut_left_it_so(written: Written) -> None:
    garble(records(written.newest())[LAST], COMMIT_HEADER_BYTES + 10)
    damage = damage_of(written)
    assert damage.given_up == (LAST,)
    assert damage.lost_rounds_max == 1
    assert applied(damage) == list(range(1, LAST))


def test_at_the_end_nobody_knows_how_many_rounds_unreadable_bytes_were(written: Written) -> None:
    record = records(written.newest())[LAST - 2]
    end = records(written.newest())[LAST].position + records(written.newest())[LAST].header.record_bytes
    overwrite(record.path, record.position, b"\xaa" * (end - record.position))
    damage = damage_of(written)
    assert damage.given_up == (LAST - 2,)
    assert damage.lost_rounds_max >= 3
    assert "and what came behind" in damage.numbers


def test_what_a_power_cut_tore_is_left_out_as_a_start_does(written: Written) -> None:
    log = written.begin(2, LAST)
    log.write(LAST + 1, round_rows(LAST + 1, 2_000))
    record = records(written.newest())[LAST + 1]
    overwrite(record.path, record.position + 512 - record.position % 512, bytes(512))
    assert written.history().last_number == LAST
    damage = damage_of(written)
    assert not damage.is_damaged
    assert damage.history.last_number == LAST
    assert len(damage.history.left_out) == 1


def test_rounds_behind_the_end_of_a_log_that_was_cut_off_are_given_up(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    write(log, 1, 2, 3, 4)
    log.end.tell(4)
    record = records(written.newest())[3]
    with record.path.open("r+b") as file:
        file.truncate(record.position)
    damage = damage_of(written)
    assert damage.given_up == (3, 4)
    assert damage.gaps == ()
    assert damage.history.last_number == 4


def test_a_torn_payload_of_a_round_that_was_synced_is_no_reason_to_give_its_rows_up(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    begin = written.write_behind(log, 1, 1, rows=round_rows(1))
    log.end.tell(1)
    overwrite(written.segment(1), begin + 1024, bytes(512))
    with pytest.raises(LogDamaged, match="was synced"):
        written.history()
    damage = damage_of(written)
    assert [each.header.number for each in damage.torn_payloads] == [1]
    assert damage.is_damaged
    assert not damage.given_up
    assert applied(damage) == [1]


def test_a_torn_payload_that_nobody_knows_to_be_synced_is_left_out(tmp_path: Path) -> None:
    written = Written(tmp_path)
    begin = written.write_behind(written.begin(1), 1, 1, rows=round_rows(1))
    overwrite(written.segment(1), begin + 1024, bytes(512))
    damage = damage_of(written)
    assert not damage.is_damaged
    assert damage.history.last_number == 0


def test_the_payload_of_a_lost_round_counts_among_its_bytes(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    for number in (1, 2, 3):
        written.write_behind(log, 1, number, rows=round_rows(number))
    record = records(written.segment(1))[2]
    garble(record, COMMIT_HEADER_BYTES + 8)
    damage = damage_of(written)
    assert damage.given_up == (2,)
    assert damage.lost_bytes == record.header.record_bytes + record.header.payload_bytes
    assert applied(damage) == [1, 3]


def test_a_damaged_header_at_a_segments_end_is_the_round_that_is_missing(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    log.write(1, round_rows(1))
    written.write_behind(log, 1, 2, rows=round_rows(2))
    write(log, 3)
    garble(records(written.segment(1))[2], 20)
    damage = damage_of(written)
    assert damage.given_up == (2,)
    assert damage.lost_rounds_max == 1


def test_a_damaged_payload_header_costs_no_round(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    written.write_behind(log, 1, 1, rows=round_rows(1))
    begin = written.write_behind(log, 1, 2, rows=round_rows(2))
    overwrite(written.segment(1), begin + 10, b"\xaa\x55")
    assert not damage_of(written).is_damaged


def test_blobs_of_a_later_round_say_that_rounds_are_lost(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    log.write(1, round_rows(1))
    log.sync()
    begin = written.write_behind(log, 1, 4, rows=round_rows(4))
    with written.segment(1).open("r+b") as file:
        file.truncate(begin + 5_000)
    damage = damage_of(written)
    assert damage.given_up == (2, 3, 4)
    assert damage.history.last_number == 4


@pytest.mark.parametrize("damaged", [garble, flip])
def test_a_generation_whose_first_record_is_damaged_still_says_what_it_took(
    tmp_path: Path, damaged: Callable[[CommitAt, int], None]
) -> None:
    written = Written(tmp_path)
    earlier = written.begin(1)
    write(earlier, 1, 2, 3)
    write(written.begin(2, 3), 4, 5)
    write(earlier, 4, 5, 6)  # by an owner that woke up
    (begin,) = [each for each in scan_commits(written.newest(), 0, SEED).records if each.header.flags & BEGIN]
    damaged(begin, 10)
    damage = damage_of(written)
    assert damage.history.last_number == 5
    assert {each.header.generation for each in damage.history.rounds} == {1, 2}
    assert [each.header.generation for each in damage.history.rounds][3:] == [2, 2]


def test_damage_to_rounds_that_the_index_has_is_no_loss(written: Written) -> None:
    garble(records(written.newest())[3], 12)
    written.flushed = 6
    damage = damage_of(written)
    assert not damage.is_damaged
    assert applied(damage) == [7, 8, 9]


def test_rounds_that_were_not_synced_are_not_missed(tmp_path: Path) -> None:
    written = Written(tmp_path, is_synced=False)
    write(written.begin(1), *range(1, LAST + 1))
    garble(records(written.newest())[5], 12)
    damage = damage_of(written)
    assert not damage.is_damaged
    assert damage.history.last_number == 4


def test_an_index_that_is_older_than_the_log_is_not_salvaged(tmp_path: Path) -> None:
    written = Written(tmp_path)
    write(written.begin(1, 7), 8)
    with pytest.raises(IndexDamaged, match="the commit log begins behind commit 7"):
        damage_of(written)
