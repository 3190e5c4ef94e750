"""Four `kill -9` under load, or $PQBROKER_TESTS_KILLS of them; starts beside a gigabyte are measured."""

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.faults.exec_time import Start
from tests.faults.kills import GIGABYTE, RESTART_MAX_S, Outcome, run
from tests.faults.test_start import start_on_empty
from tests.support.crowding import Crowding

pytestmark = pytest.mark.spec("J.1")

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "4"))
BULK_BYTES = 32 << 20
TIMED = 2
EMPTY_S = 0.55
"""Seconds of a start on an empty directory by an ordinary core: a host may change pace within one."""
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
def test_a_killed_broker_starts_within_its_time_beside_a_gigabyte(tmp_path: Path) -> None:
    with Crowding() as crowding:
        restarts = killed(TIMED, GIGABYTE).restarts
        empty_s = max(_wall_s(start_on_empty(Path(tempfile.mkdtemp(dir=tmp_path)))[0]) for _ in range(TIMED))
    slowest_s = max(map(_wall_s, restarts))
    assert slowest_s <= RESTART_MAX_S * crowding.crowd * max(1.0, empty_s / EMPTY_S), (restarts, empty_s)


def _wall_s(started: Start) -> float:
    return started.wall_s - started.waited_s
