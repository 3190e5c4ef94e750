"""How a member of a group speaks with its coordinator: by KIP-848, or by the classic protocol, whose members let go of
all partitions before they join again."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from pqbroker.broker.services.coordination.classic.subscriptions import VERSION, read_assignment
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from pqbroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.nodes.client import GROUP, NodesClient

SESSION_S: Final = 4.0
REBALANCE_S: Final = 3.0
MODERN_HEARTBEAT, JOIN, SYNC, HEARTBEAT, LEAVE = 1, 7, 5, 4, 4
"""Versions that are used."""
LEAVING: Final = -1
ASSIGNOR: Final = "range"
_ENDED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
"""Codes after which a member joins as another one."""
_AGAIN: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
"""Codes after which a classic member joins again."""


class Topic(NamedTuple):
    """The topic that the group reads."""

    name: str
    topic_id: bytes
    partitions: int


class Told(NamedTuple):
    """The news of one answer. `given`: the partitions of the member; None: nothing new."""

    given: Sequence[int] | None = None
    is_ended: bool = False


class Membership(Protocol):
    """One life of a member. `epoch`: its epoch or generation; `member_id` as the coordinator knows it."""

    epoch: int
    member_id: str

    async def beat(self, held: Sequence[int]) -> Told:
        """Say that the member lives, and which partitions it has."""

    async def leave(self) -> None:
        """Leave the group, as far as anybody hears it."""


class ModernMembership:
    """A membership by KIP-848, whose member says all that it can say each time."""

    def __init__(self, client: NodesClient, group_id: str, topic: Topic, name: str) -> None:
        self.epoch = 0
        self.member_id = name
        self._client = client
        self._group_id = group_id
        self._topic = topic

    async def beat(self, held: Sequence[int]) -> Told:
        told = await self._told(self.epoch, held)
        if told is None or told.error_code:
            return Told(is_ended=told is not None and told.error_code in _ENDED)
        self.epoch = told.member_epoch
        if told.assignment is None:
            return Told()
        return Told([index for each in told.assignment.topic_partitions for index in each.partitions])

    async def leave(self) -> None:
        await self._told(LEAVING, ())

    async def _told(self, epoch: int, held: Sequence[int]) -> Any:
        named = [TopicPartitions(topic_id=self._topic.topic_id, partitions=list(held))] if held else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=epoch,
            rebalance_timeout_ms=int(REBALANCE_S * 1000), subscribed_topic_names=[self._topic.name],
            topic_partitions=named,
        )  # fmt: skip
        return await self._client.ask_coordinator(GROUP, self._group_id, request, MODERN_HEARTBEAT)


class ClassicMembership:
    """A membership by the classic protocol, in which the leader deals the partitions out."""

    def __init__(self, client: NodesClient, group_id: str, topic: Topic) -> None:
        self.epoch = -1
        self.member_id = ""
        self._client = client
        self._group_id = group_id
        self._topic = topic
        self._is_in = False
        """True while it has a share of the generation."""

    async def beat(self, held: Sequence[int]) -> Told:
        if not self._is_in:
            return await self._join()
        request = HeartbeatRequest(group_id=self._group_id, generation_id=self.epoch, member_id=self.member_id)
        told = await self._ask(request, HEARTBEAT)
        if told is None:
            return Told()
        self._is_in = not told.error_code
        return Told([] if told.error_code in _AGAIN else None, told.error_code in _ENDED)

    async def leave(self) -> None:
        if self.member_id:
            members = [MemberIdentity(member_id=self.member_id)]
            await self._ask(LeaveGroupRequest(group_id=self._group_id, members=members), LEAVE)

    async def _join(self) -> Told:
        """Join, then know the own share. Until then the member has none."""
        request = JoinGroupRequest(
            group_id=self._group_id, session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000), member_id=self.member_id, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(
                name=ASSIGNOR, metadata=_data_of(ConsumerProtocolSubscription(topics=[self._topic.name]))
            )],
        )  # fmt: skip
        joined = await self._ask(request, JOIN)
        if joined is None:
            return Told()
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        if joined.error_code:
            return Told(is_ended=joined.error_code in _ENDED)
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id=self._group_id, generation_id=self.epoch, member_id=self.member_id, protocol_type="consumer",
            protocol_name=ASSIGNOR, assignments=self._shares(joined),
        )  # fmt: skip
        synced = await self._ask(sync, SYNC)
        if synced is None or synced.error_code:
            return Told(is_ended=synced is not None and synced.error_code in _ENDED)
        self._is_in = True
        found = read_assignment(ASSIGNOR, synced.assignment)
        return Told(sorted(index for each in found or () for index in each.partitions))

    def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in joined.members)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_data_of(ConsumerProtocolAssignment(
                assigned_partitions=[TopicPartition(
                    topic=self._topic.name, partitions=list(range(number, self._topic.partitions, len(members)))
                )]
            )))
            for number, member_id in enumerate(members)
        ]  # fmt: skip

    async def _ask(self, request: Any, version: int) -> Any:
        return await self._client.ask_coordinator(GROUP, self._group_id, request, version)


def _data_of(message: Any) -> bytes:
    """Return what consumers send each other."""
    return VERSION.pack(1) + b"".join(map(bytes, encoder(type(message), 1)(message)))
