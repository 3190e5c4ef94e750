"""50 seeds and 240 crash points, or all of them at full depth. More: python -m tests.simulation --help"""

import os
import subprocess
import sys

import pytest

from pqbroker.pq.log import producers
from pqbroker.pq.log.producers import Producer
from tests.simulation.crash_points import compacted_points, crash_points, producing_points, second_cell_points
from tests.simulation.run import SimulationFailed, run
from tests.support.depth import examples

SEEDS = examples(150, least=50)
SEEDS_A_TEST = 25
CRASH_POINTS = examples(300, least=100)
SECOND_CELL_POINTS = examples(100, least=40)
COMPACTED_POINTS = examples(200, least=60)
PRODUCING_POINTS = examples(100, least=40)
SLOW_S = 400
"""Ten times what it takes where nothing else runs."""


@pytest.mark.spec("J.1")
@pytest.mark.timeout(SLOW_S)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_nothing_promised_is_broken_whatever_happens(first: int) -> None:
    outcomes = [run(seed) for seed in range(first, first + SEEDS_A_TEST)]
    assert len({outcome.digest for outcome in outcomes}) == SEEDS_A_TEST
    assert sum(outcome.openings for outcome in outcomes) > 2 * SEEDS_A_TEST


def test_a_run_leaves_no_watcher_no_timer_and_nothing_counted() -> None:
    for seed in range(3):
        run(seed)


@pytest.mark.spec("J.1")
@pytest.mark.timeout(SLOW_S)
def test_a_crash_at_any_commit_loses_nothing_acknowledged_and_leaves_nothing_half() -> None:
    outcomes = [one() for one in crash_points(0, CRASH_POINTS)]
    assert len(outcomes) == CRASH_POINTS


@pytest.mark.spec("E.12")
@pytest.mark.timeout(SLOW_S)
def test_a_loss_of_the_second_cell_at_any_commit_tears_no_transaction() -> None:
    outcomes = [one() for one in second_cell_points(0, SECOND_CELL_POINTS)]
    assert len(outcomes) == SECOND_CELL_POINTS


@pytest.mark.spec("G.3")
@pytest.mark.timeout(SLOW_S)
def test_a_loss_at_any_commit_beside_a_cleaner_that_always_runs_costs_no_key() -> None:
    outcomes = [one() for one in compacted_points(0, COMPACTED_POINTS)]
    assert len(outcomes) == COMPACTED_POINTS


@pytest.mark.spec("4.39", "4.40")
@pytest.mark.timeout(SLOW_S)
def test_a_loss_at_any_commit_tears_no_kafka_transaction() -> None:
    outcomes = [one() for one in producing_points(0, PRODUCING_POINTS)]
    assert len(outcomes) == PRODUCING_POINTS


def test_a_seed_tells_the_same_story_every_time_and_everywhere() -> None:
    digest = run(5).digest
    assert run(6).digest != digest
    assert run(5).digest == digest
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "5"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "5"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split()[-1] == digest


def test_a_broken_promise_is_told_with_the_seed_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_everything(state: Producer | None, _epoch: int, sequence: int, _count: int) -> int:
        return sequence if state is None else state.last + 1

    monkeypatch.setattr(producers, "check", takes_everything)
    told = r"(holds .* twice|it is at Written)(.|\n)*replay: python -m tests.simulation --seed 3"
    with pytest.raises(SimulationFailed, match=told):
        run(3)
