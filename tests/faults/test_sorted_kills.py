"""A few `kill -9` of a broker that flushes and compacts sorted tables, or $PQBROKER_TESTS_KILLS of them."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.sorted_kills import run

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))


@pytest.mark.spec("J.1")
@pytest.mark.timeout(180 + 20 * KILLS)
def test_no_row_that_was_acknowledged_is_lost_by_kills_of_broker_and_workers(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    seen = run(tmp_path, kills=KILLS, seed=seed)
    assert seen.rows > KILLS
    assert seen.partitions > 3, "flushes, compactions and partitionings ran"
