"""Some seeds of a broker of several nodes, or more at full depth, and the broken variants that they find. More:
python -m tests.simulation --nodes --seeds 10000"""

import functools
import os
import subprocess
import sys

import pytest

from tests.simulation.nodes.run import run_nodes
from tests.simulation.nodes.variants import VARIANTS
from tests.simulation.run import SimulationFailed
from tests.support.depth import examples

SEEDS = examples(16, least=2)
VARIANT_SEEDS = {
    "epoch": 3, "reclaim": 6, "coordinator": 3, "none": 0, "held": 17, "decision": 58, "aborted": 3,
    "session": 6, "member": 82, "late": 10,
}  # fmt: skip
"""A seed that finds each variant."""
SLOW_S = 400
"""Ten times what it takes where nothing else runs."""
once = functools.cache(run_nodes)
"""Runs a seed that several tests look at."""


@pytest.mark.spec("J.1")
@pytest.mark.timeout(SLOW_S)
def test_nothing_promised_is_broken_by_deaths_pauses_and_cuts_of_nodes() -> None:
    outcomes = [once(seed) for seed in range(SEEDS)]
    assert len({outcome.digest for outcome in outcomes}) == len(outcomes)
    assert sum(outcome.transactions for outcome in outcomes) > 10 * len(outcomes)


@pytest.mark.timeout(SLOW_S)
def test_a_seed_of_several_nodes_tells_the_same_story_everywhere() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--nodes", "--seed", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "5"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split()[-1] == once(1).digest


@pytest.mark.timeout(SLOW_S)
@pytest.mark.parametrize("name", VARIANT_SEEDS)
def test_a_broker_of_nodes_that_lacks_a_rule_is_found(name: str) -> None:
    with pytest.raises(SimulationFailed, match="replay: python"):
        run_nodes(VARIANT_SEEDS[name], VARIANTS[name])
