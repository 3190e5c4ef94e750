"""Others are served beside requests and objects of thousands, in sizes that a test can have: see long_work.py."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.attacks.long_work import SETTINGS, many_topics, measured, parked_fetches, wide_table
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, attacked

pytestmark = pytest.mark.alone

P99_S_MAX = 0.100
"""Twice what it is on a machine that does nothing else."""
WIDTH = 2_000


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(partial(parked_fetches, count=50, width=WIDTH), id="parked Fetches"),
        pytest.param(partial(many_topics, count=500), id="CreateTopics"),
        pytest.param(partial(wide_table, count=WIDTH), id="a table"),
    ],
)
def test_others_have_their_turn_beside(work: Callable[[Attacked], None]) -> None:
    with attacked(SETTINGS, turn_s_max=TURN_EVER_S_MAX) as node:
        node.create("other", 1)
        node.create("wide", WIDTH)
        with measured(node) as found:
            work(node)
        print(found)
        assert found.p99_s < P99_S_MAX, found
