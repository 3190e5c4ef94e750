"""Groups of KIP-848 as residents of a coordinator: who is in them, and their answers.

The rules are in modern/. What a request changes is in memory at once; its answer leaves when all that the group has
become is durable (`modern_stores.py`). Groups move to the classic protocol and back (`modern/migration.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.coordination.assigning.assignor import Assignor
from pqbroker.broker.services.coordination.classic.memory import payer_of
from pqbroker.broker.services.coordination.classic.messages import GroupLimits, Join, Joined, Leaver, Sync, Synced
from pqbroker.broker.services.coordination.classic_groups import ClassicGroups
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.coordination.expression_refreshes import (
    ExpressionRefreshes,
    MayDescribe,
    RefreshParts,
)
from pqbroker.broker.services.coordination.group_ids import check_new_group
from pqbroker.broker.services.coordination.modern import classic_members, heartbeats, leaving, membership, targets
from pqbroker.broker.services.coordination.modern.clock import overdue
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.loading import StoredPart, loaded_groups
from pqbroker.broker.services.coordination.modern.messages import (
    JOINING,
    LEAVING,
    Around,
    HeartbeatAnswer,
    KnownTopics,
    MemberHeartbeat,
)
from pqbroker.broker.services.coordination.modern.migration import (
    MigrationPolicy,
    becomes_classic,
    check_upgrade,
    to_classic,
)
from pqbroker.broker.services.coordination.modern_changes import delete_rows
from pqbroker.broker.services.coordination.modern_stores import ModernStores, Settle, give
from pqbroker.broker.services.coordination.upgrades import Again, Upgrades
from pqbroker.conf.group_times import GroupTimes
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.modern_group_rows import LEFT_STATIC, MODERN_GROUP_ROWS
from pqbroker.storage.tablets.resident_rows import ResidentRows

log = logging.getLogger(__name__)

WaitingMember = Callable[[HeartbeatAnswer | KafkaError], None]
"""Called once, with what the member learns."""

@dataclass(frozen=True, slots=True)
class ModernParts:
    """Parts of the node that its groups need."""

    limits: GroupLimits
    topics: KnownTopics
    assignors: Mapping[str, Assignor]
    times_of: Callable[[str], GroupTimes]
    turns: Turns
    clock: Callable[[], int]
    """Milliseconds since 1970."""
    refreshes: RefreshParts
    policy: MigrationPolicy


class ModernGroups:
    """The groups of one coordinator tablet."""

    def __init__(self, coordinator: Coordinator, classic: ClassicGroups, parts: ModernParts) -> None:
        self.coordinator = coordinator
        self._classic = classic
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._hosted: dict[str, ModernGroup] = {}
        self._deleting: dict[str, ModernGroup] = {}
        """Groups whose deletion is not durable yet, and whose ids nobody has taken since."""
        self._stores = ModernStores(coordinator)
        self._joining: dict[ModernGroup, list[tuple[WaitingMember, str]]] = {}
        """Ids of members that wait for a target."""
        self._working: dict[ModernGroup, asyncio.Task[None]] = {}
        """Targets that take more than a slice."""
        self._refreshes = ExpressionRefreshes(parts.refreshes, self._refreshed)
        self._upgrades = Upgrades(parts.topics, parts.turns)
        coordinator.admit(self)

    @property
    def rows(self) -> ResidentRows:
        return MODERN_GROUP_ROWS

    def __len__(self) -> int:
        return len(self._hosted)

    @property
    def hosted(self) -> Mapping[str, ModernGroup]:
        """Return the hosted groups by group id."""
        return MappingProxyType(self._hosted)

    def load(self, stored: Sequence[StoredPart]) -> None:
        """Members have their whole session timeout from now."""
        self._hosted.clear()
        self._deleting.clear()
        self._stores = ModernStores(self.coordinator)
        for group in loaded_groups(stored, self._parts.limits):
            if group.group_id in self._classic.hosted:
                log.warning("group %s is stored twice: that of the classic protocol counts", group.group_id)
                group.usage.release()
                continue
            self._hosted[group.group_id] = group
            around = self._around(group.group_id)
            for member in group.members.values():
                membership.begin_session(group, member, around)
            self._arm(group)

    def heartbeat(
        self, group_id: str, request: MemberHeartbeat, answered: WaitingMember, may_describe: MayDescribe
    ) -> None:
        """`answered` is called in this call or when what the member learns is durable. KafkaError, and then nothing has
        changed."""
        group = self._hosted.get(group_id)
        if request.epoch in (LEAVING, LEFT_STATIC):
            self._leave(group_id, request, answered)
        elif group is None:
            self._begin(group_id, request, answered, partial(self._again, group_id, request, answered, may_describe))
        else:
            answer = heartbeats.heartbeat(group, request, self._around(group_id))
            self._follow_heartbeat(group, request, answered, answer)
        beating = self._hosted.get(group_id)
        if beating is not None:
            self._refreshes.begin_if_due(beating, may_describe)

    def classic_join(self, group: ModernGroup, request: Join, answer: Callable[[Joined], None]) -> None:
        """A member of the classic protocol joins a group of this kind. `answer` is called once."""
        try:
            if self._parts.policy is MigrationPolicy.DISABLED:
                text = f"Cannot join the consumer group {group.group_id} with the classic protocol because the group " \
                    "migration is disabled."
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
            replaced = group.instances.get(request.instance_id or "")
            joined = classic_members.join(group, request, self._around(group.group_id))
        except KafkaError as refusal:
            answer(Joined(refusal.code, request.member_id, reason=refusal.message))
            return

        def settle(refusal: KafkaError | None) -> None:
            answer(joined if refusal is None else Joined(refusal.code, joined.member_id, reason=refusal.message))

        is_last = replaced is not None and replaced not in group.members
        if is_last and becomes_classic(group, (), self._parts.policy):
            self._downgrade(group, settle)
        else:
            self._follow(group, settle)

    def classic_sync(self, group: ModernGroup, request: Sync, answer: Callable[[Synced], None]) -> None:
        """A member of the classic protocol asks for its partitions. `answer` is called once."""
        try:
            synced = classic_members.sync(group, request, self._around(group.group_id))
        except KafkaError as refusal:
            answer(Synced(refusal.code, reason=refusal.message))
            self._arm(group)
            return

        def settle(refusal: KafkaError | None) -> None:
            answer(synced if refusal is None else Synced(refusal.code, reason=refusal.message))

        self._follow(group, settle)

    def classic_heartbeat(
        self, group: ModernGroup, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS."""
        try:
            around = self._around(group.group_id)
            classic_members.heartbeat(group, member_id, instance_id, generation, around)
        finally:
            self._arm(group)

    def classic_leave(self, group: ModernGroup, leavers: Sequence[Leaver]) -> list[ErrorCode]:
        """Remove members of either protocol. Return what became of each."""
        found = classic_members.leavers(group, leavers)
        gone = dict.fromkeys(each for each in found if not isinstance(each, ErrorCode))
        if gone:
            self._remove(group, tuple(gone))
        return [each if isinstance(each, ErrorCode) else ErrorCode.NONE for each in found]

    def delete(self, group_id: str) -> Awaitable[None]:
        """Forget a group without members, in this call; durable when awaited: CommitRefused, ShardLost.

        NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND in this call. A caller that is cancelled does not undo it.
        """
        group = self._hosted.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        if group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members: stop them first")
        return self._forget(group)

    def give_up_empty(self, group_id: str) -> None:
        """Forget a group without members, if there is one: a classic group takes its place."""
        group = self._hosted.get(group_id)
        if group is not None and not group.members:
            self._forget(group)
        self._deleting.pop(group_id, None)

    async def expire(self, empty_before_ms: int, has_offsets: Callable[[str], bool]) -> None:
        """Forget groups that had their last member before a time, and have no offsets. CommitRefused, ShardLost."""
        for group_id in list(self._hosted):
            group = self._hosted.get(group_id)
            if group is None or group.members or group.state_since_ms > empty_before_ms:
                continue
            if not has_offsets(group_id):
                await self.delete(group_id)

    def wake(self, resident: ModernGroup) -> None:
        late = overdue(resident, self.coordinator.now_ms())
        for each in late:
            log.info("member %s is removed from group %s: %s", each.member_id, resident.group_id, each.reason)
        if late:
            self._remove(resident, [each.member_id for each in late])
        else:
            self._arm(resident)

    def close(self) -> None:
        """Answer every request that waits, and end all groups."""
        closed = _closed()
        self._refreshes.close()
        self._upgrades.close(closed)
        for task in self._working.values():
            task.cancel()
        self._working.clear()
        for group in self._hosted.values():
            group.usage.release()
        joining, self._joining = self._joining, {}
        self._stores.close(closed)
        for members in joining.values():
            for answered, _ in members:
                answered(closed)

    def _again(
        self, group_id: str, request: MemberHeartbeat, answered: WaitingMember, may_describe: MayDescribe,
        refusal: KafkaError | None,
    ) -> None:
        """Serve a heartbeat whose classic group was to move first, or answer why it cannot."""
        if refusal is None and self.coordinator.is_closed:
            refusal = _closed()
        if refusal is not None:
            answered(refusal)
            return
        try:
            self.heartbeat(group_id, request, answered, may_describe)
        except KafkaError as told:
            answered(told)

    def _begin(self, group_id: str, request: MemberHeartbeat, answered: WaitingMember, again: Again) -> None:
        """Make a group of its first member; or of a classic one, which has no members or may move. `again`: called
        later, if that one takes several turns of the loop."""
        hosted = self._classic.hosted.get(group_id)
        if request.epoch != JOINING:
            text = f"Consumer group {group_id} not found."
            if hosted is not None:
                text = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if hosted is not None and hosted.group.members:
            check_upgrade(hosted.group, self._parts.policy)
            moved = self._upgrades.take(hosted.group, again)
            if moved is None:
                return
            group = moved
        else:
            payer = payer_of(request.client_host)
            check_new_group(group_id, self._parts.limits, payer)
            group = ModernGroup(group_id, self._parts.limits, payer)
        around = self._around(group_id)
        try:
            answer = heartbeats.heartbeat(group, request, around)
        except BaseException:
            group.usage.release()
            raise
        for member in group.members.values():
            if member.subscription.classic is not None:
                membership.renew(group, member, around)
        self._deleting.pop(group_id, None)
        self._hosted[group_id] = group
        self._classic.give_up(group_id)  # those who wait to join it join this group
        self._follow_heartbeat(group, request, answered, answer)

    def _leave(self, group_id: str, request: MemberHeartbeat, answered: WaitingMember) -> None:
        group = self._hosted.get(group_id)
        if group is None:
            is_classic = group_id in self._classic.hosted
            text = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        answer, removed = leaving.leave(group, request)
        settle = partial(_settle, answered, answer)
        if removed:
            self._remove(group, removed, settle)
        else:
            self._follow(group, settle)

    def _remove(self, group: ModernGroup, member_ids: Sequence[str], settle: Settle | None = None) -> None:
        """Remove members: of those that are left, the group may be a classic one."""
        if becomes_classic(group, member_ids, self._parts.policy):
            for member_id in member_ids:
                group.remove(member_id)
            self._downgrade(group, settle)
        else:
            leaving.remove(group, member_ids, self._parts.topics)
            self._follow(group, settle)

    def _downgrade(self, group: ModernGroup, settle: Settle | None) -> None:
        """Move a group to the classic protocol, in which it rebalances."""
        log.info("group %s moves to the classic protocol", group.group_id)
        answers = self._stores.give_up(group)
        if settle is not None:
            answers.append(settle)
        self._end(group)
        classic = to_classic(group, self._parts.topics, self.coordinator.now_ms())
        plan = partial(delete_rows, group_id=group.group_id)
        self._classic.adopt(classic, plan, partial(give, answers))

    def _forget(self, group: ModernGroup) -> Awaitable[None]:
        self._end(group)
        self._deleting[group.group_id] = group
        return self._stores.forget(group, partial(self._forgotten, group))

    def _end(self, group: ModernGroup) -> None:
        del self._hosted[group.group_id]
        group.work = None
        group.usage.release()
        self.coordinator.wake_at(self, group, None)

    def _forgotten(self, group: ModernGroup, refusal: KafkaError | None) -> None:
        if self._deleting.get(group.group_id) is not group:
            return  # another group has its id
        del self._deleting[group.group_id]
        if refusal is not None and not self.coordinator.is_closed:
            self._hosted[group.group_id] = group
            group.usage.retake()

    def _around(self, group_id: str) -> Around:
        parts = self._parts
        return Around(
            self.coordinator.now_ms(), parts.clock(), parts.times_of(group_id), parts.topics, parts.assignors,
            self._is_slice_over,
        )  # fmt: skip

    def _is_slice_over(self) -> bool:
        turns = self._parts.turns
        return turns.clock() >= turns.slice_end()

    def _follow_heartbeat(
        self, group: ModernGroup, request: MemberHeartbeat, answered: WaitingMember, answer: HeartbeatAnswer
    ) -> None:
        """A member that joins waits for the target that is being worked out; others get the present one."""
        if group.work is None or request.epoch != JOINING:
            self._follow(group, partial(_settle, answered, answer))
        else:
            self._joining.setdefault(group, []).append((answered, answer.member_id))
            self._follow(group)

    def _follow(self, group: ModernGroup, settle: Settle | None = None) -> None:
        """Store what has changed, answer when it is durable, wake the group in time."""
        if group.is_known_empty is bool(group.members):
            group.is_known_empty = not group.members
            group.state_since_ms = self._parts.clock()
            group.note_group()
        self._arm(group)
        if group.work is not None and group not in self._working:
            self._work(group)
        self._stores.follow(group, settle)

    def _work(self, group: ModernGroup) -> None:
        """Work out a target in slices, since it takes more than one."""
        task = self._loop.create_task(self._work_out(group))
        self._working[group] = task
        task.add_done_callback(partial(self._worked_out, group))

    async def _work_out(self, group: ModernGroup) -> None:
        work = group.work
        while work is not None and group.work is work:
            if work.step():
                targets.finish(group, work, self._parts.clock())
                return
            await self._parts.turns.breathe()

    def _worked_out(self, group: ModernGroup, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return  # everything is answered
        del self._working[group]
        error = task.exception()
        if error is not None:
            group.work = None
            log.error("the target of group %s was not worked out; a defect", group.group_id, exc_info=error)
        for answered, member_id in self._joining.pop(group, ()):
            try:
                learned = heartbeats.answer_joined(group, member_id, self._around(group.group_id))
            except KafkaError as refusal:
                answered(refusal)
            else:
                self._follow(group, partial(_settle, answered, learned))
        if self._hosted.get(group.group_id) is group:
            self._follow(group)

    def _refreshed(self, group: ModernGroup) -> None:
        if self._hosted.get(group.group_id) is group:
            self._follow(group)

    def _arm(self, group: ModernGroup) -> None:
        self.coordinator.wake_at(self, group, group.wake_at_ms)


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator is stopping or being restarted: retry")


def _settle(answered: WaitingMember, answer: HeartbeatAnswer, refusal: KafkaError | None) -> None:
    answered(answer if refusal is None else refusal)
