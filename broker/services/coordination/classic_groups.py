"""Groups of the classic protocol as residents of a coordinator: who is in them, what of that is stored, their answers.

The rules are in classic/. A caller that changes a group calls `follow` with it in the same call.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from pqbroker.broker.services.coordination.classic import leaving
from pqbroker.broker.services.coordination.classic.clock import retire_if_unused, wake
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import GroupLimits, Send, Store
from pqbroker.broker.services.coordination.classic.rebalance import rebalance
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.classic.syncing import stored as is_stored
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.pq.serving.store_refusals import GROUPS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.coordinator_rows import GROUP_ROWS, StoredGroup, group_row
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import RowChanges, RowSetError

log = logging.getLogger(__name__)

ANSWERS_A_TURN = 64
"""A group of thousands is answered over several turns of the loop, each of them a few milliseconds."""


@dataclass(slots=True, eq=False)
class Hosted:
    """A group, and since when it is in its state (milliseconds since 1970)."""

    group: Group
    state: GroupState
    state_since_ms: int


class ClassicGroups:
    """The classic groups of one coordinator tablet. `clock`: milliseconds since 1970."""

    def __init__(self, coordinator: Coordinator, limits: GroupLimits, clock: Callable[[], int]) -> None:
        self.coordinator = coordinator
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._hosted: dict[str, Hosted] = {}
        self._deleting: dict[str, Hosted] = {}
        """Groups whose deletion is not durable yet, and whose ids nobody has taken since."""
        self._sends: deque[Send] = deque()
        """Answers to give out."""
        self._is_sending = False
        """True while answers are given out, or will be in the next turn of the loop."""
        coordinator.admit(self)

    @property
    def rows(self) -> ResidentRows:
        return GROUP_ROWS

    def __len__(self) -> int:
        return len(self._hosted)

    @property
    def hosted(self) -> Mapping[str, Hosted]:
        """Return the hosted groups by group id."""
        return MappingProxyType(self._hosted)

    def now_ms(self) -> int:
        """The time that groups go by."""
        return self.coordinator.now_ms()

    def load(self, stored: Sequence[StoredGroup]) -> None:
        """Members have their whole session timeout from now."""
        self._hosted.clear()
        self._deleting.clear()
        for image, since_ms in stored:
            group = Group.load(image, self._limits, self.now_ms())
            hosted = self._hosted[image.group_id] = Hosted(group, group.state, since_ms)
            self._arm(hosted)

    def host(self, group_id: str, payer: str) -> Hosted:
        """The group, made when there is none; then it counts for the address `payer`."""
        found = self._hosted.get(group_id)
        if found is None:
            self._deleting.pop(group_id, None)
            group = Group(group_id, self._limits, payer)
            found = self._hosted[group_id] = Hosted(group, group.state, self._clock())
        return found

    def give_up(self, group_id: str) -> None:
        """Forget a group, if there is one; the group that takes its place deletes its row. Members that wait have to
        join that one."""
        self._deleting.pop(group_id, None)
        hosted = self._hosted.pop(group_id, None)
        if hosted is not None:
            hosted.group.usage.release()
            leaving.end(hosted.group, ErrorCode.REBALANCE_IN_PROGRESS)
            self._sends.extend(effect for effect in hosted.group.take_effects() if isinstance(effect, Send))
            self.coordinator.wake_at(self, hosted, None)
            if not self._is_sending:
                self._send()

    def adopt(
        self, group: Group, plan: Callable[[RowChanges], None], stored: Callable[[BaseException | None], None]
    ) -> None:
        """Host a stable group that was another protocol's, and begin a rebalance. `plan` deletes the rows that it had;
        `stored` is called when that is durable, or why it is not."""
        hosted = self._hosted[group.group_id] = Hosted(group, group.state, self._clock())
        put = partial(_put, StoredGroup(group.image(), hosted.state_since_ms))

        def change(changes: RowChanges) -> None:
            plan(changes)
            put(changes)

        self.coordinator.store(change, stored)
        rebalance(group, self.now_ms())
        self.follow(hosted)

    def follow(self, hosted: Hosted) -> None:
        """Do what the group wants done: send, store, forget, wake it in time."""
        group = hosted.group
        is_retired = retire_if_unused(group)
        if hosted.state is not group.state:
            hosted.state, hosted.state_since_ms = group.state, self._clock()
        if is_retired:
            del self._hosted[group.group_id]
            group.usage.release()
        for effect in group.take_effects():
            if isinstance(effect, Send):
                self._sends.append(effect)
            else:
                self._store(hosted, effect)
        self._arm(hosted)
        if not self._is_sending:
            self._send()

    def delete(self, group_id: str) -> Awaitable[None]:
        """Forget a group without members, in this call; durable when awaited: CommitRefused, ShardLost.

        NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND in this call. A caller that is cancelled does not undo it.
        """
        hosted = self._hosted.get(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        if hosted.group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members: stop them first")
        del self._hosted[group_id]
        hosted.group.usage.release()
        self.coordinator.wake_at(self, hosted, None)
        self._deleting[group_id] = hosted
        # Behind what was stored of the group before: stores are in the order of their calls.
        plan = partial(GROUP_ROWS.delete, resident_id=group_id)
        return self.coordinator.store(plan, partial(self._deleted, hosted))

    async def expire(self, empty_before_ms: int, has_offsets: Callable[[str], bool]) -> None:
        """Forget groups that had their last member before a time, and have no offsets. CommitRefused, ShardLost."""
        for group_id in list(self._hosted):
            hosted = self._hosted.get(group_id)
            if hosted is None or hosted.group.pending or hosted.state is not GroupState.EMPTY:
                continue
            if hosted.state_since_ms <= empty_before_ms and not has_offsets(group_id):
                await self.delete(group_id)

    def wake(self, resident: Hosted) -> None:
        wake(resident.group, self.now_ms())
        self.follow(resident)

    def close(self) -> None:
        """End all groups, and answer every request that waits."""
        for hosted in self._hosted.values():
            hosted.group.usage.release()
            leaving.end(hosted.group, ErrorCode.NOT_COORDINATOR)
            self._sends.extend(effect for effect in hosted.group.take_effects() if isinstance(effect, Send))
        while self._sends:
            send = self._sends.popleft()
            send.ticket(send.answer)

    def _send(self) -> None:
        """Give out answers, in order; those of a large group over several turns of the loop.

        What an answer causes in the same call, such as the next request of its connection, adds to the queue only.
        """
        self._is_sending = True
        try:
            for _ in range(min(len(self._sends), ANSWERS_A_TURN)):
                send = self._sends.popleft()
                send.ticket(send.answer)
        finally:
            self._is_sending = bool(self._sends)
            if self._is_sending:
                self._loop.call_soon(self._send)

    def _arm(self, hosted: Hosted) -> None:
        is_dead = hosted.state is GroupState.DEAD
        self.coordinator.wake_at(self, hosted, None if is_dead else hosted.group.wake_at_ms)

    def _store(self, hosted: Hosted, effect: Store) -> None:
        plan = partial(_put, StoredGroup(effect.image, hosted.state_since_ms))
        self.coordinator.store(plan, partial(self._stored, hosted, effect))

    def _stored(self, hosted: Hosted, effect: Store, error: BaseException | None) -> None:
        if self._hosted.get(hosted.group.group_id) is not hosted:
            return  # another protocol's group has taken its place, and all who waited are answered
        if self.coordinator.is_closed or effect.receipt is None:
            # Only an empty group is stored without a receipt; were that refused, its members of before would come
            # back at the next start, and their sessions end.
            return
        is_stored(hosted.group, effect.receipt, None if error is None else _failure(error), self.now_ms())
        self.follow(hosted)

    def _deleted(self, hosted: Hosted, error: BaseException | None) -> None:
        group_id = hosted.group.group_id
        if self._deleting.get(group_id) is not hosted:
            return  # another group has its id
        del self._deleting[group_id]
        if isinstance(error, CommitRefused | ShardLost) and not self.coordinator.is_closed:
            self._hosted[group_id] = hosted
            hosted.group.usage.retake()
            self._arm(hosted)


def _put(stored: StoredGroup, changes: RowChanges) -> None:
    GROUP_ROWS.put(changes, stored.image.group_id, group_row(stored))


def _failure(error: BaseException) -> ErrorCode:
    """Codes after which clients find their coordinator and join again."""
    refusal = store_refusal(error, GROUPS)
    if refusal is not None:
        return refusal.code
    if not isinstance(error, RowSetError):
        log.error("a consumer group could not be stored; this is a defect of the broker", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
