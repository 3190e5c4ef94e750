"""Four thousand random requests leave the broker sound; `python -m tests.grammar` sends a million."""

import pytest

from tests.grammar.run import attack
from tests.support.attacked import TURN_EVER_S_MAX

REQUESTS = 4_000
SEED = 12
TIME_S_MAX = 100.0
"""Several times what it takes beside the other tests."""


@pytest.mark.timeout(3 * TIME_S_MAX)
def test_random_requests_leave_the_broker_sound() -> None:
    tally = attack(REQUESTS, SEED, TIME_S_MAX, TURN_EVER_S_MAX)
    assert tally.answered > 400
