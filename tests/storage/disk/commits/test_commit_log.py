"""The files of the commit log: room taken beforehand, the next file, and what goes when the index has it on disk."""

import errno
import os
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits import commit_log
from pqbroker.storage.disk.commits.commit_log import CommitLog, LogOwner, log_files, make_log_directory
from tests.storage.disk.commits.logs import SEED, Written, rows_of


def test_rounds_are_written_and_found_in_order(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    for number in range(1, 50):
        log.write(number, rows_of(number, 50 * number))
        log.sync()
    assert written.numbers() == list(range(1, 50))
    log.close()
    assert written.numbers() == list(range(1, 50))


def test_a_sync_of_a_round_does_not_find_the_file_grown(tmp_path: Path) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    size = written.newest().stat().st_size
    for number in range(1, 20):
        log.write(number, rows_of(number))
    assert written.newest().stat().st_size == size
    log.close()
    assert written.newest().stat().st_size < 20 * 300


def test_a_full_file_is_followed_by_the_next_which_goes_on_in_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "FILE_BYTES", 5_000)
    written = Written(tmp_path)
    log = written.begin(1)
    for number in range(1, 30):
        log.write(number, rows_of(number, 10_000 if number == 7 else 500))
        log.sync()
    assert log.files == len(log_files(written.index)) > 3
    assert written.numbers() == list(range(1, 30))
    log.close()


def test_a_file_goes_when_the_index_has_all_of_its_time_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "FILE_BYTES", 2_000)
    written = Written(tmp_path)
    log = written.begin(1)
    for number in range(1, 20):
        log.write(number, rows_of(number, 300))
    while log.files > 1:
        log.forget(written.flushed)
        assert written.numbers() == list(range(written.flushed + 1, 20))
        written.flushed += 1
    assert 10 < written.flushed < 20
    log.close()


def test_a_file_stays_while_rounds_behind_payloads_of_its_time_are_not_on_disk(tmp_path: Path) -> None:
    written = Written(tmp_path)
    first = written.begin(1)
    for number in range(1, 4):
        written.write_behind(first, 1, number)
    first.close()
    second = written.begin(2, taken=3)
    second.forget(2)
    assert second.files == 2
    second.forget(3)
    assert second.files == 1
    second.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_without_room_to_take_the_file_grows_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def fallocate(file: int, position: int, size: int) -> None:
        os.ftruncate(file, position + size)
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    written = Written(tmp_path)
    log = written.begin(1)
    for number in range(1, 9):
        log.write(number, rows_of(number))
        log.sync()
        assert written.newest().stat().st_size < 9 * 300
    assert written.numbers() == list(range(1, 9))
    log.close()


def test_no_room_is_taken_where_little_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    index = tmp_path / "index"
    index.mkdir()
    log = CommitLog(make_log_directory(index), LogOwner(1, SEED, 0, True), [], lambda: False)
    log.write(1, rows_of(1))
    assert log_files(index)[0].stat().st_size < 1_000
    log.close()


def test_what_is_written_short_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(tmp_path)
    log = written.begin(1)
    pwritev, pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda file, buffers, at: pwritev(file, [bytes(buffers[0])[:9]], at))
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, bytes(data)[:50], at))
    log.write(1, rows_of(1))
    monkeypatch.undo()
    assert written.numbers() == [1]
    log.close()


def test_a_generation_never_writes_into_a_file_that_is_there(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.begin(1).close()
    with pytest.raises(FileExistsError):
        written.begin(1)
