"""The states of a commit, walked through from the first one, and the end_of_prepared on prepared rows."""

from itertools import product

import pytest

from pqbroker.pq.transactions import commit_states as states
from pqbroker.pq.transactions.commit_states import CommitState, PreparedEnd, end_of_prepared

EVENTS = {
    name: changes for name, changes in vars(states).items() if name.startswith("ON_")
}


def _after(state: CommitState) -> set[tuple[str, CommitState]]:
    return {(name, changes[state]) for name, changes in EVENTS.items() if state in changes}


def _paths(state: CommitState) -> list[list[tuple[str, CommitState]]]:
    """Return all ways from a state to an end; there is no circle."""
    following = sorted(_after(state))
    if not following:
        return [[]]
    return [[step, *rest] for step in following for rest in _paths(step[1])]


def test_every_state_is_reached_and_every_way_ends() -> None:
    paths = _paths(CommitState.ENTERING)
    assert {CommitState.ENTERING, *(state for path in paths for _, state in path)} == set(CommitState)
    assert {path[-1][1] for path in paths} == {CommitState.COMMITTED, CommitState.ABORTED}


def test_a_commit_is_committed_only_behind_its_decision_and_never_aborted_after_it() -> None:
    for path in _paths(CommitState.ENTERING):
        is_decided = "ON_DECIDED" in [event for event, _ in path]
        assert (path[-1][1] is CommitState.COMMITTED) is is_decided, path


def test_rows_are_prepared_before_the_decision() -> None:
    for path in _paths(CommitState.ENTERING):
        events = [event for event, _ in path]
        if "ON_DECIDED" in events:
            assert events.index("ON_HELD") < events.index("ON_PREPARED") < events.index("ON_DECIDED")


def test_a_refusal_of_what_is_decided_is_a_defect() -> None:
    for state in (CommitState.FINISHING, CommitState.COMMITTED, CommitState.ABORTED):
        with pytest.raises(KeyError):
            states.ON_REFUSAL[state]


@pytest.mark.parametrize(("is_home_known", "is_decided", "is_under_way"), list(product((True, False), repeat=3)))
def test_prepared_rows_wait_unless_it_is_certain_what_becomes_of_them(
    is_home_known: bool, is_decided: bool, is_under_way: bool
) -> None:
    found = end_of_prepared(is_home_known=is_home_known, is_decided=is_decided, is_under_way=is_under_way)
    if not is_home_known or is_under_way:
        assert found is PreparedEnd.WAIT
    else:
        assert found is (PreparedEnd.COMMIT if is_decided else PreparedEnd.ABORT)
