"""Bits flipped in what a kill, a power cut, a clean end and a backup left: python -m tests.faults.flips --count 1000

A flip is silent when something acknowledged is not read back the same, and neither a start nor the doctor names damage.
"""

import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.flips.life import BACKUP, CUT, Left, live
from tests.faults.flips.places import LAST_ROUND, Flip, choose
from tests.faults.flips.verdict import Verdict, judge
from tests.faults.story.book import Book
from tests.support.in_memory import in_memory

_FLIPS_OF_A_LIFE = 15


@dataclass(slots=True)
class Outcome:
    """Counts of a run. `flips`: by kind of place and how the directory was left; `torn`, `damaged`: said by starts."""

    flips: Counter[tuple[str, str]] = field(default_factory=Counter)
    torn: int = 0
    damaged: int = 0
    lost: int = 0
    """Flips that cost something acknowledged, or the start."""
    silent: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.flips.total()

    def note(self, kind: str, left: Left, verdict: Verdict) -> None:
        self.flips[kind, left.how] += 1
        self.torn += verdict.is_torn
        self.damaged += bool(verdict.named)
        self.lost += bool(verdict.missing or verdict.named)

    def __str__(self) -> str:
        in_last = sum(count for (kind, _), count in self.flips.items() if kind == LAST_ROUND)
        return (
            f"{len(self.silent)} of {self.count} flips silent, {in_last} of them in a last round; damage was named in"
            f" {self.damaged}, a torn end in {self.torn}, and {self.count - self.lost} cost nothing"
        )


def run(scratch: Path, *, count: int, seed: int) -> Outcome:
    """Flip `count` bits, each in a copy of its own. Directories with a silent flip are kept in `scratch`."""
    outcome = Outcome()
    for number in range(0, count, _FLIPS_OF_A_LIFE):
        _flip_in_life(scratch, outcome, f"{seed}:{number}", min(_FLIPS_OF_A_LIFE, count - number))
    return outcome


def _flip_in_life(scratch: Path, outcome: Outcome, seed: str, count: int) -> None:
    source, book = random.Random(seed), Book()
    life = scratch / f"life-{seed.rpartition(':')[2]}"
    left = live(life, source, book)
    for each in left:
        _see_that_all_is_there(each, book)
    is_silent = False
    for number in range(count):
        each = left[number % len(left)]
        flip = choose(each, source)
        told = f"seed {seed}, flip {number} ({each.how}): bit {flip.bit} of byte {flip.position} of {flip.path}"
        try:
            verdict = _judge_copy(each, book, flip)
        except Exception as failure:
            raise AssertionError(f"{told}, in {each.directory}: {failure!r}") from failure
        outcome.note(flip.kind, each, verdict)
        if verdict.is_silent:
            is_silent = True
            outcome.silent.append(f"{told}, in {each.directory}: {'; '.join(verdict.missing[:3])}")
    if not is_silent:
        shutil.rmtree(life)


def _see_that_all_is_there(left: Left, book: Book) -> None:
    """Without a flip nothing is missing, and what a power cut tore is called torn."""
    verdict = _judge_copy(left, book, None)
    assert not verdict.missing, (left.how, left.directory, verdict.missing)
    assert not verdict.named, (left.how, left.directory, verdict.named)
    assert left.how == CUT or not verdict.is_torn, (left.how, left.directory)


def _judge_copy(left: Left, book: Book, flip: Flip | None) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="pqbroker-flip-", dir=in_memory()) as place:
        copied = left.copied(Path(place, "copied"))
        if flip is not None:
            flip.make(copied)
        return judge(copied, book, left.owed, restored=Path(place, "restored") if left.how == BACKUP else None)
