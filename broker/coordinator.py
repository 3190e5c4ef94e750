"""One coordinator tablet: its groups in memory, their timers, and what is stored of them. Rules are in groups/.

    loaded --close--> closed: everything that waited is answered NOT_COORDINATOR, no timer is left

What was stored stays; a group that has members has one timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from pqbroker.broker.coordinator_rows import TABLE, delete_group, put_group, read_group
from pqbroker.broker.groups.clock import retire_if_unused, wake
from pqbroker.broker.groups.group import Group
from pqbroker.broker.groups.messages import GroupImage, GroupLimits, Send, Store
from pqbroker.broker.groups.states import GroupState
from pqbroker.broker.groups.syncing import stored
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.basetablet import BaseTablet
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.lasting import Lasting
from pqbroker.storage.tables import Table, TableError, Transaction
from pqbroker.storage.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable

log = logging.getLogger(__name__)

ANSWERS_A_TURN = 64
"""A group of thousands is answered over several turns of the loop, each of them a few milliseconds."""


@dataclass(slots=True, eq=False)
class Hosted:
    """A group, since when it is in its state (milliseconds since 1970), and its timer (milliseconds of the loop)."""

    group: Group
    state: GroupState
    state_since_ms: int
    timer: asyncio.TimerHandle | None = None
    timer_at_ms: int = 0


class Coordinator:
    """Groups of one tablet. `clock`: milliseconds since 1970; sessions go by the loop's clock, which never jumps.

    Whoever changes a group calls `follow` with it in the same call.
    """

    def __init__(self, storage: TabletStorage, limits: GroupLimits, clock: Callable[[], int]) -> None:
        self._storage = storage
        self._tablet = BaseTablet(storage)
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._hosted: dict[str, Hosted] = {}
        self._stores: set[asyncio.Task[None]] = set()
        self._sends: deque[Send] = deque()
        """Answers to give out."""
        self._is_sending = False
        """Whether that is being done, or will be in the next turn of the loop."""
        self._is_closed = False

    async def start(self) -> None:
        """Load every group; its members have their whole session timeout from now. ShardLost.

        StoredUnreadable, and then there are no groups here.
        """
        await self._tablet.start()
        for image, since_ms in self._read_groups():
            group = Group.load(image, self._limits, self.now_ms())
            hosted = self._hosted[image.group_id] = Hosted(group, group.state, since_ms)
            self._arm(hosted)

    @property
    def tables(self) -> Mapping[str, Table]:
        """What lies beneath, for administration; only to be looked at."""
        return self._tablet.tables

    @property
    def hosted(self) -> Mapping[str, Hosted]:
        """By group id."""
        return MappingProxyType(self._hosted)

    def now_ms(self) -> int:
        """The time that groups go by."""
        return int(self._loop.time() * 1000)

    def host(self, group_id: str) -> Hosted:
        """The group, made when there is none."""
        found = self._hosted.get(group_id)
        if found is None:
            group = Group(group_id, self._limits)
            found = self._hosted[group_id] = Hosted(group, group.state, self._clock())
        return found

    def follow(self, hosted: Hosted) -> None:
        """Do what the group wants done: send, store, forget, wake it in time."""
        group = hosted.group
        is_retired = retire_if_unused(group)
        if hosted.state is not group.state:
            hosted.state, hosted.state_since_ms = group.state, self._clock()
        if is_retired:
            del self._hosted[group.group_id]
            group.release()
        for effect in group.take_effects():
            if isinstance(effect, Send):
                self._sends.append(effect)
            else:
                self._store(hosted, effect)
        self._arm(hosted)
        if not self._is_sending:
            self._send()

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
        hosted.group.release()
        self._disarm(hosted)
        # A task as stores are, so that it has its turn behind those of the group that came before.
        deletion = self._loop.create_task(self._delete_stored(hosted))
        self._stores.add(deletion)
        deletion.add_done_callback(self._stores.discard)
        return Lasting(deletion)

    async def expire(self, empty_before_ms: int, has_offsets: Callable[[str], bool]) -> None:
        """Forget groups that had their last member before a time, and have no offsets. CommitRefused, ShardLost."""
        for group_id in list(self._hosted):
            hosted = self._hosted.get(group_id)
            if hosted is None or hosted.group.pending or hosted.state is not GroupState.EMPTY:
                continue
            if hosted.state_since_ms <= empty_before_ms and not has_offsets(group_id):
                await self.delete(group_id)

    async def _delete_stored(self, hosted: Hosted) -> None:
        group_id = hosted.group.group_id
        try:
            await self._tablet.transact(lambda transaction: delete_group(transaction, group_id))
        except (CommitRefused, ShardLost):
            if self._hosted.setdefault(group_id, hosted) is hosted:
                hosted.group.retake()
                self._arm(hosted)
            raise

    def close(self) -> None:
        """Answer what waits, stop the timers; nobody waits here afterwards."""
        was_open, self._is_closed = not self._is_closed, True
        for hosted in self._hosted.values():
            self._disarm(hosted)
            if was_open:
                hosted.group.release()
            hosted.group.answer_all(ErrorCode.NOT_COORDINATOR)
            self._sends.extend(effect for effect in hosted.group.take_effects() if isinstance(effect, Send))
        while self._sends:
            send = self._sends.popleft()
            send.ticket(send.answer)

    async def stop(self) -> None:
        """Wait for what is being stored. After `close`."""
        assert self._is_closed
        if self._stores:
            await asyncio.wait(self._stores)
        await self._tablet.stop()

    def _read_groups(self) -> list[tuple[GroupImage, int]]:
        found = []
        for key, row in self._tablet.tables.get(TABLE, ()):
            try:
                found.append(read_group(str(key[0]), row))
            except (LookupError, TypeError, ValueError) as bad:
                place = f"group {key[0]!r} of tablet {self._storage.tablet_id}"
                unreadable = StoredUnreadable(place, f"{type(bad).__name__}: {bad}")
                self._storage.found(unreadable)
                raise unreadable from bad
        return found

    def _arm(self, hosted: Hosted) -> None:
        """One timer at most; one that is early wakes the group in vain and is set anew."""
        wake_at_ms = None if self._is_closed or hosted.state is GroupState.DEAD else hosted.group.wake_at_ms
        if hosted.timer is not None and wake_at_ms is not None and hosted.timer_at_ms <= wake_at_ms:
            return
        self._disarm(hosted)
        if wake_at_ms is not None:
            hosted.timer_at_ms = wake_at_ms
            hosted.timer = self._loop.call_at(wake_at_ms / 1000, self._wake, hosted)

    def _disarm(self, hosted: Hosted) -> None:
        if hosted.timer is not None:
            hosted.timer.cancel()
            hosted.timer = None

    def _wake(self, hosted: Hosted) -> None:
        hosted.timer = None
        wake(hosted.group, self.now_ms())
        self.follow(hosted)

    def _store(self, hosted: Hosted, effect: Store) -> None:
        plan = partial(_put, effect, hosted.state_since_ms)
        task = self._loop.create_task(self._tablet.transact(plan))
        self._stores.add(task)
        task.add_done_callback(partial(self._stored, hosted, effect))

    def _stored(self, hosted: Hosted, effect: Store, task: "asyncio.Task[None]") -> None:
        self._stores.discard(task)
        error = task.exception()
        if self._is_closed or effect.receipt is None:
            # Only an empty group is stored without a receipt; were that refused, its members of before would come
            # back at the next start, and their sessions end.
            return
        stored(hosted.group, effect.receipt, None if error is None else _failure(error), self.now_ms())
        self.follow(hosted)


def _put(effect: Store, state_since_ms: int, transaction: Transaction) -> None:
    put_group(transaction, effect.image, state_since_ms)


def _failure(error: BaseException) -> ErrorCode:
    """Codes after which clients find their coordinator and join again."""
    if isinstance(error, CommitRefused):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, ShardLost):
        return ErrorCode.NOT_COORDINATOR
    if not isinstance(error, TableError):
        log.error("a group could not be stored; this is a defect", exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
