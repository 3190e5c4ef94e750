"""The end of the log, kept a second time: what it proves, what it never claims, and what means nothing."""

import os
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits import log_end
from pqbroker.storage.disk.commits.commit_log import COMMITS, FILE_BYTES, CommitLog
from pqbroker.storage.disk.commits.log_end import LogEnd, known_ends
from pqbroker.storage.engine import IndexDamaged
from tests.storage.disk.commits.logs import SEED, Written, flip, overwrite, rows_of
from tests.storage.disk.commits.test_commit_history import spans

SLOT_BYTES = 512
LOST = "the commit log ends at commit {}, but .*/{:016x}.end says that commit {} was synced.*acknowledged rows are lost"


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def fill(log: CommitLog, numbers: range) -> None:
    for number in numbers:
        log.write(number, rows_of(number))
    log.sync()


def ends_of(written: Written) -> list[tuple[int, int]]:
    return [(each.generation, each.number) for each in known_ends(written.index / COMMITS, SEED)]


def end_file(written: Written, generation: int) -> Path:
    return written.index / COMMITS / f"{generation:016x}.end"


def cut_off(written: Written, records: int) -> None:
    """Cut the newest log file off behind a whole record, with so many of them left beside the first."""
    os.truncate(written.newest(), spans(written.newest())[records][1])


@pytest.mark.parametrize("left", [0, 3, 8])
def test_a_log_cut_off_behind_a_whole_record_is_damage(written: Written, left: int) -> None:
    log = written.begin(1)
    fill(log, range(1, 10))
    log.end.tell(9)
    assert written.numbers() == list(range(1, 10))
    log.close()
    cut_off(written, left)
    with pytest.raises(IndexDamaged, match=LOST.format(left, 1, 9)):
        written.history()


def test_a_segment_cut_off_behind_a_whole_record_is_damage(written: Written) -> None:
    log = written.begin(1)
    written.write_behind(log, 1, 1)
    begin = written.write_behind(log, 1, 2)
    log.end.tell(2)
    log.close()
    assert written.numbers() == [1, 2]
    os.truncate(written.segment(1), begin)
    with pytest.raises(IndexDamaged, match=LOST.format(1, 1, 2)):
        written.history()


def test_a_last_record_overwritten_with_zeros_is_damage_once_it_is_known_to_be_synced(written: Written) -> None:
    log = written.begin(1)
    fill(log, range(1, 4))
    begin, end = spans(written.newest())[-1]
    log.end.tell(2)
    log.close()
    overwrite(written.newest(), begin, bytes(end - begin))
    assert written.numbers() == [1, 2]
    LogEnd(written.index / COMMITS, 1, SEED, 3).close()
    with pytest.raises(IndexDamaged, match=LOST.format(2, 1, 3)):
        written.history()


def test_a_torn_round_that_was_synced_is_damage_and_its_place_is_named(written: Written) -> None:
    log = written.begin(1)
    fill(log, range(1, 3))
    log.write(3, rows_of(3, 4_000))
    begin, end = spans(written.newest())[-1]
    log.end.tell(3)
    log.close()
    overwrite(written.newest(), end - 1_500, bytes(1_000))
    with pytest.raises(IndexDamaged, match=f"what is at byte {begin} of .*commits cannot be read"):
        written.history()


def test_an_end_that_is_older_means_nothing(written: Written) -> None:
    log = written.begin(1)
    fill(log, range(1, 5))
    log.end.tell(4)
    fill(log, range(5, 10))
    log.close()
    assert written.numbers() == list(range(1, 10))
    cut_off(written, 4)
    assert written.numbers() == [1, 2, 3, 4]


@pytest.mark.parametrize("content", [None, b"", b"PQE1", bytes(2 * SLOT_BYTES), b"\xff" * 5_000])
def test_an_end_that_is_missing_or_unreadable_means_nothing(written: Written, content: bytes | None) -> None:
    log = written.begin(1)
    fill(log, range(1, 5))
    log.end.tell(4)
    log.close()
    if content is None:
        end_file(written, 1).unlink()
    else:
        end_file(written, 1).write_bytes(content)
    cut_off(written, 2)
    assert written.numbers() == [1, 2]


def test_two_slots_are_overwritten_by_turns(written: Written) -> None:
    log = written.begin(1)
    assert ends_of(written) == [(1, 0), (1, 0)]
    seen = []
    for number in (3, 4, 9):
        log.end.tell(number)
        seen.append([number for _, number in ends_of(written)])
    assert seen == [[0, 3], [4, 3], [4, 9]]
    log.end.tell(9)
    log.end.tell(7)
    assert ends_of(written) == [(1, 4), (1, 9)]
    assert end_file(written, 1).stat().st_size == 2 * SLOT_BYTES
    log.close()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_flipped_bit_in_a_slot_costs_the_slot_alone(written: Written, slot: int) -> None:
    log = written.begin(1)
    log.end.tell(8)
    log.end.tell(9)
    for position in range(24):
        flip(end_file(written, 1), slot * SLOT_BYTES + position)
        assert ends_of(written) == [(1, (9, 8)[1 - slot])]
        flip(end_file(written, 1), slot * SLOT_BYTES + position)
    log.close()


def test_a_slot_of_another_cell_or_generation_counts_for_nothing(written: Written) -> None:
    log = written.begin(1)
    log.close()
    LogEnd(written.index / COMMITS, 1, SEED + 1, 100).close()
    assert ends_of(written) == []
    LogEnd(written.index / COMMITS, 2, SEED, 100).close()
    os.rename(end_file(written, 2), end_file(written, 1))
    assert ends_of(written) == []
    assert written.numbers() == []


def test_what_an_earlier_owner_says_counts_as_far_as_later_ones_took(written: Written) -> None:
    paused = written.begin(1)
    fill(paused, range(1, 5))
    paused.end.tell(4)
    log = written.begin(2, taken=4)
    fill(paused, range(5, 9))
    paused.end.tell(8)
    assert written.numbers() == [1, 2, 3, 4]
    fill(log, range(5, 7))
    assert written.numbers() == [1, 2, 3, 4, 5, 6]
    log.end.tell(6)
    paused.close()
    log.close()
    cut_off(written, 1)
    with pytest.raises(IndexDamaged, match=LOST.format(5, 2, 6)):
        written.history()


def test_what_an_earlier_owner_synced_is_missed_behind_a_later_one_too(written: Written) -> None:
    earlier = written.begin(1)
    fill(earlier, range(1, 5))
    earlier.end.tell(4)
    earlier.close()
    earlier_file = written.newest()
    log = written.begin(2, taken=4)
    log.close()
    end_file(written, 2).unlink()
    os.truncate(earlier_file, spans(earlier_file)[2][1])
    with pytest.raises(IndexDamaged, match=LOST.format(2, 1, 4)):
        written.history()


def test_the_end_is_read_before_the_log(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an owner that lost the cell, and still writes, would make the later one miss what it wrote between."""
    paused = written.begin(1)
    fill(paused, range(1, 5))
    read = log_end.known_ends

    def woken(directory: Path, seed: int) -> list[log_end.KnownEnd]:
        found = read(directory, seed)
        fill(paused, range(5, 7))
        paused.end.tell(6)
        return found

    monkeypatch.setattr("pqbroker.storage.disk.commits.commit_history.known_ends", woken)
    assert written.numbers() == [1, 2, 3, 4, 5, 6]
    paused.close()


def test_the_end_of_a_generation_goes_with_its_last_log_file(written: Written) -> None:
    for generation, taken in ((1, 0), (2, 3), (3, 6)):
        log = written.begin(generation, taken)
        fill(log, range(taken + 1, taken + 4))
        log.end.tell(taken + 3)
        log.close()
    log = written.begin(4, taken=9)
    log.forget(0)
    assert {generation for generation, _ in ends_of(written)} == {1, 2, 3, 4}
    log.forget(9)
    assert ends_of(written) == [(4, 9), (4, 9)]
    log.close()


def test_an_end_that_cannot_be_written_costs_nothing(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written.begin(1)
    fill(log, range(1, 3))
    log.end.tell(2)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        log.end.tell(3)
    log.end.tell(4)
    assert {number for _, number in ends_of(written)} == {0, 2}
    fill(log, range(3, 5))
    log.close()
    assert written.numbers() == [1, 2, 3, 4]


def test_an_end_is_written_without_a_sync_of_its_own(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written.begin(1)
    fill(log, range(1, 4))
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)
    log.end.tell(3)
    assert ends_of(written)[-1] == (1, 3)
    assert synced == []
    log.close()


def test_the_end_stays_as_small_as_it_is_whatever_is_written(written: Written) -> None:
    log = written.begin(1)
    for number in range(1, 200):
        log.end.tell(number * FILE_BYTES)
    assert end_file(written, 1).stat().st_size == 2 * SLOT_BYTES
    log.close()
