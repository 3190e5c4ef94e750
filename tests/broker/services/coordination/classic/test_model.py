"""Any order of joins, syncs, leaves, deaths and failing stores: what must hold in every group at every moment.

Clients here are honest and may die at any time: they ask, wait for the answer, and do what it says. In the end those
who are left get a group that has all of them, and keep it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pqbroker.broker.services.coordination.classic import memory
from pqbroker.broker.services.coordination.classic.clock import wake
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import Joined, JoinedMember, Leaver, Synced
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.broker.services.coordination.classic.rig import LIMITS, REBALANCE_MS, SESSION_MS, Rig
from tests.support.depth import examples

PARTITIONS = 7
PROTOCOLS = (MemberProtocol("range", b"r"), MemberProtocol("sticky", b"s"))
METADATA = dict(PROTOCOLS)
INSTANCES = ("i", "j")
MEMBERS_MAX = 4
STEP_MS = 3_000
SETTLED_STEPS_MAX = 200
ERRORS = {
    ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.COORDINATOR_NOT_AVAILABLE,
}  # fmt: skip
"""What an honest client may be told."""


@dataclass(eq=False)
class Client:
    """One process: what it knows, and the request it waits for."""

    instance: str | None
    protocols: tuple[MemberProtocol, ...]
    requires_known_id: bool
    member_id: str = ""
    generation: int = -1
    ticket: int | None = None
    waits_for: str = ""
    must_sync: bool = False
    leads: tuple[JoinedMember, ...] = ()
    """Members to assign to, as the leader."""
    owns: bytes | None = None
    is_fenced: bool = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(replace(LIMITS, members_max=MEMBERS_MAX), stores_at_once=False)
        self.clients: list[Client] = []
        self.names = 0
        self.generation = 0
        self.chosen: dict[int, dict[str, bytes]] = {}
        """What each generation's leader assigned, by instance where there is one, else by member id."""
        self.asked: set[int] = set()
        self.abandoned: set[int] = set()

    def pick(self, data: st.DataObject, fits: Callable[[Client], bool]) -> Client | None:
        found = [client for client in self.clients if client.ticket is None and fits(client)]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(
        instance=st.sampled_from((None, None, *INSTANCES)),
        protocols=st.sampled_from((PROTOCOLS, PROTOCOLS[::-1], PROTOCOLS[:1])),
        known=st.booleans(),
    )
    @precondition(lambda self: len(self.clients) < 6)
    def start_client(self, instance: str | None, protocols: tuple[MemberProtocol, ...], known: bool) -> None:
        self.clients.append(Client(instance, protocols, known))

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        client = self.pick(data, lambda one: not one.must_sync and not one.is_fenced)
        if client is not None:
            self.send_join(client)

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        client = self.pick(data, lambda one: one.must_sync)
        if client is not None:
            self.send_sync(client)

    @rule(by_ms=st.sampled_from((0, STEP_MS)), ends_stores=st.booleans())
    def everybody_goes_on(self, by_ms: int, *, ends_stores: bool) -> None:
        """Each does what is next for it, so that rebalances get somewhere."""
        for client in [one for one in self.living() if one.ticket is None]:
            if client.must_sync:
                self.send_sync(client)
            elif client.generation < 0 or self.send_live(client, "heartbeat") is ErrorCode.REBALANCE_IN_PROGRESS:
                self.send_join(client)
        self.rig.advance(by_ms)
        if ends_stores:
            self.rig.finish_stores()
        self.read_answers()

    def send_join(self, client: Client) -> None:
        self.names += 1
        ticket = self.rig.tickets + 1
        self.wait(client, ticket, "join")
        self.rig.join(
            client.member_id, instance=client.instance, protocols=client.protocols, new=f"m{self.names}",
            requires_known_id=client.requires_known_id,
        )  # fmt: skip
        self.read_answers()

    def send_sync(self, client: Client) -> None:
        shares = {
            member: bytes(range(number, PARTITIONS, len(client.leads))) for number, member in enumerate(client.leads)
        }
        if shares:
            assert client.generation not in self.chosen, "two leaders in one generation"
            self.chosen[client.generation] = {
                member.instance_id or member.member_id: share for member, share in shares.items()
            }
        self.wait(client, self.rig.tickets + 1, "sync")
        assignments = {member.member_id: share for member, share in shares.items()}
        self.rig.sync(client.member_id, assignments, generation=client.generation, instance=client.instance)
        self.read_answers()

    @rule(data=st.data(), how=st.sampled_from(("heartbeat", "commit")))
    def live(self, data: st.DataObject, how: str) -> None:
        client = self.pick(data, lambda one: one.generation >= 0)
        if client is not None:
            self.send_live(client, how)

    def send_live(self, client: Client, how: str) -> ErrorCode:
        act: Any = getattr(self.rig, how)
        error: ErrorCode = act(client.member_id, generation=client.generation, instance=client.instance)
        if error is ErrorCode.NONE:
            assert client.generation == self.rig.group.generation
            assert client.member_id in self.rig.group.members
        if how == "heartbeat" or error is not ErrorCode.REBALANCE_IN_PROGRESS:  # a commit between Join and Sync
            self.obey(client, error)
        return error

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data, lambda one: bool(one.member_id) and one.instance is None)
        if client is None:
            return
        self.rig.leave(client.member_id)
        assert client.member_id not in self.rig.group.members
        self.clients.remove(client)
        self.read_answers()

    @rule(instance=st.sampled_from(INSTANCES))
    def remove_static_member(self, instance: str) -> None:
        self.rig.leave(Leaver("", instance))
        self.read_answers()

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def die(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.ticket is not None:
            self.abandoned.add(client.ticket)
        self.clients.remove(client)

    @rule(by_ms=st.sampled_from((1, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS)))
    def time_passes(self, by_ms: int) -> None:
        self.rig.advance(by_ms)
        self.read_answers()

    @rule(failure=st.sampled_from((None, None, None, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    @precondition(lambda self: self.rig.kept_back)
    def stores_end(self, failure: ErrorCode | None) -> None:
        self.rig.finish_stores(failure)
        self.read_answers()

    def wait(self, client: Client, ticket: int, what: str) -> None:
        self.asked.add(ticket)
        client.ticket, client.waits_for = ticket, what

    def read_answers(self) -> None:
        for client in self.clients:
            answer = self.rig.answers.get(client.ticket) if client.ticket is not None else None
            if answer is None:
                continue
            client.ticket = None
            if isinstance(answer, Joined):
                self.read_joined(client, answer)
            else:
                self.read_synced(client, answer)

    def read_joined(self, client: Client, answer: Joined) -> None:
        client.must_sync, client.owns, client.leads = False, None, ()
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error is not ErrorCode.NONE:
            self.obey(client, answer.error)
        else:
            client.member_id, client.generation = answer.member_id, answer.generation
            client.must_sync = True
            if answer.leader == answer.member_id and not answer.skips_assignment:
                client.leads = answer.members
                assert answer.member_id in {member.member_id for member in answer.members}
                assert {member.metadata for member in answer.members} == {METADATA[answer.protocol or ""]}
            else:
                assert not answer.members or answer.skips_assignment

    def read_synced(self, client: Client, answer: Synced) -> None:
        client.must_sync = False
        if answer.error is not ErrorCode.NONE:
            self.obey(client, answer.error)
            return
        client.owns = answer.assignment
        place = client.instance or client.member_id
        assert answer.assignment == self.chosen[client.generation].get(place, b""), "not what the leader chose"

    def obey(self, client: Client, error: ErrorCode) -> None:
        assert error in ERRORS
        if error is ErrorCode.FENCED_INSTANCE_ID:
            client.is_fenced = True
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            client.generation = -1
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        if error:
            client.must_sync = False

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.rig.group.generation >= self.generation
        self.generation = self.rig.group.generation

    @invariant()
    def the_leader_is_a_member(self) -> None:
        group = self.rig.group
        assert (group.leader in group.members) if group.members else group.leader is None

    @invariant()
    def states_and_members_agree(self) -> None:
        group = self.rig.group
        has_members = bool(group.members)
        if group.state is GroupState.EMPTY:
            assert not has_members
        elif group.state is not GroupState.PREPARING_REBALANCE:
            assert has_members
            assert all(group.protocol in dict(member.protocols) for member in group.members.values())
        assert set(group.instances.values()) == {
            name for name, member in group.members.items() if member.instance_id is not None
        }

    @invariant()
    def there_is_room_for_all(self) -> None:
        """While a generation forms, those of the last one who have not joined do not count."""
        group = self.rig.group
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = sum(member.has_joined for member in group.members.values())
            assert joined + len(group.pending) <= group.limits.members_max
        else:
            assert len(group.members) <= group.limits.members_max + len(INSTANCES)

    @invariant()
    def a_rebalance_waits_for_those_it_needs(self) -> None:
        group = self.rig.group
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.is_initial or not group.has_all_joined
        dynamic = {name: member for name, member in group.members.items() if member.instance_id is None}
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert {name for name, member in dynamic.items() if member.sync_ticket is None} <= group.unsynced
        assert group.unsynced <= group.members.keys()
        assert bool(group.unsynced) is (group.sync_deadline_ms is not None)

    @invariant()
    def what_is_counted_is_what_there_is(self) -> None:
        group, rig = self.rig.group, self.rig
        members = list(group.members.values())
        assert group.joined_count == sum(member.has_joined for member in members)
        assert group.usage.metadata_bytes == sum(member.metadata_bytes for member in members)
        assert group.usage.taken == rig.memory.taken == (
            memory.group_bytes("g")
            + group.usage.metadata_bytes
            + group.usage.assignment_bytes
            + sum(map(memory.pending_bytes, group.pending))
        )
        for member in members:
            for offered in member.protocols:
                has_all = all(offered.name in dict(other.protocols) for other in members)
                assert group.supports(group.protocol_type or "", (offered,)) is has_all

    @invariant()
    def nobody_is_looked_at_too_late(self) -> None:
        group = self.rig.group
        deadlines = [member.deadline_ms for member in group.members.values() if member.is_timed]
        deadlines += group.pending.values()
        deadlines += [time for time in (group.join_deadline_ms, group.sync_deadline_ms) if time is not None]
        assert not deadlines or (group.wake_at_ms is not None and group.wake_at_ms <= min(deadlines))

    @invariant()
    def no_answer_is_lost(self) -> None:
        """What has no answer waits at a member, and time or a store will end the wait."""
        group = self.rig.group
        waiting = {member.join_ticket for member in group.members.values()}
        waiting |= {member.sync_ticket for member in group.members.values()}
        assert self.asked - self.rig.answers.keys() == waiting - {None}
        if waiting - {None}:
            assert group.wake_at_ms is not None or self.rig.kept_back

    def teardown(self) -> None:
        self.rig.finish_stores()
        self.rig.stores_at_once = True
        self.read_answers()
        if self.living():
            self.settle()
        self.end()

    def settle(self) -> None:
        """Nothing goes wrong any more: all who are left become members, as many as may, and stay it."""
        steps = 0
        while not self.is_settled():
            if not self.living():
                return  # who was left has learnt that a process that died since had replaced it
            steps += 1
            assert steps <= SETTLED_STEPS_MAX, "the group does not settle"
            self.everybody_goes_on(STEP_MS, ends_stores=True)
        group = self.rig.group
        members = [client for client in self.clients if client.member_id in group.members]
        assert sorted(b"".join(client.owns or b"" for client in members)) == list(range(PARTITIONS))
        image = group.image()
        assert self.rig.images[-1] == image
        loaded = Group.load(image, group.limits, self.rig.now_ms)
        assert (loaded.image(), loaded.instances) == (image, group.instances)
        assert loaded.state is GroupState.STABLE
        assert loaded.wake_at_ms == self.rig.now_ms + SESSION_MS
        for _ in range(3 * SESSION_MS // STEP_MS):
            self.everybody_goes_on(STEP_MS, ends_stores=True)
            assert (group.image(), group.state) == (image, GroupState.STABLE)

    def is_settled(self) -> bool:
        group = self.rig.group
        living = self.living()
        ready = {one.member_id for one in living if one.generation == group.generation and not one.must_sync}
        return (
            group.state is GroupState.STABLE
            and group.members.keys() == ready
            and len(ready) == min(len(living), MEMBERS_MAX)
            and all(client.ticket is None for client in living)
        )

    def living(self) -> list[Client]:
        """Those who have not been replaced by another process of their instance."""
        return [client for client in self.clients if not client.is_fenced]

    def end(self) -> None:
        """Everybody stops: the group gets empty, and everything was answered."""
        for _ in range(20):
            self.rig.advance(REBALANCE_MS)
        assert not self.rig.group.members
        assert not self.rig.group.pending
        assert self.asked == self.rig.answers.keys()
        assert self.rig.group.wake_at_ms is None
        if self.rig.images and self.rig.images[-1].members:
            assert self.rig.is_image_behind
            self.end_those_who_come_back(Group.load(self.rig.images[-1], self.rig.group.limits, self.rig.now_ms))

    def end_those_who_come_back(self, group: Group) -> None:
        """Members of a group whose end could not be stored are there again after a start, for a session."""
        for _ in range(20):
            if group.wake_at_ms is not None:
                wake(group, group.wake_at_ms)
        assert not group.members


Groups.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=60, deadline=None)
TestGroups = Groups.TestCase
