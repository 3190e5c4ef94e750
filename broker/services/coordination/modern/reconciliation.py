"""One step of a member towards its target: a partition goes to its new owner only when the old one has let go of it, or
is gone (KIP-848).

    state                  the member reports                 step
    Stable                 -                                  at the target's epoch: nothing, or partitions of topics
                                                              that it no longer reads are revoked; else towards it
    UnrevokedPartitions    it still owns what is revoked      as above
                           it has let go of it                towards the target
    UnreleasedPartitions   -                                  towards the target

Towards the target: partitions that are not in it are revoked, and the epoch stays until the member reports that it has
let them go; then all that nobody else holds is assigned, and the epoch is the target's.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pqbroker.storage.tablets.modern_group_rows import (
    CurrentAssignment,
    MemberState,
    PartitionEpochs,
    TopicIndexes,
)

Owned = Mapping[bytes, Collection[int]] | None
"""Partitions that a member says it owns, by topic id; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Target of a member, and what is known about the way to it."""

    epoch: int
    target: TopicIndexes
    topic_ids: frozenset[bytes]
    """Topics that the member reads now; its target may have others."""
    owned: Owned
    is_held_by_another: Callable[[bytes, int], bool]
    """Return True if another member has a partition, or has not let go of it."""
    has_subscription_changed: bool = False


def is_reconciled(current: CurrentAssignment, epoch: int) -> bool:
    """Return True if a member has reached the target of an epoch."""
    return current.state is MemberState.STABLE and current.epoch == epoch


def reconcile(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    """Return the assignment after one step, or the same object if none is possible."""
    return _STEPS[current.state](current, aim)


def _stay(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    return _without_unread(current, aim) if aim.has_subscription_changed else current


def _step_from_stable(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    return _stay(current, aim) if current.epoch == aim.epoch else _step_on(current, aim)


def _step_from_unrevoked(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    return _stay(current, aim) if _owns_any(aim.owned, current.revoking) else _step_on(current, aim)


def _step_on(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    """Take the step towards the target."""
    kept, surplus = _split(current.assigned, aim)
    if surplus and _owns_any(aim.owned, surplus):
        return _changed(current, MemberState.UNREVOKED_PARTITIONS, current.epoch, kept, surplus)
    added, is_waiting = _additions(kept, aim)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _changed(current, state, aim.epoch, _merged(kept, added), {})


def _split(assigned: PartitionEpochs, aim: Aim) -> tuple[PartitionEpochs, PartitionEpochs]:
    """Return what the member keeps of its partitions, and what it is to let go."""
    kept: dict[bytes, Mapping[int, int]] = {}
    surplus: dict[bytes, Mapping[int, int]] = {}
    for topic_id, epochs in assigned.items():
        wanted = frozenset(aim.target.get(topic_id, ())) if topic_id in aim.topic_ids else frozenset()
        inside = {index: epoch for index, epoch in epochs.items() if index in wanted}
        if len(inside) == len(epochs):
            kept[topic_id] = epochs
            continue
        if inside:
            kept[topic_id] = inside
        surplus[topic_id] = {index: epoch for index, epoch in epochs.items() if index not in wanted}
    return kept, surplus


def _additions(kept: PartitionEpochs, aim: Aim) -> tuple[PartitionEpochs, bool]:
    """Return partitions of the target that are free, and whether others are not yet."""
    added: dict[bytes, Mapping[int, int]] = {}
    is_waiting = False
    for topic_id, indexes in aim.target.items():
        if topic_id not in aim.topic_ids:
            continue
        present = kept.get(topic_id, {})
        missing = [index for index in indexes if index not in present]
        free = {index: aim.epoch for index in missing if not aim.is_held_by_another(topic_id, index)}
        is_waiting = is_waiting or len(free) < len(missing)
        if free:
            added[topic_id] = free
    return added, is_waiting


def _without_unread(current: CurrentAssignment, aim: Aim) -> CurrentAssignment:
    """Take partitions of topics away that the member no longer reads, though its target has not changed yet."""
    unread = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in aim.topic_ids}
    if not unread:
        return current
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in aim.topic_ids}
    revoking = _merged(current.revoking, unread)
    if _owns_any(aim.owned, revoking):
        return _changed(current, MemberState.UNREVOKED_PARTITIONS, current.epoch, kept, revoking)
    return replace(current, previous_epoch=current.epoch, assigned=kept)


def _changed(
    current: CurrentAssignment, state: MemberState, epoch: int, assigned: PartitionEpochs, revoking: PartitionEpochs
) -> CurrentAssignment:
    after = CurrentAssignment(state, epoch, current.epoch, assigned, revoking)
    return current if after == current else after


def _merged(some: PartitionEpochs, more: PartitionEpochs) -> PartitionEpochs:
    if not more:
        return some
    return {**some, **{topic_id: {**some.get(topic_id, {}), **epochs} for topic_id, epochs in more.items()}}


def _owns_any(owned: Owned, partitions: PartitionEpochs) -> bool:
    """Return True if a member owns one of these partitions, or does not say what it owns."""
    if owned is None:
        return True
    return any(
        index in epochs for topic_id, epochs in partitions.items() for index in owned.get(topic_id, ())
    )


_STEPS: Final[Mapping[MemberState, Callable[[CurrentAssignment, Aim], CurrentAssignment]]] = {
    MemberState.STABLE: _step_from_stable,
    MemberState.UNREVOKED_PARTITIONS: _step_from_unrevoked,
    MemberState.UNRELEASED_PARTITIONS: _step_on,
}
