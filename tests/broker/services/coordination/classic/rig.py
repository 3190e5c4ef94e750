"""A group with a clock that is a number: requests in, answers collected, stores performed or kept back."""

from dataclasses import replace
from typing import Any

from pqbroker.broker.services.coordination.classic import heartbeats, joining, leaving, syncing
from pqbroker.broker.services.coordination.classic.clock import wake
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.memory import GroupMemory
from pqbroker.broker.services.coordination.classic.messages import (
    GroupLimits,
    Join,
    Joined,
    Leaver,
    Send,
    Store,
    Sync,
    Synced,
)
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberProtocol

SESSION_MS = 10_000
REBALANCE_MS = 60_000
LIMITS = GroupLimits(
    session_timeout_min_ms=6_000,
    session_timeout_max_ms=1_800_000,
    initial_rebalance_delay_ms=3_000,
    members_max=100,
)
RANGE = (MemberProtocol("range", b"range-bytes"),)


class Rig:
    """Tickets are numbers, in the order of the requests."""

    def __init__(
        self, limits: GroupLimits = LIMITS, *, stores_at_once: bool = True, memory_bytes_max: int = 64 << 20
    ) -> None:
        self.memory = GroupMemory(memory_bytes_max)
        self.group = Group("g", replace(limits, memory=self.memory))
        self.now_ms = 1_000
        self.answers: dict[int, Joined | Synced] = {}
        self.images: list[GroupImage] = []
        self.is_image_behind = False
        """Whether the group is empty and the store refused to take that."""
        self.kept_back: list[Store] = []
        self.tickets = 0
        self.stores_at_once = stores_at_once

    def join(self, member_id: str = "", *, instance: str | None = None, **options: Any) -> int:
        """A Join as version 9 sends it; `new` names who has no id yet."""
        ticket = self._ticket()
        fields: dict[str, Any] = {
            "protocol_type": "consumer", "protocols": RANGE, "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS, "new_member_id": options.pop("new", f"member-{ticket}"),
        }  # fmt: skip
        joining.join(self.group, Join(member_id, instance, **(fields | options)), ticket, self.now_ms)
        self.perform()
        return ticket

    def enter(self, name: str, **options: Any) -> int:
        """Join as versions before 4 do, without knowing an id first."""
        return self.join(new=name, requires_known_id=False, **options)

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, *, generation: int | None = None,
        instance: str | None = None, **names: str | None,
    ) -> int:  # fmt: skip
        ticket = self._ticket()
        generation = self.group.generation if generation is None else generation
        request = Sync(member_id, instance, generation, assignments=assignments, **names)
        syncing.sync(self.group, request, ticket, self.now_ms)
        self.perform()
        return ticket

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        try:
            heartbeats.heartbeat(self.group, member_id, instance, generation, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def commit(self, member_id: str = "", *, generation: int = -1, instance: str | None = None) -> ErrorCode:
        try:
            heartbeats.check_commit(self.group, member_id, instance, generation, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, *leavers: Leaver | str) -> list[ErrorCode]:
        asked = [leaver if isinstance(leaver, Leaver) else Leaver(leaver, None) for leaver in leavers]
        results = leaving.leave(self.group, asked, self.now_ms)
        self.perform()
        return results

    def advance(self, by_ms: int) -> None:
        """Let time pass, waking the group whenever it wants to be."""
        end_ms = self.now_ms + by_ms
        while (wake_at_ms := self.group.wake_at_ms) is not None and wake_at_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_at_ms)
            wake(self.group, self.now_ms)
            self.perform()
        self.now_ms = end_ms

    def form(self, *names: str, **options: Any) -> None:
        """A stable group of these, the first of them leading; each is assigned its own name."""
        for name in names:
            self.enter(name, **options)
        self.end_rebalance()
        self.assign()

    def end_rebalance(self) -> None:
        """Let as much time pass as it takes until all know the next generation."""
        while self.group.state is GroupState.PREPARING_REBALANCE:
            assert self.group.wake_at_ms is not None
            self.advance(self.group.wake_at_ms - self.now_ms)

    def assign(self) -> None:
        """Every member syncs; each is assigned its own id."""
        assert self.group.leader is not None
        self.sync_all({member_id: member_id.encode() for member_id in self.group.members})

    def sync_all(self, assignments: dict[str, bytes]) -> None:
        for member in list(self.group.members.values()):
            is_leader = member.member_id == self.group.leader
            self.sync(member.member_id, assignments if is_leader else None, instance=member.instance_id)

    def joined(self, ticket: int) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined)
        return answer

    def synced(self, ticket: int) -> Synced:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced)
        return answer

    def finish_stores(self, failure: ErrorCode | None = None) -> None:
        """Say what became of the stores that were kept back."""
        stores, self.kept_back = self.kept_back, []
        for store in stores:
            self._finish(store, failure)

    def perform(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, Send):
                assert effect.ticket not in self.answers, "answered twice"
                self.answers[effect.ticket] = effect.answer
            elif self.stores_at_once:
                self._finish(effect, None)
            else:
                self.kept_back.append(effect)

    def _finish(self, store: Store, failure: ErrorCode | None) -> None:
        if failure is None:
            self.images.append(store.image)
            self.is_image_behind = False
        elif store.receipt is None:
            self.is_image_behind = True
        if store.receipt is not None:
            syncing.stored(self.group, store.receipt, failure, self.now_ms)
            self.perform()

    def _ticket(self) -> int:
        self.tickets += 1
        return self.tickets
