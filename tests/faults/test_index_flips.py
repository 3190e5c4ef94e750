"""Ten bytes flipped in the tables of an index: never silent loss, never an endless start."""

from pathlib import Path

import pytest

from tests.faults.index_flips import run

pytestmark = pytest.mark.spec("J.2")


@pytest.mark.timeout(240)
def test_a_flipped_byte_of_the_index_costs_what_it_holds_and_is_told(tmp_path: Path) -> None:
    seen = run(tmp_path, count=10, seed=1)
    assert seen["refused untouched"]
    assert seen["served in part"]
