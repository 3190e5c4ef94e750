"""Bits flipped in directories that a kill, a power cut or a clean end left: python -m tests.faults.flips --count 1000

A flip is silent when something acknowledged is not read back the same, and neither a start nor the doctor names damage.
"""

import random
import shutil
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from tests.faults.flips.places import choose
from tests.faults.flips.story import CUT, Left, live
from tests.faults.flips.verdict import Verdict, judge

_FLIPS_OF_A_LIFE = 15


@dataclass(slots=True)
class Outcome:
    """What a run saw. `flips`: by kind of place and how the directory was left; `torn`, `damaged`: what starts said."""

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
        return (
            f"{self.count} flips: {len(self.silent)} silent; damage was named in {self.damaged},"
            f" a torn end in {self.torn}, and {self.count - self.lost} cost nothing"
        )


def run(scratch: Path, *, count: int, seed: int) -> Outcome:
    """Flip `count` bits, each in a copy of its own. Directories with a silent flip are kept in `scratch`."""
    outcome = Outcome()
    for number in range(0, count, _FLIPS_OF_A_LIFE):
        _flip_in_life(scratch, outcome, f"{seed}:{number}", min(_FLIPS_OF_A_LIFE, count - number))
    return outcome


def _flip_in_life(scratch: Path, outcome: Outcome, seed: str, count: int) -> None:
    source = random.Random(seed)
    life = scratch / f"life-{seed.rpartition(':')[2]}"
    with patch.object(uuid, "uuid4", lambda: uuid.UUID(int=source.getrandbits(128))):
        left = live(life, source)
    for each in left:
        _see_that_all_is_there(each)
    is_silent = False
    for number in range(count):
        each = left[number % len(left)]
        flip = choose(each, source)
        copied = life / "flipped"
        shutil.copytree(each.directory, copied)
        flip.make(copied)
        told = f"seed {seed}, flip {number} ({each.how}): bit {flip.bit} of byte {flip.position} of {flip.path}"
        try:
            verdict = judge(copied, each.owed)
        except Exception as failure:
            raise AssertionError(f"{told}, in {each.directory}: {failure!r}") from failure
        outcome.note(flip.kind, each, verdict)
        if verdict.is_silent:
            is_silent = True
            outcome.silent.append(f"{told}, in {each.directory}: {'; '.join(verdict.missing[:3])}")
        shutil.rmtree(copied)
    if not is_silent:
        shutil.rmtree(life)


def _see_that_all_is_there(left: Left) -> None:
    """Without a flip nothing is missing, and what a power cut tore is called torn."""
    copied = left.directory.with_name("unflipped")
    shutil.copytree(left.directory, copied)
    verdict = judge(copied, left.owed)
    assert not verdict.missing, (left.how, verdict.missing)
    assert not verdict.named, (left.how, verdict.named)
    assert left.how == CUT or not verdict.is_torn, left.how
    shutil.rmtree(copied)
