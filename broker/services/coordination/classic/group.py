"""A classic group: its members and what they agree on. What happens to it, and when, stands in the files beside."""

from collections.abc import Mapping

from pqbroker.broker.services.coordination.classic import memory
from pqbroker.broker.services.coordination.classic.member import Member
from pqbroker.broker.services.coordination.classic.messages import (
    Effect,
    GroupLimits,
    Joined,
    JoinedMember,
    Receipt,
    Send,
    Store,
    Synced,
    Ticket,
)
from pqbroker.broker.services.coordination.classic.offered_protocols import Offers
from pqbroker.broker.services.coordination.classic.states import TRANSITIONS, GroupState
from pqbroker.broker.services.coordination.classic.usage import Usage
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberProtocol


class Group:
    """Changed by the functions of joining, syncing, leaving, heartbeats and clock; what they want done is in effects.

    The caller takes the effects after every call and performs them in order, and calls `clock.wake` at `wake_at_ms`.
    """

    __slots__ = (
        "delay_left_ms", "effects", "first_deadline_ms", "generation", "group_id", "has_new_member", "instances",
        "is_initial", "join_deadline_ms", "joined_count", "leader", "limits", "members", "offers", "pending",
        "protocol", "protocol_type", "state", "sync_deadline_ms", "unsynced", "usage",
    )  # fmt: skip

    def __init__(self, group_id: str, limits: GroupLimits, payer: str = "") -> None:
        """`payer`: the address that its bytes count for."""
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        """Members by id, in the order of their first join."""
        self.instances: dict[str, str] = {}
        """Member ids of static members by instance id."""
        self.pending: dict[str, int] = {}
        """Ids given out with MEMBER_ID_REQUIRED, each with the time until which it may join."""
        self.unsynced: set[str] = set()
        """Members that have the generation and have not asked for their assignment yet."""
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.is_initial = False
        """An empty group's first rebalance: it waits for its time even if all have joined."""
        self.has_new_member = False
        self.delay_left_ms = 0
        """Milliseconds by which the first rebalance may still be delayed."""
        self.effects: list[Effect] = []
        self.first_deadline_ms: int | None = None
        """No deadline is before it. `clock.wake` looks for the next one among all members when it is reached."""
        self.joined_count = 0
        """Members that wait in a Join."""
        self.offers = Offers()
        self.usage = Usage(limits.memory, payer)
        self.usage.add(memory.group_bytes(group_id))

    @classmethod
    def load(cls, image: GroupImage, limits: GroupLimits, now_ms: int) -> "Group":
        """Return a group as it was stored; every session begins again."""
        payer = memory.payer_of(image.members[0].client_host) if image.members else ""
        group = cls(image.group_id, limits, payer)
        group.generation, group.leader = image.generation, image.leader
        group.protocol_type, group.protocol = image.protocol_type, image.protocol
        for stored in image.members:
            member = Member.stored(stored)
            group.members[member.member_id] = member
            if member.instance_id is not None:
                group.instances[member.instance_id] = member.member_id
            group.offers.add(member.protocols)
            group.renew(member, now_ms)
            group.usage.count_member(member)
        group.usage.count_assignments({member.member_id: member.assignment for member in group.members.values()})
        if group.members:
            group.state = GroupState.STABLE
        return group

    def take_effects(self) -> list[Effect]:
        """Return the effects to be carried out, once, in order."""
        effects, self.effects = self.effects, []
        return effects

    def change(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state

    @property
    def wake_at_ms(self) -> int | None:
        """Time alone changes the group at this time or later; None: never. A look in vain does no harm."""
        is_timed = self.members or self.pending or self.join_deadline_ms is not None
        return self.first_deadline_ms if is_timed else None

    def await_time(self, time_ms: int) -> None:
        """A deadline that may be the first."""
        if self.first_deadline_ms is None or time_ms < self.first_deadline_ms:
            self.first_deadline_ms = time_ms

    def renew(self, member: Member, now_ms: int) -> None:
        """Extend a member's session, after a request or an answer."""
        member.renew(now_ms)
        self.await_time(member.deadline_ms)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and self.joined_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def known_member(self, member_id: str, instance_id: str | None) -> Member:
        """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member has taken over the instance."""
        if instance_id is not None:  # the empty text is an instance too, as in Kafka
            holder = self.instances.get(instance_id)
            if holder is not None and holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id} is now member {holder}")
            member_id = holder or ""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no such member: join again")
        return member

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """Return True if a client that offers these can be a member beside the present ones."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        is_shared, count = self.offers.is_shared, len(self.members)
        return protocol_type == self.protocol_type and any(is_shared(offered.name, count) for offered in protocols)

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        self.forget_pending(member.member_id)
        self.members[member.member_id] = member
        self.offers.add(member.protocols)
        self.usage.count_member(member)
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Forget a member; what it waits for is answered, so that its client, if it runs, joins again."""
        member = self.members.pop(member_id)
        self.offers.take_back(member.protocols)
        self.usage.forget_member(member)
        self.answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        self.note_synced(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def offer(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        """Set what a member offers from now on."""
        self.offers.take_back(member.protocols)
        member.protocols = protocols
        self.offers.add(protocols)
        self.usage.count_member(member)

    def wait_to_join(self, member: Member, ticket: Ticket) -> None:
        self.joined_count += member.join_ticket is None
        member.join_ticket = ticket

    def expect(self, member_id: str, until_ms: int) -> None:
        """Note an id that is given out, and until when it may join."""
        self.pending[member_id] = until_ms
        self.await_time(until_ms)
        self.usage.add(memory.pending_bytes(member_id))

    def forget_pending(self, member_id: str) -> bool:
        """Forget an id that was given out. Return True if it was given out and had not joined."""
        if self.pending.pop(member_id, None) is None:
            return False
        self.usage.add(-memory.pending_bytes(member_id))
        return True

    def note_synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline_ms = None

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take one that has; False when nobody has."""
        leader = self.members.get(self.leader or "")
        if leader is None or not leader.has_joined:
            leader = next((member for member in self.members.values() if member.has_joined), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def answer_join(self, member: Member, answer: Joined) -> None:
        """Nothing happens when it does not wait."""
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is not None:
            self.joined_count -= 1
            self.effects.append(Send(ticket, answer))

    def answer_sync(self, member: Member, answer: Synced) -> None:
        """Nothing happens when it does not wait."""
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            self.effects.append(Send(ticket, answer))

    def joined(self, member: Member) -> Joined:
        """Return what a member of the current generation learns; the leader, of all members."""
        is_leader = member.member_id == self.leader
        described: tuple[JoinedMember, ...] = ()
        if is_leader:
            described = tuple(each.described(self.protocol) for each in self.members.values())
        return Joined(
            ErrorCode.NONE, member.member_id, self.generation, self.protocol_type, self.protocol, self.leader or "",
            members=described,
        )  # fmt: skip

    def synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def image(self, assignments: Mapping[str, bytes] | None = None) -> GroupImage:
        """The group as it is, or as it will be with these assignments."""
        members = tuple(
            member.image(member.assignment if assignments is None else assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        return GroupImage(
            self.group_id, self.generation, self.protocol_type, self.protocol, self.leader, members
        )

    def store(self, receipt: Receipt | None = None) -> None:
        self.effects.append(Store(self.image(receipt.assignments if receipt else None), receipt))
