"""Two nodes against one: the comparison, and a small run of it. Its marks are for a quiet machine."""

from pathlib import Path

import pytest

from tests.benchmarks.nodes import Measured, compare, measure


@pytest.mark.parametrize(
    ("several", "is_met"),
    [(Measured(6.0, 12.0, 1), True), (Measured(6.1, 12.0, 1), False), (Measured(5.0, 12.1, 1), False)],
)
def test_shares_are_of_what_one_node_takes(several: Measured, is_met: bool) -> None:
    assert compare(Measured(9.9, 10.0, 1), several).is_met is is_met


def test_processor_time_of_all_nodes_is_measured(tmp_path: Path) -> None:
    measured = measure(tmp_path, 2, 4_000_000)
    assert 0 < measured.busiest < measured.together
