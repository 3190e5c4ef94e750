"""A group of KIP-848 with a clock that is a number, topics that are a dict, and rows that are kept as if stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from pqbroker.broker.services.coordination.assigning.assignor import (
    Assigning,
    Assignment,
    Assignor,
    MemberSubscription,
    TopicPartitions,
)
from pqbroker.broker.services.coordination.assigning.uniform import UniformAssignor
from pqbroker.broker.services.coordination.classic.memory import GroupMemory
from pqbroker.broker.services.coordination.classic.messages import GroupLimits
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.modern import heartbeats, leaving
from pqbroker.broker.services.coordination.modern.clock import overdue
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.loading import loaded_groups
from pqbroker.broker.services.coordination.modern.messages import (
    Around,
    HeartbeatAnswer,
    KnownTopic,
    MemberHeartbeat,
)
from pqbroker.broker.services.coordination.modern_changes import put_changes
from pqbroker.conf.group_times import GroupTimes
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC, MODERN_ROWS
from pqbroker.storage.tablets.row_sets import RowChanges, RowSet, apply
from pqbroker.storage.tablets.value_encoding import decode, encode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
TIMES = GroupTimes(SESSION_MS, 1_000, 0)
LIMITS = GroupLimits(
    session_timeout_min_ms=6_000, session_timeout_max_ms=1_800_000, initial_rebalance_delay_ms=0, members_max=100,
    modern_members_max=100,
)  # fmt: skip


def topic_id(name: str) -> bytes:
    """Return the id of the first topic of a name."""
    return blake2b(name.encode(), digest_size=16).digest()


@dataclass
class Topics:
    """Topics by name: id and count of partitions."""

    version: int = 0
    known: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def put(self, name: str, count: int, known_id: bytes | None = None) -> None:
        self.known[name] = (known_id or topic_id(name), count)
        self.version += 1

    def remove(self, name: str) -> None:
        del self.known[name]
        self.version += 1

    def find(self, name: str) -> KnownTopic | None:
        found = self.known.get(name)
        return None if found is None else KnownTopic(found[0], TopicPartitions(found[1]))

    def name_of(self, wanted: bytes) -> str | None:
        return next((name for name, (known_id, _) in self.known.items() if known_id == wanted), None)


@dataclass(frozen=True)
class Chosen:
    """An assignor that does what a test says, step by step."""

    choose: Callable[[Mapping[str, MemberSubscription], Mapping[bytes, TopicPartitions]], dict[str, Assignment]]
    name: str = "chosen"
    steps: int = 1

    def assign(self, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]) -> Assigning:
        for _ in range(self.steps):
            yield
        return self.choose(members, topics)


class Rig:
    """Requests go in, answers or error codes come out; every change is put into rows, as a store would."""

    def __init__(
        self, limits: GroupLimits = LIMITS, *, assignor: Assignor | None = None, times: GroupTimes = TIMES,
        slice_steps: int = 1_000,
    ) -> None:  # fmt: skip
        """`slice_steps`: steps of a target that a request takes at most."""
        self.limits = replace(limits, memory=GroupMemory(64 << 20))
        self.topics = Topics()
        self.assignors = {"uniform": assignor or UniformAssignor()}
        self.times = times
        self.now_ms = 1_000
        self.slice_steps = slice_steps
        self.rows: dict[str, RowSet] = {}
        self.names = 0
        self.group = ModernGroup("g", self.limits)

    def state(self) -> GroupState:
        return self.group.state

    def around(self) -> Around:
        steps = iter(range(self.slice_steps))
        return Around(
            self.now_ms, 1_000_000 + self.now_ms, self.times, self.topics, self.assignors,
            lambda: next(steps, None) is None,
        )  # fmt: skip

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """Send a heartbeat. KafkaError."""
        request = MemberHeartbeat(member_id, epoch, client_id="c", client_host="h", **fields)
        try:
            if epoch in (-1, LEFT_STATIC):
                answer, removed = leaving.leave(self.group, request)
                if removed:
                    leaving.remove(self.group, removed, self.topics)
                return answer
            return heartbeats.heartbeat(self.group, request, self.around())
        finally:
            self.store()

    def refusal(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        """Return the code with which a heartbeat is refused; nothing may change then."""
        before = self.images()
        try:
            self.beat(member_id, epoch, **fields)
        except KafkaError as error:
            assert self.images() == before
            return error.code
        return ErrorCode.NONE

    def join(self, member_id: str = "", *topics: str, **fields: Any) -> HeartbeatAnswer:
        """Join with a full request."""
        self.names += not member_id
        return self.beat(
            member_id or f"m{self.names}", 0, topics=frozenset(topics or ("t",)), rebalance_timeout_ms=REBALANCE_MS,
            owned={}, **fields,
        )  # fmt: skip

    def advance(self, by_ms: int) -> None:
        """Let time pass, waking the group whenever it wants to be."""
        end_ms = self.now_ms + by_ms
        while (wake_at_ms := self.group.wake_at_ms) is not None and wake_at_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_at_ms)
            late = [each.member_id for each in overdue(self.group, self.now_ms)]
            if late:
                leaving.remove(self.group, late, self.topics)
            self.store()
        self.now_ms = end_ms

    def store(self) -> None:
        """Put what has changed into rows, through their bytes."""
        if not self.group.unstored:
            return
        changes = RowChanges(self.rows)
        put_changes(changes, self.group, self.group.take_unstored())
        self.group.is_stored = True
        operations: Any = decode(encode(changes.operations))
        for operation in operations:
            apply(self.rows, operation, lambda *_: None)

    def loaded(self) -> ModernGroup:
        """Return the group as a start would find it."""
        parts = [rows.read(*key, row) for rows in MODERN_ROWS for key, row in self.rows[rows.row_set]]
        (group,) = loaded_groups(parts, self.limits)
        return group

    def images(self) -> Any:
        """Return all that is known of the group."""
        return images(self.group)


def images(group: ModernGroup) -> Any:
    """Return all that is stored of a group."""
    members = {name: (member.subscription, member.current, member.target) for name, member in group.members.items()}
    return group.image(), members, dict(group.instances), group.owners


def partitions(assigned: Mapping[bytes, Any] | None) -> set[tuple[bytes, int]]:
    """Return partitions as pairs."""
    return {(known_id, index) for known_id, indexes in (assigned or {}).items() for index in indexes}
