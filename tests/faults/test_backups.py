"""Two backups under full load; `python -m tests.faults.backups --times 50` makes more."""

import random
from pathlib import Path

import pytest

from tests.faults.backups import run


@pytest.mark.timeout(180)
def test_a_backup_under_full_load_restores_to_one_moment_and_is_healthy(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    outcome = run(tmp_path, times=2, seed=seed)
    assert outcome.records > 1000
    assert outcome.linked_bytes > 0
