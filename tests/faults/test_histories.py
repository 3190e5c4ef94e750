"""A short history of transactions over three cells under kills and moves, or one of $PQBROKER_TESTS_SECONDS."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.histories import run
from tests.histories.history import Ending

SECONDS = float(os.environ.get("PQBROKER_TESTS_SECONDS", "6"))


@pytest.mark.spec("E.12")
@pytest.mark.timeout(300 + 5 * SECONDS)
def test_a_history_under_kills_and_moves_has_no_anomaly(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    seen = run(tmp_path, seconds=SECONDS, seed=seed)
    assert seen.ending[Ending.OK] > SECONDS
    assert seen.changes
