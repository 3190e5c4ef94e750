"""The consumer groups of a node: 16 coordinator tablets, by hash of the group id. What a coordinator is not: offsets.

Members, generation and assignment of a group are stored at each completed sync, so that after a crash its members go
on in the same generation. Offsets belong to the partitions (pq/group.py); here is who may commit them.
"""

import asyncio
import logging
import uuid
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from pqbroker.broker.coordinator import Coordinator, Hosted
from pqbroker.broker.group_ids import check_new_group
from pqbroker.broker.groups import heartbeats, joining, leaving, syncing
from pqbroker.broker.groups.memory import GroupMemory
from pqbroker.broker.groups.messages import GroupImage, GroupLimits, Join, Joined, Leaver, Sync, Synced
from pqbroker.broker.groups.states import GroupState
from pqbroker.broker.groups.subscriptions import subscribed_topics
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.cells.cell import Cell
from pqbroker.storage.tables import Table
from pqbroker.storage.tablet import TabletType
from pqbroker.storage.unreadable import StoredUnreadable

log = logging.getLogger(__name__)

COORDINATORS = 16
"""Part of what is stored: a group's tablet follows from it."""
FIRST_COORDINATOR_ID = 16
MS_PER_MINUTE = 60_000
_OWNER = "coordinator"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group at a glance."""

    group_id: str
    protocol_type: str
    state: GroupState
    members: int


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group in full."""

    state: GroupState
    image: GroupImage


class Coordinators:
    """All groups of one opening of the cell. Once that is lost, KafkaError NOT_COORDINATOR for whatever asks.

    After `close` nobody waits here any more, and nobody can join; members may still leave and commit. `clock`:
    milliseconds since 1970.
    """

    def __init__(self, cell: Cell, settings: BrokerSettings, clock: Callable[[], int]) -> None:
        self._cell = cell
        self._clock = clock
        self._is_closed = False
        self._kept_ms = settings.offsets_retention_minutes * MS_PER_MINUTE
        self._limits = GroupLimits(
            session_timeout_min_ms=settings.group_min_session_timeout_ms,
            session_timeout_max_ms=settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            members_max=settings.group_max_size,
            id_bytes_max=settings.group_id_bytes_max,
            member_bytes_max=settings.member_metadata_bytes_max,
            metadata_bytes_max=settings.group_metadata_bytes_max,
            assignment_bytes_max=settings.group_assignment_bytes_max,
            memory=GroupMemory(settings.groups_bytes_max),
        )
        self._coordinators: tuple[Coordinator, ...] = ()
        self._restarting: set[Coordinator] = set()
        self._unreadable: dict[Coordinator, StoredUnreadable] = {}
        """Those whose groups cannot be read: they serve none."""

    async def start(self) -> None:
        """Create the tablets if they are not there, and load every group. CommitRefused, ShardLost.

        A tablet whose log cannot be read costs its groups: COORDINATOR_NOT_AVAILABLE for them, which stay as they are.
        """
        ids = range(FIRST_COORDINATOR_ID, FIRST_COORDINATOR_ID + COORDINATORS)
        await self._cell.create_tablets([(tablet_id, TabletType.COORDINATOR, _OWNER) for tablet_id in ids])
        self._coordinators = tuple(
            Coordinator(self._cell.storage(tablet_id), self._limits, self._clock) for tablet_id in ids
        )
        await asyncio.gather(*map(self._load, self._coordinators))

    def close(self) -> None:
        """Answer everything that waits with NOT_COORDINATOR, and who joins or syncs from now on."""
        self._is_closed = True
        for coordinator in self._coordinators:
            coordinator.close()

    async def stop(self) -> None:
        """Close, and wait for what is being stored."""
        self.close()
        await asyncio.gather(*(coordinator.stop() for coordinator in self._coordinators))

    async def restart_tablet(self, tablet_id: int) -> None:
        """Start a coordinator tablet anew; NOT_COORDINATOR for its groups meanwhile. CommitRefused, ShardLost."""
        number = tablet_id - FIRST_COORDINATOR_ID
        earlier = self._coordinators[number]
        self._restarting.add(earlier)
        earlier.close()
        await earlier.stop()
        try:
            await self._cell.restart_tablet(tablet_id)
        finally:
            later = Coordinator(self._cell.storage(tablet_id), self._limits, self._clock)
            await self._load(later)
            self._unreadable.pop(earlier, None)
            self._coordinators = (*self._coordinators[:number], later, *self._coordinators[number + 1 :])
            self._restarting.discard(earlier)

    def tables(self, tablet_id: int) -> Mapping[str, Table]:
        """What a coordinator tablet stores; only to be looked at."""
        return self._coordinators[tablet_id - FIRST_COORDINATOR_ID].tables

    @property
    def taken_bytes(self) -> int:
        """Of all groups, as `pqbroker.groups.bytes.max` counts them."""
        return self._limits.memory.taken

    @property
    def is_serving(self) -> bool:
        return not self._is_closed and not self._cell.lost.done()

    def join(self, group_id: str, request: Join, answer: Callable[[Joined], None]) -> None:
        """`answer` is called once, in this call or when the rebalance is over. KafkaError 16, 24, 81."""
        coordinator = self._coordinator(group_id)
        self._check_open()
        if group_id not in coordinator.hosted:
            if request.member_id:
                answer(Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            check_new_group(group_id, self._limits)
        hosted = coordinator.host(group_id)
        joining.join(hosted.group, request, answer, coordinator.now_ms())
        coordinator.follow(hosted)

    def sync(self, group_id: str, request: Sync, answer: Callable[[Synced], None]) -> None:
        """`answer` is called once, in this call or when the assignment is stored."""
        coordinator, hosted = self._known(group_id)
        self._check_open()
        syncing.sync(hosted.group, request, answer, coordinator.now_ms())
        coordinator.follow(hosted)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """KafkaError 22, 25, 27, 82."""
        coordinator, hosted = self._known(group_id)
        heartbeats.heartbeat(hosted.group, member_id, group_instance_id, generation, coordinator.now_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[ErrorCode]:
        """What became of each."""
        coordinator = self._coordinator(group_id)
        hosted = coordinator.hosted.get(group_id)
        if hosted is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        results = leaving.leave(hosted.group, leavers, coordinator.now_ms())
        coordinator.follow(hosted)
        return results

    def check_commit(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """Whether offsets may be committed so; KafkaError 16, 22, 25, 27, 82. A sign of life of the member."""
        coordinator = self._coordinator(group_id)
        hosted = coordinator.hosted.get(group_id)
        if hosted is not None:
            heartbeats.check_commit(hosted.group, member_id, group_instance_id, generation, coordinator.now_ms())
        elif generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {group_id} has no members: join first")

    def describe(self, group_id: str) -> DescribedGroup | None:
        """None: nobody ever joined it; it may have offsets all the same."""
        hosted = self._coordinator(group_id).hosted.get(group_id)
        return None if hosted is None else DescribedGroup(hosted.group.state, hosted.group.image())

    def groups(self) -> list[ListedGroup]:
        """Every group that had members, in no order."""
        self._check_cell()
        return [
            _listed(group_id, hosted)
            for coordinator in self._coordinators
            for group_id, hosted in coordinator.hosted.items()
        ]

    def delete(self, group_id: str) -> Awaitable[None]:
        """Forget a group, not its offsets, in this call; durable when awaited: CommitRefused, ShardLost.

        NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND in this call.
        """
        return self._coordinator(group_id).delete(group_id)

    async def expire(self, has_offsets: Callable[[str], bool]) -> None:
        """Forget groups that have had neither members, for offsets.retention.minutes, nor offsets.

        CommitRefused, ShardLost: what is left goes at the next look.
        """
        empty_before_ms = self._clock() - self._kept_ms
        for coordinator in self._coordinators:
            await coordinator.expire(empty_before_ms, has_offsets)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that members read: none for a group without members; None when they do not say."""
        hosted = self._coordinator(group_id).hosted.get(group_id)
        if hosted is None or not hosted.group.members:
            return frozenset()
        return subscribed_topics(hosted.group)

    def unread_since(self, group_id: str, topic: str) -> int | None:
        """Since when (ms) no member of the group reads the topic; None: one may; 0: nobody knows (KIP-211)."""
        hosted = self._coordinator(group_id).hosted.get(group_id)
        if hosted is None:
            return 0
        if hosted.group.state is GroupState.EMPTY:
            return hosted.state_since_ms
        topics = subscribed_topics(hosted.group)
        return None if topics is None or topic in topics or hosted.group.state is not GroupState.STABLE else 0

    async def _load(self, coordinator: Coordinator) -> None:
        try:
            await coordinator.start()
        except StoredUnreadable as unreadable:
            log.error("the consumer groups of a coordinator are not served: %s", unreadable)
            self._unreadable[coordinator] = unreadable

    def _known(self, group_id: str) -> tuple[Coordinator, Hosted]:
        coordinator = self._coordinator(group_id)
        hosted = coordinator.hosted.get(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}: join it")
        return coordinator, hosted

    def _coordinator(self, group_id: str) -> Coordinator:
        self._check_cell()
        coordinator = self._coordinators[zlib.crc32(group_id.encode()) % COORDINATORS]
        if coordinator in self._restarting:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator is being started anew: retry")
        if coordinator in self._unreadable:
            told = f"the group's coordinator is not served: {self._unreadable[coordinator]}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, told)
        return coordinator

    def _check_open(self) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping: join again when it is back")

    def _check_cell(self) -> None:
        if self._cell.lost.done():
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the cell was lost and is being opened again: retry")


def new_member_id(client_id: str | None, instance_id: str | None) -> str:
    """An id that nobody has: what the member is called, and chance."""
    return f"{instance_id or client_id or 'member'}-{uuid.uuid4()}"


def _listed(group_id: str, hosted: Hosted) -> ListedGroup:
    group = hosted.group
    return ListedGroup(group_id, group.protocol_type or "", group.state, len(group.members))
