"""A group of KIP-848: its members, who holds which partition, and what of it is not stored yet.

What happens to it, and when, stands in the files beside: heartbeats, leaving, targets, clock.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pqbroker.broker.services.coordination.assigning.assignor import Assignment
from pqbroker.broker.services.coordination.classic import memory
from pqbroker.broker.services.coordination.classic.messages import GroupLimits
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.classic.usage import Usage
from pqbroker.broker.services.coordination.modern.member import ModernMember, assigned_bytes, topics_bytes
from pqbroker.broker.services.coordination.modern.reconciliation import is_reconciled
from pqbroker.broker.services.coordination.modern.states import MEMBER_TRANSITIONS, group_state
from pqbroker.broker.services.coordination.modern.work import TargetWork
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import (
    CurrentAssignment,
    ModernGroupImage,
    PartitionEpochs,
    ResolvedExpression,
    Subscription,
)

FIRST_EPOCH: Final = 1
"""Epoch of a group before its first member: 0 is what a member joins with."""


@dataclass(slots=True)
class Unstored:
    """Changes of a group that are not on their way to the store yet."""

    is_group_changed: bool = False
    members: set[str] = field(default_factory=set)
    """Members whose subscription has changed."""
    assignments: set[str] = field(default_factory=set)
    """Members whose assignment or target has changed."""
    gone: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.is_group_changed or bool(self.members or self.assignments or self.gone)

    def add(self, others: "Unstored") -> None:
        """Take over changes that the store has refused; what has changed since then counts."""
        self.is_group_changed |= others.is_group_changed
        self.members |= others.members
        self.assignments |= others.assignments
        self.gone |= others.gone


class ReadTopics(NamedTuple):
    """Topics that a member reads, as they were in a version of the node's topics."""

    version: int
    names: frozenset[str]
    topic_ids: frozenset[bytes]


class ModernGroup:
    """Changed by the functions of heartbeats, leaving, targets and clock; what they change is noted in `unstored`.

    The caller takes that after each call, stores it, and gives out answers behind it; it calls `clock.wake` at
    `wake_at_ms`.
    """

    __slots__ = (
        "_state", "assigned_ms", "assignment_epoch", "assignors", "epoch", "expression_bytes", "expression_counts",
        "expressions", "expressions_version", "first_deadline_ms", "group_id", "instances", "is_known_empty",
        "is_stored", "last_read", "limits", "members", "owners", "state_since_ms", "topic_counts", "topics_hash",
        "topics_version", "unstored", "usage", "work",
    )  # fmt: skip

    def __init__(self, group_id: str, limits: GroupLimits, payer: str = "") -> None:
        """`payer`: the address that its bytes count for."""
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_ms = 0
        """Time of the target, in milliseconds since 1970; 0: none yet."""
        self.members: dict[str, ModernMember] = {}
        """Members by id, in the order of their first join."""
        self.instances: dict[str, str] = {}
        """Member ids of static members by instance id."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Member ids of those that hold partitions, or have not let go of them, by topic id and partition."""
        self.assignors = Counter[str]()
        """Members that ask for an assignor, by its name."""
        self.topic_counts = Counter[str]()
        """Members that name a topic."""
        self.expression_counts = Counter[str]()
        """Members that subscribe by an expression."""
        self.expressions: dict[str, ResolvedExpression] = {}
        """Topics of regular expressions that members subscribe to."""
        self.expression_bytes = 0
        """Bytes of these topics, as the group counts them."""
        self.expressions_version = -1
        """Version of the node's topics that the expressions were resolved with."""
        self.last_read: ReadTopics | None = None
        self.topics_hash = 0
        self.topics_version = -1
        """Version of the node's topics that the hash is of."""
        self.state_since_ms = 0
        """Time since when it has members, or none, in milliseconds since 1970."""
        self.is_known_empty = True
        """True if the time says since when it has no members."""
        self.is_stored = False
        """True if the store has the group."""
        self.work: TargetWork | None = None
        """A target that is being worked out."""
        self.unstored = Unstored()
        self.first_deadline_ms: int | None = None
        """No deadline is before it."""
        self._state: GroupState | None = None
        self.usage = Usage(limits.memory, payer)
        self.usage.add(memory.group_bytes(group_id))

    @property
    def state(self) -> GroupState:
        """Return the state; it is worked out once after each change."""
        if self._state is None:
            epoch = self.assignment_epoch
            reached = all(is_reconciled(member.current, epoch) for member in self.members.values())
            self._state = group_state(len(self.members), self.epoch, epoch, is_reconciled=reached)
        return self._state

    @property
    def wake_at_ms(self) -> int | None:
        """Time alone changes the group at this time or later; None: never. A look in vain does no harm."""
        return self.first_deadline_ms if self.members else None

    def await_time(self, time_ms: int) -> None:
        """Note a deadline that may be the first."""
        if self.first_deadline_ms is None or time_ms < self.first_deadline_ms:
            self.first_deadline_ms = time_ms

    def known_member(self, member_id: str) -> ModernMember:
        """Return a member. KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def topic_names(self) -> set[str]:
        """Return the names of all topics that members read, whether they exist or not."""
        names = set(self.topic_counts)
        for resolved in self.expressions.values():
            names |= resolved.topics
        return names

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """Return the names of the topics that a member reads; an expression that is not resolved yet has none."""
        resolved = self.expressions.get(subscription.expression) if subscription.expression else None
        if resolved is None:
            return subscription.topics
        return subscription.topics | resolved.topics if subscription.topics else resolved.topics

    def add(self, member: ModernMember) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self._count(member.subscription, 1)
        self._hold(member.member_id, member.current)
        self.usage.count_member(member)
        self._recount_assignment(member)
        self.unstored.gone.discard(member.member_id)
        self.unstored.members.add(member.member_id)
        self.unstored.assignments.add(member.member_id)
        if member.subscription.instance_id is not None:
            self.instances[member.subscription.instance_id] = member.member_id
        self._state = None

    def remove(self, member_id: str) -> ModernMember:
        """Forget a member; what it held is free."""
        member = self.members.pop(member_id)
        self._count(member.subscription, -1)
        self._let_go(member_id, member.current)
        self.usage.forget_member(member)
        self.usage.add(-member.assignment_bytes)
        self.unstored.members.discard(member_id)
        self.unstored.assignments.discard(member_id)
        self.unstored.gone.add(member_id)
        self._release_instance(member_id, member.subscription.instance_id)
        self._forget_unread_expressions()
        self._state = None
        return member

    def resubscribe(self, member: ModernMember, subscription: Subscription) -> None:
        """Set what a member says of itself from now on."""
        before = member.subscription
        self._count(before, -1)
        self._count(subscription, 1)
        member.subscription = subscription
        if before.instance_id != subscription.instance_id:
            self._release_instance(member.member_id, before.instance_id)
            if subscription.instance_id is not None:
                self.instances[subscription.instance_id] = member.member_id
        self.unstored.members.add(member.member_id)
        self.usage.count_member(member)
        self._forget_unread_expressions()

    def set_expressions(self, resolved: dict[str, ResolvedExpression]) -> None:
        """Set the topics of all expressions."""
        size = sum(topics_bytes(each.topics) for each in resolved.values())
        self.usage.add(size - self.expression_bytes)
        self.expressions, self.expression_bytes = resolved, size

    def place(self, member: ModernMember, current: CurrentAssignment) -> None:
        """Set how far a member has come."""
        before = member.current
        assert current.state in MEMBER_TRANSITIONS[before.state], f"{before.state} to {current.state}"
        self._let_go(member.member_id, before)
        self._hold(member.member_id, current)
        member.current = current
        self.note_assignment(member)

    def aim(self, member: ModernMember, target: Assignment) -> None:
        """Set what a member is to have."""
        if member.target != target:
            member.target = target
            self.note_assignment(member)

    def note_assignment(self, member: ModernMember) -> None:
        """Note that what a member has, or is to have, is to be stored."""
        self.unstored.assignments.add(member.member_id)
        self._recount_assignment(member)
        self._state = None

    def raise_epoch(self, topics_hash: int) -> None:
        """Begin the next epoch: a target has to be worked out for it."""
        self.epoch += 1
        self.topics_hash = topics_hash
        self.note_group()

    def note_group(self) -> None:
        """Note that the group's own row is to be stored."""
        self.unstored.is_group_changed = True
        self._state = None

    def is_held_by_another(self, member_id: str, topic_id: bytes, index: int) -> bool:
        """Return True if another member holds a partition, or has not let go of it."""
        holders = self.owners.get(topic_id)
        return holders is not None and holders.get(index, member_id) != member_id

    def take_unstored(self) -> Unstored:
        """Return what is to be stored, once."""
        taken, self.unstored = self.unstored, Unstored()
        return taken

    def image(self) -> ModernGroupImage:
        return ModernGroupImage(
            self.group_id, self.epoch, self.assignment_epoch, self.assigned_ms, self.topics_hash, self.state_since_ms,
            dict(self.expressions),
        )  # fmt: skip

    def _release_instance(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]

    def _count(self, subscription: Subscription, by: int) -> None:
        if subscription.assignor is not None:
            _add(self.assignors, subscription.assignor, by)
        if subscription.expression:
            _add(self.expression_counts, subscription.expression, by)
        for topic in subscription.topics:
            _add(self.topic_counts, topic, by)

    def _hold(self, member_id: str, current: CurrentAssignment) -> None:
        for partitions in (current.assigned, current.revoking):
            for topic_id, epochs in partitions.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def _let_go(self, member_id: str, current: CurrentAssignment) -> None:
        for partitions in (current.assigned, current.revoking):
            self._free(member_id, partitions)

    def _free(self, member_id: str, partitions: PartitionEpochs) -> None:
        for topic_id, epochs in partitions.items():
            holders = self.owners.get(topic_id, {})
            for index in epochs:
                if holders.get(index) == member_id:
                    del holders[index]
            if not holders:
                self.owners.pop(topic_id, None)

    def _forget_unread_expressions(self) -> None:
        read = {text: found for text, found in self.expressions.items() if text in self.expression_counts}
        if len(read) < len(self.expressions):
            self.set_expressions(read)
            self.note_group()

    def _recount_assignment(self, member: ModernMember) -> None:
        size = assigned_bytes(member.current, member.target)
        self.usage.add(size - member.assignment_bytes)
        member.assignment_bytes = size


def _add(counts: Counter[str], name: str, by: int) -> None:
    counts[name] += by
    if not counts[name]:
        del counts[name]
