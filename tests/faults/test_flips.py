"""Sixty bits flipped in log, segments, index, `cell`, pool mark and the log's end: nothing is lost silently."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.flips.places import KINDS, LAST_ROUND
from tests.faults.flips.run import run
from tests.faults.flips.story import CUT, KILLED, STOPPED, live
from tests.faults.flips.verdict import judge

FLIPS = int(os.environ.get("PQBROKER_TESTS_FLIPS", "60"))


@pytest.mark.timeout(120 + 2 * FLIPS)
def test_no_flipped_bit_is_silent(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(tmp_path, count=FLIPS, seed=seed)
    assert not outcome.silent, outcome.silent
    assert outcome.count == FLIPS
    assert outcome.damaged
    assert outcome.torn
    assert {how for _, how in outcome.flips} == {KILLED, CUT, STOPPED}
    assert {kind for kind, _ in outcome.flips} <= {LAST_ROUND, *KINDS}
    assert sum(count for (kind, _), count in outcome.flips.items() if kind == LAST_ROUND) > FLIPS // 4


def test_records_that_are_gone_without_a_word_are_silent(tmp_path: Path) -> None:
    """The judge itself: what it was not given back, and nobody names."""
    killed, *_ = live(tmp_path, random.Random(3))
    place, known = next(iter(killed.owed.batches.items()))
    known.append((10_000, b"never written"))
    verdict = judge(killed.directory, killed.owed)
    assert verdict.is_silent
    assert verdict.missing[0].startswith(f"{place[0]}-{place[1]} ends at")
