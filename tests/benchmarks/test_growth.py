"""Growth in small: ten times as much of anything costs about the same a request."""

from pathlib import Path

import pytest

from tests.benchmarks.growth import HEADER, KINDS, Kind, Scale, measure
from tests.benchmarks.report import text_table

SMALL = Scale(sizes=(50, 500), requests_per_s=400, seconds=1.5, starts=1)
TIMES_MAX = 3.0
"""What grows as what there is would be ten times; a machine that does other things too is off by a half."""
TRIES = 3


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_request_costs_the_same_whatever_there_is_beside_it(kind: Kind, tmp_path: Path) -> None:
    few, many = (measure(kind, size, SMALL, tmp_path / str(size)) for size in SMALL.sizes)
    print(text_table(HEADER, [each.row(few) for each in (few, many)]))
    for number in range(TRIES):  # CPU time, to which what else runs on the machine only adds
        if many.cpu_us >= TIMES_MAX * few.cpu_us:
            many = measure(kind, SMALL.sizes[1], SMALL, tmp_path / f"again-{number}")
    assert many.cpu_us < TIMES_MAX * few.cpu_us
