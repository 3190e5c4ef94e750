"""Growth in small: ten times as much of anything costs about the same a request."""

from pathlib import Path

import pytest

from tests.benchmarks.growth import KINDS, Kind, Scale, measure
from tests.support.crowding import Crowding

SMALL = Scale(sizes=(50, 500), requests_per_s=400, seconds=1.5, starts=1)
TIMES_MAX = 3.0
"""What grows as what there is would be ten times; a machine that does other things too is off by a half."""
TRIES = 4


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_request_costs_the_same_whatever_there_is_beside_it(kind: Kind, tmp_path: Path) -> None:
    found: list[list[float]] = []
    while len(found) < TRIES and not (found and min(found)[0] < TIMES_MAX):
        few, many = (_cpu_us(kind, size, tmp_path / f"{size}-{len(found)}") for size in SMALL.sizes)
        found.append([many / few, few, many])
    assert min(found)[0] < TIMES_MAX, found


def _cpu_us(kind: Kind, size: int, directory: Path) -> float:
    """Processor time of a request, as an ordinary core takes it."""
    with Crowding() as crowding:
        measured = measure(kind, size, SMALL, directory)
    return measured.cpu_us / crowding.slowness
