"""Ten power cuts, or $PQBROKER_TESTS_POWER_CUTS of them: what was acknowledged was synced, names and all."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.faults.power.cuts import record, run
from tests.faults.power.disk import Change, File, left_of
from tests.faults.power.recording import reason_not_to_record

pytestmark = pytest.mark.spec("J.1")

CUTS = int(os.environ.get("PQBROKER_TESTS_POWER_CUTS", "10"))
SERVED = 1


@pytest.mark.timeout(120 + 2 * CUTS)
@pytest.mark.skipif(reason_not_to_record() is not None, reason=reason_not_to_record() or "")
def test_nothing_acknowledged_is_lost_by_power_cuts(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    recorded = record(tmp_path, seed)
    outcome = run(tmp_path, recorded, cuts=CUTS, served=SERVED, seed=seed)
    assert outcome.acknowledged > CUTS
    shutil.rmtree(tmp_path)  # after a failure it stays: the recording, and what the cut left


def test_a_unit_is_written_out_with_all_that_it_holds() -> None:
    file = File()
    for position, data in ((0, b"a" * 700), (700, b"b" * 300), (5000, b"c" * 10)):
        file.history.change(Change(position, data))
    seen = {left_of(file, random.Random(seed), 0.5) for seed in range(200)}
    assert all(left[600:700] == b"a" * 100 for left in seen if left[700:1000] == b"b" * 300)
    assert {left[699:701] for left in seen if len(left) >= 1000} >= {b"ab", b"a\0"}
    assert any(left.endswith(b"c" * 10) and not left.strip(b"\0c") for left in seen)
