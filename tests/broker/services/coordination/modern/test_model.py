"""Any order of heartbeats, leaves, deaths, lost answers, restarts and topics that come and go: what must hold in every
group at every moment.

Clients here are honest and may be slow: they let partitions go some time after they were asked to, and then say so.
Targets are any targets, so that no assignor's care hides a mistake. In the end all who are left share out everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assignment,
    MemberSubscription,
    TopicPartitions,
)
from pqbroker.broker.services.coordination.classic.memory import group_bytes
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.modern.membership import begin_session
from pqbroker.broker.services.coordination.modern.messages import HeartbeatAnswer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC
from tests.broker.services.coordination.modern.rig import (
    REBALANCE_MS,
    SESSION_MS,
    Chosen,
    Rig,
    images,
    partitions,
    topic_id,
)
from tests.support.depth import examples

NAMES = ("t", "u", "v")
INSTANCES = ("i", "j")
CLIENTS_MAX = 5
SETTLED_ROUNDS_MAX = 40
REFUSALS = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}  # fmt: skip
"""Codes that an honest client may get."""
Pair = tuple[bytes, int]


@dataclass(eq=False)
class Client:
    """One process: what it knows, and what it reads."""

    member_id: str
    instance: str | None
    topics: frozenset[str]
    epoch: int = 0
    owned: set[Pair] = field(default_factory=set)
    """Partitions that it reads."""
    assigned: set[Pair] = field(default_factory=set)
    """Partitions that it was told to read; those that it owns beside them it has yet to let go."""
    says_topics: bool = False
    is_gone: bool = False

    def learn(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self.assigned = partitions(answer.assigned)
            self.owned |= self.assigned

    def let_go(self) -> None:
        self.owned &= self.assigned

    def abandon(self) -> None:
        self.epoch, self.owned, self.assigned = 0, set(), set()

    @property
    def reported(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for known_id, index in self.owned:
            found.setdefault(known_id, []).append(index)
        return found


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shift = 0
        self.rig = Rig(assignor=Chosen(self.any_target, name="uniform", steps=3))
        for name in NAMES[:2]:
            self.rig.topics.put(name, 3)
        self.clients: list[Client] = []
        self.names = 0
        self.epoch = 0

    def any_target(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]
    ) -> dict[str, Assignment]:
        """Share out everything, each time in another way."""
        self.shift += 1
        targets: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in members}
        for known_id, found in topics.items():
            readers = [name for name, member in members.items() if known_id in member.topic_ids]
            for index in range(found.count if readers else 0):
                target = targets[readers[(index * 7 + self.shift) % len(readers)]]
                target[known_id] = (*target.get(known_id, ()), index)
        return dict(targets)

    def beat(self, client: Client, *, is_answer_lost: bool = False) -> None:
        """Send a client's heartbeat; it does as it is told, as Kafka's clients do."""
        is_joining = client.epoch == 0
        says_all = is_joining or client.says_topics
        try:
            answer = self.rig.beat(
                client.member_id, client.epoch, instance_id=client.instance,
                topics=client.topics if says_all else None, owned=client.reported,
                rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            )  # fmt: skip
        except KafkaError as error:
            if error.code not in REFUSALS:
                raise
            client.abandon()
            client.is_gone = error.code is ErrorCode.FENCED_INSTANCE_ID
            return
        if is_answer_lost:
            client.says_topics = True  # it is not sure what the broker knows
            return
        client.says_topics = False
        client.learn(answer)

    def pick(self, data: st.DataObject) -> Client | None:
        living = [client for client in self.clients if not client.is_gone]
        return data.draw(st.sampled_from(living)) if living else None

    @precondition(lambda self: sum(not client.is_gone for client in self.clients) < CLIENTS_MAX)
    @rule(instance=st.sampled_from((None, None, *INSTANCES)), topics=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def start_client(self, instance: str | None, topics: frozenset[str]) -> None:
        self.names += 1
        client = Client(f"m{self.names}", instance, topics)
        self.clients.append(client)
        self.beat(client)

    @rule(data=st.data(), is_answer_lost=st.booleans())
    def send_heartbeat(self, data: st.DataObject, is_answer_lost: bool) -> None:
        client = self.pick(data)
        if client is not None:
            self.beat(client, is_answer_lost=is_answer_lost)

    @rule(data=st.data())
    def let_partitions_go(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None:
            client.let_go()

    @rule(data=st.data(), topics=st.frozensets(st.sampled_from(NAMES)))
    def subscribe_to_others(self, data: st.DataObject, topics: frozenset[str]) -> None:
        client = self.pick(data)
        if client is not None:
            client.topics, client.says_topics = topics, True

    @rule(data=st.data(), comes_back=st.booleans())
    def stop_client(self, data: st.DataObject, comes_back: bool) -> None:
        """A client leaves, a static one perhaps for a while only; or it dies."""
        client = self.pick(data)
        if client is None:
            return
        client.is_gone = True
        client.owned.clear()
        if client.epoch:
            epoch = LEFT_STATIC if comes_back and client.instance is not None else -1
            code = self.rig.refusal(client.member_id, epoch, instance_id=client.instance)
            assert code in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}

    @rule(data=st.data())
    def kill_client(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None:
            client.is_gone = True
            client.owned.clear()

    @rule(by_ms=st.sampled_from((100, SESSION_MS // 2, SESSION_MS, REBALANCE_MS)))
    def let_time_pass(self, by_ms: int) -> None:
        self.rig.advance(by_ms)
        self.note_the_removed()

    def note_the_removed(self) -> None:
        """A client that was removed reads on until it hears of it; others may have its partitions by then."""
        for client in self.clients:
            if client.member_id not in self.rig.group.members:
                client.owned.clear()

    @rule(name=st.sampled_from(NAMES))
    def create_or_delete_topic(self, name: str) -> None:
        topics = self.rig.topics
        if name in topics.known:
            topics.remove(name)
        else:
            self.names += 1
            topics.put(name, 2, topic_id(f"{name} {self.names}"))

    @rule(name=st.sampled_from(NAMES))
    def grow_topic(self, name: str) -> None:
        if name in self.rig.topics.known:
            known_id, count = self.rig.topics.known[name]
            self.rig.topics.put(name, min(count + 1, 5), known_id)

    @precondition(lambda self: self.rig.rows)
    @rule()
    def restart(self) -> None:
        group = self.rig.loaded()
        assert images(group) == self.rig.images()
        assert group.state is self.rig.group.state
        self.rig.group = group
        for member in group.members.values():
            begin_session(group, member, self.rig.around())

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[Pair, str] = {}
        for client in self.clients:
            for pair in client.owned:
                assert pair not in owners, f"{client.member_id} and {owners[pair]} own {pair}"
                owners[pair] = client.member_id

    @invariant()
    def what_the_group_knows_agrees(self) -> None:
        group = self.rig.group
        held: dict[Pair, str] = {}
        for member in group.members.values():
            for pair in partitions(member.current.assigned) | partitions(member.current.revoking):
                assert held.setdefault(pair, member.member_id) == member.member_id
            assert member.current.epoch <= group.assignment_epoch
        assert held == {(known, at): name for known, of in group.owners.items() for at, name in of.items()}
        assert self.epoch <= group.epoch
        assert group.assignment_epoch <= group.epoch
        self.epoch = group.epoch
        size = sum(member.counted_bytes + member.assignment_bytes for member in group.members.values())
        assert group.usage.taken == size + group_bytes(group.group_id)
        assert not group.unstored

    def teardown(self) -> None:
        for client in self.clients:
            if client.is_gone and client.member_id in self.rig.group.members:
                self.rig.advance(SESSION_MS + REBALANCE_MS)
        self.note_the_removed()
        for _ in range(SETTLED_ROUNDS_MAX):
            # A static member whose first answer was lost has to wait for the end of its own session.
            self.rig.advance(SESSION_MS // 5)
            self.note_the_removed()
            for client in self.clients:
                if not client.is_gone:
                    client.let_go()
                    self.beat(client)
            self.no_partition_has_two_owners()
        members = [client for client in self.clients if client.member_id in self.rig.group.members]
        if members:
            assert self.rig.group.state is GroupState.STABLE
        read = {topic for client in members for topic in client.topics}
        wanted = {
            (known_id, index)
            for name, (known_id, count) in self.rig.topics.known.items()
            for index in range(count)
            if name in read
        }
        assert {pair for client in members for pair in client.owned} == wanted


Groups.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestGroups = Groups.TestCase
