"""A member of a group that speaks the classic protocol, on the wire: before each rebalance it lets go of everything."""

import asyncio
from typing import Any, Final

from pqbroker.broker.services.coordination.classic.subscriptions import VERSION, read_assignment
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire import Client
from tests.faults.group_readers import GROUP, TOPIC, Reader

_BEAT_S: Final = 0.25
_REBALANCE_MS: Final = 10_000
_PROTOCOL: Final = "range"
_NO_GENERATION: Final = -1
_LOST: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
"""Answers after which a member joins as another one."""
_JOIN_AGAIN: Final = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
"""Answers after which it joins again as the same; anything else is a failure."""


class ClassicMember:
    """One process of the group; `live` is its life, which ends when it is cancelled."""

    protocol: Final = "classic"

    def __init__(self, address: str, reader: Reader, partitions: int, session_ms: int) -> None:
        self.reader = reader
        self.freezes = False
        self.leaves = False
        self._host, _, self._port = address.rpartition(":")
        self._partitions = partitions
        self._session_ms = session_ms
        self.reader.begin_life("", _NO_GENERATION)

    async def live(self) -> None:
        client = await Client.connect(self._host, int(self._port))
        try:
            while not self.leaves:
                if await self._join(client):
                    await self._stay(client)
            await self._leave(client)
        except asyncio.CancelledError:
            self.reader.life.may_leave_records = True
            raise
        finally:
            client.abort()

    async def _leave(self, client: Client) -> None:
        """Leave in peace, with nothing read that is not committed; a static member says nothing."""
        if self.reader.member_id and self.reader.instance is None:
            leaver = MemberIdentity(member_id=self.reader.member_id)
            await client.ask(LeaveGroupRequest(group_id=GROUP, members=[leaver]))

    async def _join(self, client: Client) -> bool:
        """Join, sync, and begin with what it is given; False when it has to be tried again."""
        reader = self.reader
        subscription = _data(ConsumerProtocolSubscription(topics=[TOPIC]))
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=self._session_ms, rebalance_timeout_ms=_REBALANCE_MS,
            member_id=reader.member_id, group_instance_id=reader.instance, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)],
        )  # fmt: skip
        joined: JoinGroupResponse = await client.ask(request)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reader.member_id = joined.member_id
            return False
        if joined.error_code:
            return self._obey(joined.error_code)
        reader.member_id, reader.epoch = joined.member_id, joined.generation_id
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        choice = SyncGroupRequest(
            group_id=GROUP, generation_id=reader.epoch, member_id=reader.member_id, protocol_type="consumer",
            group_instance_id=reader.instance, protocol_name=_PROTOCOL,
            assignments=self._assign(joined) if is_leader else [],
        )  # fmt: skip
        synced = await client.ask(choice)
        if synced.error_code:
            return self._obey(synced.error_code)
        given = read_assignment(_PROTOCOL, synced.assignment) if synced.assignment else []
        assert given is not None, bytes(synced.assignment)
        await reader.begin(client, {index for each in given for index in each.partitions}, is_fenced=False)
        reader.own()
        return True

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        count = len(joined.members)
        assignments = []
        for number, member in enumerate(joined.members):
            given = TopicPartition(topic=TOPIC, partitions=list(range(number, self._partitions, count)))
            share = _data(ConsumerProtocolAssignment(assigned_partitions=[given]))
            assignments.append(SyncGroupRequestAssignment(member_id=member.member_id, assignment=share))
        return assignments

    async def _stay(self, client: Client) -> None:
        """Beat, commit what was read in the turn before, read, wait, until the member has to join again. What it has
        read is committed before."""
        while True:
            code = await self._beat(client)
            if not await self.reader.commit(client, self.reader.positions):
                self.reader.life.may_leave_records = True
                code = code or ErrorCode.ILLEGAL_GENERATION
            if code:
                self._obey(code)
                return
            if self.leaves:
                return
            await self.reader.read(client)
            await asyncio.sleep(2 * self._session_ms / 1000 if self.freezes else _BEAT_S)
            self.freezes = False

    async def _beat(self, client: Client) -> ErrorCode:
        reader = self.reader
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=reader.epoch, member_id=reader.member_id, group_instance_id=reader.instance
        )
        return ErrorCode((await client.ask(request)).error_code)

    def _obey(self, code: ErrorCode) -> bool:
        """Let go of everything, and join again."""
        assert code in _LOST | _JOIN_AGAIN, code
        if code in _LOST:
            self.reader.life.may_leave_records = True
        self.reader.begin_life("" if code in _LOST else self.reader.member_id, _NO_GENERATION)
        return False


def _data(message: Any) -> bytes:
    """Return what consumers send each other."""
    return VERSION.pack(0) + b"".join(map(bytes, encoder(type(message), 0)(message)))
