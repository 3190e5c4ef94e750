"""Four `kill -9` under load, or $PQBROKER_TESTS_KILLS of them; starts beside a gigabyte are measured."""

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.faults.kills import GIGABYTE, RESTART_MAX_S, Outcome, run
from tests.support.crowding import Crowding

pytestmark = pytest.mark.spec("J.1")

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "4"))
BULK_BYTES = 32 << 20
TIMED = 2
"""Kills whose restarts are measured."""


def killed(kills: int, bulk_bytes: int) -> Outcome:
    """Kill a broker with so much in its directory `kills` times, at random; return what became of it."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:  # pytest's own would keep a gigabyte
        return run(Path(scratch), kills=kills, seed=seed, bulk_bytes=bulk_bytes)


@pytest.mark.timeout(240 + 10 * KILLS)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills_under_load() -> None:
    assert killed(KILLS, BULK_BYTES).acknowledged > KILLS


@pytest.mark.alone
def test_a_killed_broker_starts_within_its_time_beside_a_gigabyte() -> None:
    with Crowding() as crowding:
        restarts = killed(TIMED, GIGABYTE).restarts
    slowness = max(restart.slowness for restart in restarts)  # the host changes pace within a start
    slowest_s = max(restart.wall_s - restart.waited_s for restart in restarts)
    assert slowest_s / slowness <= RESTART_MAX_S * crowding.crowd, restarts
