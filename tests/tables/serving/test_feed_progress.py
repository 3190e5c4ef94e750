"""Progress of a table in the topic that feeds it: by run, from where it stood, as stored."""

import pytest

from pqbroker.storage.kv.commands import Write
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import LETTERS_MAX, DeadLetter, FeedMove, FeedProgress, RunLetters
from pqbroker.tables.serving.stored_keys import LETTERS_KEY, read_feed_key

RUN, OTHER = b"r" * 16, b"o" * 16


def stored(progress: FeedProgress) -> FeedProgress:
    """What a start reads of what is made durable elsewhere."""
    values = {one.key: b"".join(map(bytes, one.buffers)) for some in progress.requests() for one in some
              if isinstance(one, Write)}  # fmt: skip
    letters = values.pop(LETTERS_KEY, None)
    return FeedProgress.read(values.items(), letters)


def test_progress_is_of_its_run_and_moves_from_where_it_stands() -> None:
    progress = FeedProgress()
    assert progress.offset_of(RUN, 3) is None
    progress.check(FeedMove(RUN, 3, 70, 80))
    progress.apply(FeedMove(RUN, 3, 70, 80))
    assert (progress.offset_of(RUN, 3), progress.offset_of(OTHER, 3), progress.offset_of(RUN, 4)) == (80, None, None)
    progress.check(FeedMove(RUN, 3, 80, 90))
    for start in (70, 79, 81):
        with pytest.raises(TableError, match="was read up to 80 meanwhile") as refused:
            progress.check(FeedMove(RUN, 3, start, 90))
        assert refused.value.code == "FEED_MOVED"
    progress.check(FeedMove(OTHER, 3, 0, 5))
    progress.apply(FeedMove(OTHER, 3, 0, 5))
    assert (progress.offset_of(RUN, 3), progress.offset_of(OTHER, 3)) == (None, 5)


def test_a_commit_that_is_told_late_takes_nothing_back() -> None:
    progress = FeedProgress()
    progress.apply(FeedMove(RUN, 0, 0, 9))
    progress.apply(FeedMove(RUN, 0, 0, 5))
    assert progress.offset_of(RUN, 0) == 9


def test_what_is_stored_is_read_again() -> None:
    progress = FeedProgress()
    letters = RunLetters(RUN.hex(), 3, (DeadLetter(1, 5, "no key"),))
    for partition in range(2_500):
        progress.apply(FeedMove(RUN, partition, 0, partition + 1, letters))
    assert [len(some) for some in progress.requests()] == [1, 1000, 1000, 500]
    again = stored(progress)
    assert [again.offset_of(RUN, partition) for partition in (0, 2_499)] == [1, 2_500]
    assert again.letters_of(RUN) == letters
    assert again.letters_of(OTHER) == RunLetters(OTHER.hex())
    (written,) = progress.commands(FeedMove(RUN, 7, 0, 1))
    assert isinstance(written, Write)
    assert read_feed_key(written.key) == 7


def test_the_last_dead_letters_are_kept_and_all_counted() -> None:
    letters = RunLetters(RUN.hex())
    for first in range(0, 150, 50):
        letters = letters.followed_by(60, [DeadLetter(0, first + number, "r") for number in range(50)])
    assert letters.count == 180
    assert [one.offset for one in letters.last] == list(range(150 - LETTERS_MAX, 150))


@pytest.mark.parametrize(
    ("rows", "letters"), [([(b"s\0\0\0\1", b"short")], None), ([(b"sx", bytes(24))], None), ([], b"[]"), ([], b"{")]
)
def test_bytes_that_are_no_progress_are_refused(rows: list[tuple[bytes, bytes]], letters: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        FeedProgress.read(rows, letters)
