"""The consumer groups of a node: on 16 coordinator tablets, by hash of the group id. Offsets are not theirs.

Members, generation and assignment of a group are stored at each completed sync, so that after a crash its members
continue in the same generation. Offsets belong to the partitions (pq/serving/topics.py); here is who may commit them.
"""

import asyncio
import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.coordination.assignors import assignors_named
from pqbroker.broker.services.coordination.classic import heartbeats, joining, leaving, syncing
from pqbroker.broker.services.coordination.classic.memory import GroupMemory, payer_of
from pqbroker.broker.services.coordination.classic.messages import GroupLimits, Join, Joined, Leaver, Sync, Synced
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.classic.subscriptions import CONSUMER, subscribed_topics
from pqbroker.broker.services.coordination.classic_groups import ClassicGroups, Hosted
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.coordination.expression_refreshes import MayDescribe, RefreshParts
from pqbroker.broker.services.coordination.group_ids import check_new_group
from pqbroker.broker.services.coordination.known_topics import ServedTopics
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern.messages import JOINING, MemberHeartbeat
from pqbroker.broker.services.coordination.modern.migration import MigrationPolicy
from pqbroker.broker.services.coordination.modern.targets import chosen_assignor
from pqbroker.broker.services.coordination.modern_groups import ModernGroups, ModernParts, WaitingMember
from pqbroker.broker.services.coordination.topic_expressions import TopicExpressions
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.group_times import GroupTimes
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberImage
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.tablet import TabletType

COORDINATORS = 16
"""Part of what is stored: a group's tablet follows from it."""
COORDINATOR_IDS = tuple(TabletId(16 + number) for number in range(COORDINATORS))
"""Ids of the coordinator tablets, by number."""
MS_PER_MINUTE = 60_000
_OWNER = "coordinator"


class GroupType(StrEnum):
    """Kafka's names of the protocols of groups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group at a glance."""

    group_id: str
    protocol_type: str
    state: GroupState
    members: int
    type: GroupType = GroupType.CLASSIC


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group in full."""

    state: GroupState
    image: GroupImage
    type: GroupType = GroupType.CLASSIC


class Coordinators:
    """All groups of one opening of the cell. Once that is lost, KafkaError NOT_COORDINATOR for whatever asks; while it
    is open for reading only, when it is not started, COORDINATOR_NOT_AVAILABLE.

    After `close` nobody waits here any more, and nobody can join; members may still leave and commit. `clock`:
    milliseconds since 1970.
    """

    def __init__(
        self, host: TabletHost, settings: BrokerSettings, clock: Callable[[], int], topics: ServedTopics,
        times_of: Callable[[str], GroupTimes],
    ) -> None:
        self._host = host
        self._clock = clock
        self._is_closed = False
        self.are_elsewhere = False
        """True on a node that coordinates no group."""
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
            modern_members_max=settings.group_consumer_max_size,
            memory=GroupMemory(settings.groups_bytes_max),
        )
        self.assignors = assignors_named(settings.group_consumer_assignors)
        """Assignors that members of groups of KIP-848 can ask for."""
        self.tablets = tuple(Coordinator() for _ in COORDINATOR_IDS)
        """Coordinators by number. Other kinds of residents are admitted before the start."""
        self._groups = tuple(ClassicGroups(coordinator, self._limits, clock) for coordinator in self.tablets)
        self._turns = turns = Turns(asyncio.get_running_loop())
        self.expressions = TopicExpressions(topics.names, settings.group_expression_characters_max)
        """Regular expressions by which members of groups of KIP-848 subscribe."""
        refreshes = RefreshParts(
            self.expressions, topics, settings.group_consumer_regex_refresh_interval_ms, turns, clock
        )
        policy = MigrationPolicy(settings.group_consumer_migration_policy)
        parts = ModernParts(self._limits, topics, self.assignors, times_of, turns, clock, refreshes, policy)
        self._modern = tuple(
            ModernGroups(coordinator, classic, parts)
            for coordinator, classic in zip(self.tablets, self._groups, strict=True)
        )

    async def start(self) -> None:
        """Create the tablets if they do not exist yet, and load every resident. CommitRefused, ShardLost.

        A tablet whose log is unreadable costs its residents: COORDINATOR_NOT_AVAILABLE for them; they stay as they are.
        """
        tablets = [(tablet_id, TabletType.COORDINATOR, _OWNER) for tablet_id in COORDINATOR_IDS]
        await self._host.cell.create_tablets(tablets)
        started = map(self._host.start, COORDINATOR_IDS, self.tablets)
        await asyncio.gather(*started)

    def close(self) -> None:
        """Answer everything that waits with NOT_COORDINATOR, and each join or sync from now on."""
        self._is_closed = True
        for coordinator in self.tablets:
            coordinator.close()

    def stand_aside(self) -> None:
        """Leave all groups to the node that coordinates them: here all is NOT_COORDINATOR, and no group is listed."""
        self.are_elsewhere = True
        self.close()

    async def stop(self) -> None:
        """Close, and wait for what is being stored."""
        self.close()
        for tablet_id in COORDINATOR_IDS:
            await self._host.stop_tablet(tablet_id)

    def advance(self, by_ms: int) -> None:
        """Let time pass at once for every resident."""
        for coordinator in self.tablets:
            coordinator.advance(by_ms)

    @property
    def taken_bytes(self) -> int:
        """Return the bytes of all groups, as `pqbroker.groups.bytes.max` counts them."""
        return self._limits.memory.taken

    @property
    def is_serving(self) -> bool:
        return not self._is_closed and not self._host.cell.lost.done() and not self._host.cell.reading_only

    @property
    def is_closed(self) -> bool:
        """Return True if `close` was called."""
        return self._is_closed

    @property
    def why_not(self) -> str:
        """Return why no group is served while `is_serving` is False."""
        return self._host.cell.reading_only or "the broker is stopping or restarting: retry"

    def subscribes_by(self, group_id: str, expression: str) -> bool:
        """Return True if a member of the group subscribes by the expression already: then it is valid."""
        group = self.modern_group(group_id)
        return group is not None and expression in group.expression_counts

    def consumer_heartbeat(
        self, group_id: str, request: MemberHeartbeat, answered: WaitingMember, may_describe: MayDescribe
    ) -> None:
        """`answered` is called once, in this call or when what the member learns is durable. KafkaError 16, 25, 69, 81,
        82, 110, 111."""
        groups = self._modern_of(group_id)
        if request.epoch >= JOINING:
            self._check_open()
        groups.heartbeat(group_id, request, answered, may_describe)

    def modern_group(self, group_id: str) -> ModernGroup | None:
        """Return a group of KIP-848; None if it does not exist, or is another protocol's."""
        return self._modern_of(group_id).hosted.get(group_id)

    def join(self, group_id: str, request: Join, answer: Callable[[Joined], None]) -> None:
        """`answer` is called once, in this call or when the rebalance is over. KafkaError 16, 24, 81."""
        groups = self._groups_of(group_id)
        self._check_open()
        payer = payer_of(request.client_host)
        modern = self.modern_group(group_id)
        if modern is not None and modern.members:
            self._modern_of(group_id).classic_join(modern, request, answer)
            return
        if group_id not in groups.hosted:
            if request.member_id:
                answer(Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            check_new_group(group_id, self._limits, payer)
            self._modern_of(group_id).give_up_empty(group_id)
        hosted = groups.host(group_id, payer)
        joining.join(hosted.group, request, partial(self._joined, group_id, request, answer), groups.now_ms())
        groups.follow(hosted)

    def _joined(self, group_id: str, request: Join, answer: Callable[[Joined], None], joined: Joined) -> None:
        """Answer a join; one that waited while its group became one of KIP-848 is a join of that. Apache Kafka has the
        client ask again, which librdkafka tells its user as an error."""
        if joined.error == ErrorCode.REBALANCE_IN_PROGRESS and self.modern_group(group_id) is not None:
            self._turns.call_soon(partial(self._join_moved, group_id, request, answer, joined))
        else:
            answer(joined)

    def _join_moved(self, group_id: str, request: Join, answer: Callable[[Joined], None], joined: Joined) -> None:
        """Join the group of KIP-848, or answer what was `joined` where there is none any more."""
        modern = self.modern_group(group_id) if self.is_serving else None
        if modern is None:
            answer(joined)
        else:
            self._modern_of(group_id).classic_join(modern, replace(request, member_id=joined.member_id), answer)

    def sync(self, group_id: str, request: Sync, answer: Callable[[Synced], None]) -> None:
        """`answer` is called once, in this call or when the assignment is stored."""
        modern = self.modern_group(group_id)
        if modern is not None:
            self._check_open()
            self._modern_of(group_id).classic_sync(modern, request, answer)
            return
        groups, hosted = self._known(group_id)
        self._check_open()
        syncing.sync(hosted.group, request, answer, groups.now_ms())
        groups.follow(hosted)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """KafkaError 22, 25, 27, 82."""
        modern = self.modern_group(group_id)
        if modern is not None:
            self._modern_of(group_id).classic_heartbeat(modern, member_id, group_instance_id, generation)
            return
        groups, hosted = self._known(group_id)
        heartbeats.heartbeat(hosted.group, member_id, group_instance_id, generation, groups.now_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[ErrorCode]:
        """Remove members from a group. Return what became of each."""
        modern = self.modern_group(group_id)
        if modern is not None:
            return self._modern_of(group_id).classic_leave(modern, leavers)
        groups = self._groups_of(group_id)
        hosted = groups.hosted.get(group_id)
        if hosted is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        results = leaving.leave(hosted.group, leavers, groups.now_ms())
        groups.follow(hosted)
        return results

    def check_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int, *,
        has_offsets: Callable[[str], bool],
    ) -> None:
        """Check that offsets may be committed so, in a group that is none of KIP-848; KafkaError 16, 22, 25, 27, 69,
        82. It is a member's sign of life.

        `has_offsets`: whether a group has offsets, or had lately; it is a group without members then, as in Kafka.
        """
        groups = self._groups_of(group_id)
        hosted = groups.hosted.get(group_id)
        if hosted is not None:
            heartbeats.check_commit(hosted.group, member_id, group_instance_id, generation, groups.now_ms())
        elif generation >= 0:
            code = ErrorCode.UNKNOWN_MEMBER_ID if has_offsets(group_id) else ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(code, f"group {group_id} has no members: join first")

    def check_transactional_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> None:
        """Check that offsets may be committed so in a transaction; KafkaError 16, 22, 25, 82. As in Kafka, a client
        that names neither member nor generation always may."""
        groups = self._groups_of(group_id)
        hosted = groups.hosted.get(group_id)
        if hosted is not None:
            heartbeats.check_transactional_commit(
                hosted.group, member_id, group_instance_id, generation, groups.now_ms()
            )
        elif generation >= 0 and self.modern_group(group_id) is None:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {group_id} has no members: join first")

    def describe(self, group_id: str) -> DescribedGroup | None:
        """Describe a group; None if it never had a member, though it may have offsets."""
        hosted = self._groups_of(group_id).hosted.get(group_id)
        if hosted is not None:
            return DescribedGroup(hosted.group.state, hosted.group.image())
        modern = self.modern_group(group_id)
        if modern is None:
            return None
        image = _image(modern, chosen_assignor(modern, self.assignors).name)
        return DescribedGroup(modern.state, image, GroupType.CONSUMER)

    def state(self, group_id: str) -> GroupState | None:
        """Return the state of a group; None if it never had a member."""
        hosted = self._groups_of(group_id).hosted.get(group_id)
        if hosted is not None:
            return hosted.group.state
        modern = self.modern_group(group_id)
        return None if modern is None else modern.state

    def groups(self) -> Iterator[ListedGroup]:
        """Yield every group that had members, in no order; others may have their turns between them.

        Raise KafkaError NOT_COORDINATOR.
        """
        self._check_cell()
        for groups in self._groups:
            for group_id in tuple(groups.hosted):
                hosted = groups.hosted.get(group_id)
                if hosted is not None:
                    yield _listed(group_id, hosted)
        for modern in self._modern:
            for group_id in tuple(modern.hosted):
                group = modern.hosted.get(group_id)
                if group is not None:
                    yield ListedGroup(group_id, CONSUMER, group.state, len(group.members), GroupType.CONSUMER)

    def delete(self, group_id: str) -> Awaitable[None]:
        """Forget a group, not its offsets, in this call; durable when awaited: CommitRefused, ShardLost.

        NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND in this call.
        """
        modern = self._modern_of(group_id)
        return (modern if group_id in modern.hosted else self._groups_of(group_id)).delete(group_id)

    async def expire(self, has_offsets: Callable[[str], bool]) -> None:
        """Forget groups that have had neither members, for offsets.retention.minutes, nor offsets.

        CommitRefused, ShardLost: what is left goes at the next look.
        """
        empty_before_ms = self._clock() - self._kept_ms
        for classic, modern in zip(self._groups, self._modern, strict=True):
            await classic.expire(empty_before_ms, has_offsets)
            await modern.expire(empty_before_ms, has_offsets)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that members read: none for a group without members; None when they do not say."""
        hosted = self._groups_of(group_id).hosted.get(group_id)
        modern = self.modern_group(group_id)
        if modern is not None:
            return frozenset(modern.topic_names())
        if hosted is None or not hosted.group.members:
            return frozenset()
        return subscribed_topics(hosted.group)

    def unread_since(self, group_id: str, topic: str) -> int | None:
        """Since when (ms) no member of the group reads the topic; None: one may; 0: nobody knows (KIP-211)."""
        hosted = self._groups_of(group_id).hosted.get(group_id)
        if hosted is None:
            modern = self.modern_group(group_id)
            return 0 if modern is None else _unread_since(modern, topic)
        if hosted.group.state is GroupState.EMPTY:
            return hosted.state_since_ms
        topics = subscribed_topics(hosted.group)
        return None if topics is None or topic in topics or hosted.group.state is not GroupState.STABLE else 0

    def _known(self, group_id: str) -> tuple[ClassicGroups, Hosted]:
        groups = self._groups_of(group_id)
        hosted = groups.hosted.get(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}: join it")
        return groups, hosted

    def _groups_of(self, group_id: str) -> ClassicGroups:
        """Return the groups of the coordinator that the group belongs to."""
        self._check_cell()
        groups = self._groups[coordinator_of(group_id)]
        groups.coordinator.check()
        return groups

    def _modern_of(self, group_id: str) -> ModernGroups:
        """Return the groups of KIP-848 of the coordinator that the group belongs to."""
        self._groups_of(group_id)
        return self._modern[coordinator_of(group_id)]

    def _check_open(self) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping: join again when it is back")

    def _check_cell(self) -> None:
        if self._host.cell.lost.done():
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the cell was lost and is being opened again: retry")
        if self._host.cell.reading_only:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._host.cell.reading_only)


def new_member_id(client_id: str | None, instance_id: str | None) -> str:
    """Return a new id: the name of the member and a random part."""
    name = (client_id or "member") if instance_id is None else instance_id
    return f"{name}-{uuid.uuid4()}"


def coordinator_of(group_id: str) -> int:
    """Return the number of the coordinator tablet that a group belongs to."""
    return zlib.crc32(group_id.encode()) % COORDINATORS


def _image(group: ModernGroup, assignor: str) -> GroupImage:
    """Return a group of KIP-848 as one of the classic protocol is shown."""
    members = tuple(
        MemberImage(
            member.member_id, member.subscription.instance_id, member.subscription.client_id,
            member.subscription.client_host, 0, member.subscription.rebalance_timeout_ms, (), b"",
        )
        for member in group.members.values()
    )  # fmt: skip
    return GroupImage(group.group_id, group.epoch, CONSUMER, assignor, None, members)


def _unread_since(group: ModernGroup, topic: str) -> int | None:
    if not group.members:
        return group.state_since_ms
    return None if group.expression_counts or topic in group.topic_names() else 0


def _listed(group_id: str, hosted: Hosted) -> ListedGroup:
    group = hosted.group
    return ListedGroup(group_id, group.protocol_type or "", group.state, len(group.members))
