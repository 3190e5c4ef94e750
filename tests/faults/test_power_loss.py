"""Fifty power cuts, or $PQBROKER_TESTS_POWER_CUTS of them: what was acknowledged was synced, names and all."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.faults.power.cuts import record, run
from tests.faults.power.recording import reason_not_to_record

CUTS = int(os.environ.get("PQBROKER_TESTS_POWER_CUTS", "50"))
SERVED = 3


@pytest.mark.timeout(120 + 2 * CUTS)
@pytest.mark.skipif(reason_not_to_record() is not None, reason=reason_not_to_record() or "")
def test_nothing_acknowledged_is_lost_by_power_cuts(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    recorded = record(tmp_path, seed)
    outcome = run(tmp_path, recorded, cuts=CUTS, served=SERVED, seed=seed)
    assert outcome.acknowledged > CUTS
    shutil.rmtree(tmp_path)  # after a failure it stays: the recording, and what the cut left
