"""States of a node process as its parent sees it, and how long it waits to be started again."""

from itertools import product

import pytest

from pqbroker.broker.node.child_states import (
    CHILD_STATES,
    RESTART_AFTER_S,
    RESTART_AFTER_S_MAX,
    SERVES_WELL_S,
    ChildEvent,
    ChildHistory,
    ChildState,
)


def _after(*events: ChildEvent, each_s: float = 0.0) -> ChildHistory:
    history = ChildHistory()
    for number, event in enumerate(events):
        history.step(event, number * each_s)
    return history


LIFE = (ChildEvent.START, ChildEvent.SERVE, ChildEvent.END)


def test_a_process_that_ended_is_started_again_and_one_that_was_stopped_is_not() -> None:
    assert _after(*LIFE, *LIFE).state is ChildState.WAITING
    for before in ((), LIFE[:1], LIFE[:2]):
        history = _after(*before, ChildEvent.STOP)
        assert history.is_over is (before == ())
        if before:
            history.step(ChildEvent.END, 0.0)
            assert history.is_over


def test_who_is_being_stopped_may_still_say_that_it_serves() -> None:
    assert _after(ChildEvent.START, ChildEvent.STOP, ChildEvent.SERVE, ChildEvent.END).is_over


def test_a_process_that_served_well_is_started_again_at_once() -> None:
    assert _after(*LIFE, each_s=SERVES_WELL_S).back_off_s == 0
    assert _after(*LIFE, each_s=SERVES_WELL_S / 2).back_off_s == RESTART_AFTER_S


def test_one_that_fails_again_and_again_waits_longer_each_time_up_to_a_limit() -> None:
    waits = [_after(*LIFE * count).back_off_s for count in range(1, 40)]
    assert waits[:3] == [RESTART_AFTER_S, 2 * RESTART_AFTER_S, 4 * RESTART_AFTER_S]
    assert waits == sorted(waits)
    assert waits[-1] == RESTART_AFTER_S_MAX


def test_a_start_that_fails_does_not_count_the_serving_of_the_life_before() -> None:
    history = _after(*LIFE, each_s=SERVES_WELL_S)
    history.step(ChildEvent.START, 100.0)
    history.step(ChildEvent.END, 200.0)
    assert history.back_off_s == RESTART_AFTER_S


_NO_STEPS = [step for step in product(ChildState, ChildEvent) if step not in CHILD_STATES]


@pytest.mark.parametrize(("state", "event"), _NO_STEPS)
def test_any_other_step_is_a_defect(state: ChildState, event: ChildEvent) -> None:
    history = ChildHistory()
    history.state = state
    with pytest.raises(KeyError):
        history.step(event, 0.0)
