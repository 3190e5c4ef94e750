"""Others are served beside requests and objects of thousands, which are done in slices: see long_work.py."""

import pytest

from tests.attacks.long_work import PARTITIONS, SETTINGS, WORK, Measured, measured
from tests.support.attacked import TURN_EVER_S_MAX, attacked

pytestmark = pytest.mark.alone

P99_S_MAX = 0.050
TURN_S_MAX = 0.020
"""CPU time of the longest turn on an ordinary core, passes of the collector and the first load of a module included;
the best of TRIES, since a turn was seen to take three times its time beside other programs."""
TRIES = 3
DEEP_PASS_S_MAX = 0.5
"""Once the work is over and nobody asks: a search of all memory for garbage, with a million objects in it."""


@pytest.mark.parametrize("work", WORK)
def test_others_have_their_turn_beside(work: str) -> None:
    found = tried(work)
    for _ in range(TRIES - 1):
        if found.own_p99_s < P99_S_MAX and found.own_turn_s < TURN_S_MAX:
            break
        found = tried(work)
    assert found.own_p99_s < P99_S_MAX, found
    assert found.own_turn_s < TURN_S_MAX, found


def tried(work: str) -> Measured:
    """Figures of the other clients beside the work, on a broker of its own."""
    with attacked(SETTINGS, turn_s_max=TURN_EVER_S_MAX, pass_s_max=DEEP_PASS_S_MAX) as node:
        node.create("other", 1)
        if WORK[work].is_of_a_wide_topic:
            node.create("wide", PARTITIONS)
        with measured(node) as found:
            WORK[work].do(node, WORK[work].count // WORK[work].part)
        print(found)
    return found
