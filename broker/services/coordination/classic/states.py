"""The states of a classic group (clients 4.30 to 4.34), and what a group may become from each.

    state                what holds                                     leaves to
    Empty                no members; offsets may remain                 PreparingRebalance: a member joins
                                                                        Dead: deleted, or never had a member
    PreparingRebalance   members are asked to join again                CompletingRebalance: all joined, or time is over
                                                                        Empty: nobody is left
    CompletingRebalance  all know the new generation; its leader        Stable: the assignment is stored
                         works out the assignment                       PreparingRebalance: a change, or time is over
    Stable               all have their assignment                      PreparingRebalance: a change
    Dead                 forgotten by its coordinator                   -
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """Kafka's names of the states of groups, of every protocol, as tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    ASSIGNING = "Assigning"
    """Only of groups of KIP-848, whose states are in `modern/states.py`, as the next."""
    RECONCILING = "Reconciling"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}
