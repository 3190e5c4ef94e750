"""Twenty `kill -9` under load, or $PQBROKER_TESTS_KILLS of them, on a directory that holds a gigabyte."""

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.faults.kills import GIGABYTE, RESTART_MAX_S, run

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "14"))


@pytest.mark.alone
@pytest.mark.timeout(240 + 10 * KILLS)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills_under_load() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:  # pytest's own would keep the gigabyte
        outcome = run(Path(scratch), kills=KILLS, seed=seed, bulk_bytes=GIGABYTE)
    assert outcome.acknowledged > KILLS
    slowness = max(restart.slowness for restart in outcome.restarts)  # the host changes pace within a start
    slowest_s = max(restart.wall_s - restart.waited_s for restart in outcome.restarts)
    assert slowest_s / slowness <= RESTART_MAX_S, outcome.restarts
