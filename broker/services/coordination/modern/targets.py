"""Targets: which member is to read which partition, worked out by an assignor in slices when the group has moved on.

    no work    heartbeat, the epoch is ahead and the interval is over   at work
    at work    heartbeat: the present target counts                     at work
               ready                                                    no work; the target is of the epoch it began in

A group that moves on while a target is worked out is given that one first, and another after the interval.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assigning,
    Assignor,
    MemberSubscription,
    TopicPartitions,
)
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.messages import Around, KnownTopics
from pqbroker.broker.services.coordination.modern.topics_read import topic_ids
from pqbroker.broker.services.coordination.modern.work import TargetWork

_READ_AT_ONCE: Final = 200
"""Topics that one step looks at."""


def begin_if_due(group: ModernGroup, around: Around) -> None:
    """Begin to work out a target if one is due."""
    if group.work is None and group.epoch > group.assignment_epoch and _is_interval_over(group, around):
        chosen = chosen_assignor(group, around.assignors)
        group.work = TargetWork(group.epoch, _assign(group, around.topics, chosen))


def advance(group: ModernGroup, around: Around) -> None:
    """Continue with the work of the group until this slice is over; a target that is ready is put into force."""
    work = group.work
    while work is not None:
        try:
            is_ready = work.step()
        except BaseException:
            group.work = None
            raise
        if is_ready:
            finish(group, work, around.clock_ms)
            return
        if around.is_slice_over():
            return


def finish(group: ModernGroup, work: TargetWork, clock_ms: int) -> None:
    """Put a target into force that is ready."""
    assert group.work is work
    group.work = None
    for member in group.members.values():
        group.aim(member, work.of(member.member_id))
    group.assignment_epoch, group.assigned_ms = work.epoch, clock_ms
    group.note_group()


def chosen_assignor(group: ModernGroup, assignors: Mapping[str, Assignor]) -> Assignor:
    """Return the assignor that most members ask for; the first of all if none does."""
    votes = [(count, name) for name, count in group.assignors.items() if name in assignors]
    return assignors[max(votes)[1]] if votes else next(iter(assignors.values()))


def _is_interval_over(group: ModernGroup, around: Around) -> bool:
    passed_ms = around.clock_ms - group.assigned_ms
    # A clock that was set back must not keep a group from its target.
    return not group.assigned_ms or passed_ms < 0 or passed_ms >= around.times.assignment_interval_ms


def _assign(group: ModernGroup, topics: KnownTopics, assignor: Assignor) -> Assigning:
    """Read what members want, and share it out."""
    members: dict[str, MemberSubscription] = {}
    known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    # In an order that a restart does not change.
    for member in sorted(group.members.values(), key=attrgetter("member_id")):
        said = member.subscription
        read = (said.topics, said.expression)
        if read not in known:
            known[read] = topic_ids(group, said, topics)
            yield
        members[member.member_id] = MemberSubscription(known[read], member.target, said.instance_id, said.rack_id)
    found: dict[bytes, TopicPartitions] = {}
    for number, name in enumerate(group.topic_names()):
        topic = topics.find(name)
        if topic is not None:
            found[topic.topic_id] = topic.partitions
        if number % _READ_AT_ONCE == 0:
            yield
    return (yield from assignor.assign(members, found))
