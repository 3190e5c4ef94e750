"""Twenty `kill -9` under load. With PQBROKER_TESTS_KILLS that many instead, on a directory that holds a gigabyte."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.kills import GIGABYTE, RESTART_MAX_S, run

LONG_RUN = os.environ.get("PQBROKER_TESTS_KILLS")
KILLS = int(LONG_RUN or "20")


@pytest.mark.timeout(120 + 5 * KILLS)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills_under_load(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(tmp_path / "data", kills=KILLS, seed=seed, bulk_bytes=GIGABYTE if LONG_RUN else 0)
    assert outcome.acknowledged > KILLS
    assert max(restart.own_s for restart in outcome.restarts) <= RESTART_MAX_S, outcome.restarts
