"""Any order of joins, syncs, leaves, deaths and failing stores: what must hold in every group at every moment.

Clients here are honest and may die at any time: they ask, wait for the answer, and do what it says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pqbroker.broker.groups.messages import Joined, Leaver, MemberProtocol, Synced
from pqbroker.broker.groups.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from tests.broker.groups.rig import LIMITS, REBALANCE_MS, SESSION_MS, Rig

PARTITIONS = 7
PROTOCOLS = (MemberProtocol("range", b"r"), MemberProtocol("sticky", b"s"))
INSTANCES = ("i", "j")


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
    leads: tuple[str, ...] = ()
    """Members to assign to, as the leader."""
    owns: bytes | None = None
    is_fenced: bool = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(replace(LIMITS, members_max=4), stores_at_once=False)
        self.clients: list[Client] = []
        self.names = 0
        self.generation = 0
        self.owners: dict[int, dict[int, str]] = {}
        """Partitions given out in each generation, and to whom."""
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

    @rule(by_ms=st.sampled_from((0, 3_000)), ends_stores=st.booleans())
    def everybody_goes_on(self, by_ms: int, *, ends_stores: bool) -> None:
        """Each does what is next for it, so that rebalances get somewhere."""
        for client in [one for one in self.clients if one.ticket is None and not one.is_fenced]:
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
        shares: dict[str, list[int]] = {member_id: [] for member_id in client.leads}
        for partition in range(PARTITIONS if shares else 0):
            shares[client.leads[partition % len(shares)]].append(partition)
        self.wait(client, self.rig.tickets + 1, "sync")
        self.rig.sync(
            client.member_id, {name: bytes(share) for name, share in shares.items()}, generation=client.generation,
            instance=client.instance,
        )  # fmt: skip
        self.read_answers()

    @rule(data=st.data(), how=st.sampled_from(("heartbeat", "commit")))
    def live(self, data: st.DataObject, how: str) -> None:
        client = self.pick(data, lambda one: one.generation >= 0)
        if client is not None:
            self.send_live(client, how)

    def send_live(self, client: Client, how: str) -> ErrorCode:
        act: Any = getattr(self.rig, how)
        error: ErrorCode = act(client.member_id, generation=client.generation, instance=client.instance)
        is_current = client.generation == self.rig.group.generation
        if error is ErrorCode.NONE and how == "commit":
            assert is_current
        self.obey(client, error)
        return error

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data, lambda one: bool(one.member_id) and one.instance is None)
        if client is None:
            return
        self.rig.leave(client.member_id)
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
                client.leads = tuple(member.member_id for member in answer.members)
                assert answer.member_id in client.leads
            else:
                assert not answer.members or answer.skips_assignment

    def read_synced(self, client: Client, answer: Synced) -> None:
        client.must_sync = False
        if answer.error is not ErrorCode.NONE:
            self.obey(client, answer.error)
            return
        client.owns = answer.assignment
        owners = self.owners.setdefault(client.generation, {})
        for partition in answer.assignment:
            place = client.instance or client.member_id
            assert owners.setdefault(partition, place) == place, "two owners of a partition in one generation"

    def obey(self, client: Client, error: ErrorCode) -> None:
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
            assert group.protocol in {offered.name for offered in PROTOCOLS}
        assert group.unsynced <= group.members.keys()
        assert set(group.instances.values()) == {
            name for name, member in group.members.items() if member.instance_id is not None
        }
        assert len(group.members) <= group.limits.members_max + len(INSTANCES)

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
        """Everybody stops: the group gets empty, and everything was answered."""
        self.rig.finish_stores()
        self.rig.stores_at_once = True
        for _ in range(20):
            self.rig.advance(REBALANCE_MS)
        assert not self.rig.group.members
        assert self.asked == self.rig.answers.keys()
        assert self.rig.group.wake_at_ms is None


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestGroups = Groups.TestCase
