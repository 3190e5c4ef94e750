"""A few `kill -9` of a broker under transactions over three cells, or $PQBROKER_TESTS_KILLS of them."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.transfers import run

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))


@pytest.mark.spec("E.12")
@pytest.mark.timeout(180 + 20 * KILLS)
def test_no_transfer_is_torn_lost_or_doubled_by_kills(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    ended = run(tmp_path, kills=KILLS, seed=seed)
    assert len(ended.acknowledged) > KILLS
