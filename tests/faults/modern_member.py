"""A member of a group that speaks KIP-848's protocol, on the wire."""

import asyncio
import uuid
from typing import Any, Final

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.broker.wire import Client
from tests.faults.group_readers import GROUP, TOPIC, Reader

_JOINING, _LEAVING, _LEFT_STATIC = 0, -1, -2
_FENCED: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}  # fmt: skip
"""Answers after which a member has lost everything and joins again; anything else is a failure. The last one: its
session was over, and the group has become a classic one."""


class ModernMember:
    """One process of the group; `live` is its life, which ends when it is cancelled."""

    protocol: Final = "consumer"

    def __init__(self, address: str, reader: Reader, topic_id: bytes, session_ms: int) -> None:
        self.reader = reader
        self.freezes = False
        self.leaves = False
        self._host, _, self._port = address.rpartition(":")
        self._topic_id = topic_id
        self._frozen_s = 2 * session_ms / 1000
        self._forget()

    def _forget(self) -> None:
        self.reader.begin_life(str(uuid.uuid4()), _JOINING)
        self._interval_s = 0.1

    async def live(self) -> None:
        client = await Client.connect(self._host, int(self._port))
        try:
            while not self.leaves:
                if not await self._turn(client):
                    self.reader.life.may_leave_records = True
                    self._forget()
            if self.reader.epoch != _JOINING:
                await self._leave(client)
        except asyncio.CancelledError:
            self.reader.life.may_leave_records = True
            raise
        finally:
            client.abort()

    async def _leave(self, client: Client) -> None:
        """Commit, and leave in peace: a static member will come back."""
        if not await self.reader.commit(client, self.reader.positions):
            self.reader.life.may_leave_records = True
            return
        request = self._beat_request(_LEAVING if self.reader.instance is None else _LEFT_STATIC)
        left = (await client.ask(request, 1)).error_code
        assert left in {ErrorCode.NONE, *_FENCED}, left

    async def _turn(self, client: Client) -> bool:
        """Beat, let go, take, commit what was read in the turn before, read, wait; False when the member was fenced."""
        fields: dict[str, Any] = {"topic_partitions": self._owned()}
        if self.reader.epoch == _JOINING:
            fields = {"topic_partitions": [], "subscribed_topic_names": [TOPIC], "rebalance_timeout_ms": 10_000}
        answer = await client.ask(self._beat_request(self.reader.epoch, **fields), 1)
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            await asyncio.sleep(0.1)  # until the session of the one before has ended
            return True
        if answer.error_code:
            assert answer.error_code in _FENCED, (answer.error_code, answer.error_message)
            return False
        is_member = await self._follow(client, answer) and await self.reader.commit(client, self.reader.positions)
        if is_member:
            await self.reader.read(client)
        if not (is_member and self.freezes):
            await asyncio.sleep(self._interval_s)
            return is_member
        await asyncio.sleep(self._frozen_s)
        self.freezes = False
        is_member = await self.reader.commit(client, self.reader.positions)
        assert not (is_member and self.reader.positions), "one that overslept its session has committed"
        return is_member

    async def _follow(self, client: Client, answer: ConsumerGroupHeartbeatResponse) -> bool:
        """Commit what is to be let go, and begin with what is new at its committed offset."""
        reader = self.reader
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            assigned = {index for each in answer.assignment.topic_partitions for index in each.partitions}
            lost = {index: position for index, position in reader.positions.items() if index not in assigned}
            if not await reader.commit(client, lost):
                return False
            for index in lost:
                del reader.positions[index]
            reader.epoch = answer.member_epoch
            if not await reader.begin(client, assigned - reader.positions.keys(), is_fenced=True):
                return False
        reader.epoch = answer.member_epoch
        reader.own()
        return True

    def _beat_request(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        reader = self.reader
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=reader.member_id, member_epoch=epoch, instance_id=reader.instance, **fields
        )

    def _owned(self) -> list[TopicPartitions]:
        positions = self.reader.positions
        return [TopicPartitions(topic_id=self._topic_id, partitions=sorted(positions))] if positions else []
