"""Six seconds of copies in Kafka transactions under `kill -9`, or $PQBROKER_TESTS_SECONDS of them."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.transactional_copies import run

SECONDS = float(os.environ.get("PQBROKER_TESTS_SECONDS", "6"))


@pytest.mark.timeout(400 + 5 * SECONDS)
def test_kills_of_the_broker_and_of_clients_neither_lose_nor_double_a_record(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    seen = run(tmp_path, seconds=SECONDS, seed=seed)
    assert seen.broker_kills + seen.client_kills
    assert seen.aborted
