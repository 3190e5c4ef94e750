"""Four `kill -9` of a broker whose cleaner runs all the time, and of its workers, or $PQBROKER_TESTS_KILLS of them."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.cleaning_kills import run

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "4"))


@pytest.mark.spec("G.3")
@pytest.mark.timeout(180 + 20 * KILLS)
def test_no_key_is_lost_or_comes_back_by_kills_of_broker_and_cleaner(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    seen = run(tmp_path, kills=KILLS, seed=seed)
    assert seen.records > KILLS
    assert seen.passes > 1, "the cleaner ran"
