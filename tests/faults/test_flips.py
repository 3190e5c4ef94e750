"""Twenty bits, or $PQBROKER_TESTS_FLIPS of them, flipped in log, segments, index, `cell`, pool mark and the log's end:
nothing is lost silently."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pqbroker.pq.log.sessions import Fence
from tests.faults.flips.life import BACKUP, CUT, KILLED, STOPPED, Left, live
from tests.faults.flips.places import KINDS, LAST_ROUND
from tests.faults.flips.run import run
from tests.faults.flips.verdict import judge
from tests.faults.hostile import NAMES
from tests.faults.story.book import SOMEWHERE, Answer, Book, Owed, Staged
from tests.faults.story.story import TABLE

FLIPS = int(os.environ.get("PQBROKER_TESTS_FLIPS", "20"))
PIECE = Staged(f"0.1.{7:032x}.{1:016x}", Fence("nobody", 1), (0,))


@pytest.mark.timeout(180 + 3 * FLIPS)
def test_no_flipped_bit_is_silent(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(tmp_path, count=FLIPS, seed=seed)
    assert not outcome.silent, outcome.silent
    assert outcome.count == FLIPS
    assert outcome.damaged
    assert outcome.torn
    assert {how for _, how in outcome.flips} == {KILLED, CUT, STOPPED, BACKUP}
    assert {kind for kind, _ in outcome.flips} <= {LAST_ROUND, *KINDS}
    assert sum(count for (kind, _), count in outcome.flips.items() if kind == LAST_ROUND) > FLIPS // 5


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, Book]:
    book = Book()
    killed, *_ = live(tmp_path_factory.mktemp("life"), random.Random(3), book)
    return killed, book


@pytest.mark.parametrize(
    ("promised", "missed"),
    [
        (lambda known: Answer(written={0: 10_000}), "record 0 is at"),
        (lambda known: Answer(written={10_000: SOMEWHERE}), "record 10000 is at None of rows-1, not at -1"),
        (lambda known: Answer(offsets={(NAMES[0], (NAMES[0], 0)): 1 << 40}), f"group {NAMES[0]} has"),
        (lambda known: Answer(batches={"nobody": 4}), "session nobody has batch -1, not 4"),
        (lambda known: Answer(staged=(PIECE,)), f"the piece {PIECE.name} is gone"),
        (lambda known: Answer(names=("nothing",)), "topic nothing is gone"),
        (lambda known: Answer(timestamps={row_of(known): 5}), f"{TABLE}-"),
    ],
    ids=["offset", "row", "group", "session", "staged", "name", "timestamp"],
)
def test_what_is_gone_without_a_word_is_silent(
    told: tuple[Left, Book], promised: Callable[[tuple[Owed, Book]], Answer], missed: str, tmp_path: Path
) -> None:
    """The judge itself: something is not given back, and nobody names it."""
    killed, book = told
    knowing = Book(dict(book.sent), list(book.answers))
    knowing.sent[10_000] = replace(knowing.sent[0], place=(TABLE, 1))
    owed = knowing.owed()
    owed.take(promised((owed, knowing)))
    verdict = judge(killed.copied(tmp_path / "copy"), knowing, owed)
    assert verdict.is_silent
    assert any(each.startswith(missed) for each in verdict.missing), verdict.missing


def test_a_record_with_other_bytes_is_missed(told: tuple[Left, Book], tmp_path: Path) -> None:
    killed, book = told
    number = next(number for number in killed.owed.written if book.sent[number].place[0] != TABLE)
    other = replace(book.sent[number], content=b"%d:other" % number)
    knowing = Book({**book.sent, number: other}, book.answers)
    verdict = judge(killed.copied(tmp_path / "copy"), knowing, killed.owed)
    assert any(f"has other bytes than were sent as {number}" in each for each in verdict.missing), verdict.missing


def test_a_torn_transaction_and_one_that_was_refused_and_is_there_are_missed(
    told: tuple[Left, Book], tmp_path: Path
) -> None:
    killed, book = told
    number = row_of((killed.owed, book))
    knowing = Book({**book.sent, 10_000: replace(book.sent[number], place=(TABLE, 1))}, book.answers)
    knowing.transactions.append((number, 10_000))
    verdict = judge(killed.copied(tmp_path / "torn"), knowing, killed.owed)
    assert [each for each in verdict.missing if each.endswith(f"only [{number}] are there")], verdict.missing
    knowing.transactions.clear()
    verdict = judge(killed.copied(tmp_path / "refused"), knowing, replace(killed.owed, refused={number}))
    assert f"row {number} is there, of a transaction that was refused" in verdict.missing, verdict.missing


def row_of(told: tuple[Owed, Book]) -> int:
    owed, book = told
    return next(number for number in owed.written if book.sent[number].place[0] == TABLE and number < 10_000)
