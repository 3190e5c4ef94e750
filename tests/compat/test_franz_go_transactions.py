"""franz-go's own test of transactions, TestTxnEtl. `python -m tests.compat.foreign_suites` runs all of it."""

import os
import subprocess

import pytest

from tests.support.drivers.franz_go_driver import own_tests


@pytest.mark.timeout(600)
@pytest.mark.parametrize("balancer", ["range", "cooperative-sticky"])
def test_franz_gos_own_test_of_transactions_passes(kafka: str, balancer: str) -> None:
    """Three consumers in a chain copy what a producer writes in transactions; members leave, and some abort."""
    settings = {"KGO_SEEDS": kafka, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000", "GOMAXPROCS": "1"}
    done = subprocess.run(
        [own_tests(), "-test.run", f"^TestTxnEtl$/^{balancer}$", "-test.v"],
        env=os.environ | settings, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[:2000]}\n…\n{done.stdout[-1000:]}\n{done.stderr[:3000]}"
    assert f"--- PASS: TestTxnEtl/{balancer}" in done.stdout
