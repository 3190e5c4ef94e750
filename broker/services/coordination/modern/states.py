"""States of a group of KIP-848, of a member on the way to its target, and what each becomes.

    group          what holds                                              leaves to
    Empty          no members; offsets may remain                          Assigning: a member joins
                                                                           Dead: deleted
    Assigning      the group's epoch is ahead of the target's              Reconciling, Stable: the target is ready
                                                                           Empty: the last member is gone
    Reconciling    some member has not reached the target                  Stable: all have
                                                                           Assigning: a change; Empty
    Stable         every member has reached the target of the epoch        Assigning: a change; Empty
    Dead           forgotten by its coordinator                            -

A group's state follows from its facts (`group_state`), so these are what the facts allow.

    member                 what holds                                      leaves to
    Stable                 it has all that the target of its epoch says    UnrevokedPartitions: it is to let some go
                                                                           UnreleasedPartitions: others hold some
    UnrevokedPartitions    it is to let partitions go before its epoch     Stable, UnreleasedPartitions: it has let
                           rises; nobody else gets them meanwhile          them go
    UnreleasedPartitions   its epoch is the target's, and some of its      Stable: all are released
                           partitions are held by others yet               UnrevokedPartitions: another target

The rules of a step are in `reconciliation.py`; a member that has taken too long for one is removed (`clock.py`).
"""

from collections.abc import Mapping
from typing import Final

from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.storage.tablets.modern_group_rows import MemberState

MEMBER_TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.STABLE: frozenset(MemberState),
    MemberState.UNREVOKED_PARTITIONS: frozenset(MemberState),
    MemberState.UNRELEASED_PARTITIONS: frozenset(MemberState),
}


def group_state(members: int, epoch: int, assignment_epoch: int, *, is_reconciled: bool) -> GroupState:
    """Return the state of a group; `is_reconciled`: every member has reached the target."""
    if not members:
        return GroupState.EMPTY
    if epoch > assignment_epoch:
        return GroupState.ASSIGNING
    return GroupState.STABLE if is_reconciled else GroupState.RECONCILING
