"""Three deaths or pauses of processes of a broker of two nodes, or $PQBROKER_TESTS_KILLS of them."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.node_kills import run

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))
LIBRARIES = ("confluent-kafka", "aiokafka")


@pytest.mark.spec("J.1")
@pytest.mark.timeout(300 + 60 * KILLS)
def test_deaths_and_pauses_of_nodes_lose_double_and_disorder_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(tmp_path, kills=KILLS, seed=seed, libraries=LIBRARIES)
    assert outcome.faults.total() == KILLS
    assert outcome.acknowledged > KILLS
    assert outcome.read > 0
    assert outcome.copied.records > 0
