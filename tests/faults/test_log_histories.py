"""A short history of Kafka transactions under kills, moves and the cleaner, or one of $PQBROKER_TESTS_SECONDS."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.log_histories import run
from tests.histories.history import Ending

SECONDS = float(os.environ.get("PQBROKER_TESTS_SECONDS", "6"))


@pytest.mark.spec("4.40")
@pytest.mark.timeout(400 + 5 * SECONDS)
def test_a_history_of_transactions_under_kills_has_no_anomaly(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    seen = run(tmp_path, seconds=SECONDS, seed=seed)
    assert seen.ending[Ending.OK]
    assert seen.records
