"""States of a commit at its coordinator, and the table of their changes. An event that a state's table does not have is
a defect: KeyError.

state      event         next       what it means
entering   on_held       preparing  every participant keeps other writes out: rows elsewhere than the home are prepared
preparing  on_prepared   deciding   all of them are durable: the request with the decision is on its way
deciding   on_decided    finishing  the decision is durable: the transaction is committed, whatever happens from here on
finishing  on_finished   committed  every participant has written its rows; the decision stays for a repeated commit
entering   on_refusal    aborting   one participant refuses, or the time is over
preparing  on_refusal    aborting
deciding   on_refusal    aborting   the request is provably not stored
aborting   on_finished   aborted    what was prepared is dropped
deciding   on_home_lost  unknown    the home's cell was lost: its next start has the decision, or there is none
unknown    on_decided    finishing
unknown    on_refusal    aborting

A participant that starts with prepared rows asks the home: `end_of_prepared` says what becomes of them.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final


class CommitState(StrEnum):
    """The states of a commit."""

    ENTERING = "entering"
    PREPARING = "preparing"
    DECIDING = "deciding"
    FINISHING = "finishing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


CommitChanges = Mapping[CommitState, CommitState]
ON_HELD: Final[CommitChanges] = {CommitState.ENTERING: CommitState.PREPARING}
ON_PREPARED: Final[CommitChanges] = {CommitState.PREPARING: CommitState.DECIDING}
ON_DECIDED: Final[CommitChanges] = {
    CommitState.DECIDING: CommitState.FINISHING, CommitState.UNKNOWN: CommitState.FINISHING,
}  # fmt: skip
ON_REFUSAL: Final[CommitChanges] = {
    CommitState.ENTERING: CommitState.ABORTING, CommitState.PREPARING: CommitState.ABORTING,
    CommitState.DECIDING: CommitState.ABORTING, CommitState.UNKNOWN: CommitState.ABORTING,
}  # fmt: skip
ON_HOME_LOST: Final[CommitChanges] = {CommitState.DECIDING: CommitState.UNKNOWN}
ON_FINISHED: Final[CommitChanges] = {
    CommitState.FINISHING: CommitState.COMMITTED, CommitState.ABORTING: CommitState.ABORTED,
}  # fmt: skip

UNDECIDED: Final = frozenset({CommitState.ENTERING, CommitState.PREPARING, CommitState.DECIDING})
"""States in which the commit itself will tell its participants: nobody else may."""


class PreparedEnd(Enum):
    """Outcomes for prepared rows."""

    WAIT = "wait"
    COMMIT = "commit"
    ABORT = "abort"


def end_of_prepared(*, is_home_known: bool, is_decided: bool, is_under_way: bool) -> PreparedEnd:
    """Return what becomes of prepared rows. `is_home_known`: what the home has stored is known, its cell is open;
    `is_decided`: it has the decision; `is_under_way`: the commit is undecided, in this process."""
    if not is_home_known or is_under_way:
        return PreparedEnd.WAIT
    return PreparedEnd.COMMIT if is_decided else PreparedEnd.ABORT
