"""Members of one group of the consumer protocol that join, leave, freeze and die, while records are written and read:
python -m tests.faults.consumer_churn --seconds 120

In every epoch a partition has one owner. Each record is read; twice only if its first reader was killed, froze or was
fenced before it could commit. Who has lost a partition commits for it no more.
"""

import argparse
import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pqbroker.protocol.records import batches
from pqbroker.testing import broker
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import Client

MEMBERS: Final = 50
PARTITIONS: Final = 64
SESSION_MS: Final = 3_000
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.assignment.interval.ms": "200",
}  # fmt: skip
_GROUP = _TOPIC = "churn"
_JOINING, _LEAVING, _LEFT_STATIC = 0, -1, -2
_FATE_MAX_S = 0.4
_STATIC_EVERY = 5
_SETTLED_S = 60.0
_WRITTEN_AT_ONCE = 3
_FENCED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}
"""Answers after which a member has lost everything and joins again; anything else is a failure."""


@dataclass(slots=True, eq=False)
class Life:
    """One incarnation of a member, as far as what it has read concerns."""

    may_leave_records: bool = False
    """True if it was killed, froze or was fenced: what it had read and not committed is read again."""


@dataclass(slots=True)
class Book:
    """Observations of all members. Owners are static members' instances, and else member ids."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """The owner by partition and epoch."""
    written: Counter[int] = field(default_factory=Counter)
    committed: Counter[int] = field(default_factory=Counter)
    """Offset up to which a commit was acknowledged."""
    readers: dict[tuple[int, int], Life] = field(default_factory=dict)
    """The last reader by partition and offset."""
    read_again: list[tuple[int, int, Life]] = field(default_factory=list)
    """Partition, offset and first reader of what was read twice. Whether it may be is known when the reader has learned
    that it was fenced."""
    events: Counter[str] = field(default_factory=Counter)

    def own(self, epoch: int, owner: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            earlier = self.owners.setdefault((partition, epoch), owner)
            assert earlier == owner, f"epoch {epoch}: partition {partition} is {earlier}'s and {owner}'s"

    def read(self, life: Life, partition: int, offset: int) -> None:
        assert offset >= self.committed[partition], f"{partition}-{offset} is committed and read again"
        earlier = self.readers.get((partition, offset))
        if earlier is not None:
            self.read_again.append((partition, offset, earlier))
        self.readers[partition, offset] = life

    def open_questions(self) -> list[str]:
        """Return what is not read to its end, and what was read twice though nobody knows why."""
        unread = [f"partition {each} is not read" for each, end in self.written.items() if self.committed[each] < end]
        twice = [
            f"{partition}-{offset} was read twice, though its reader left in peace"
            for partition, offset, life in self.read_again
            if not life.may_leave_records
        ]
        return unread + twice


class Member:
    """One process of the group; `live` is its life, which ends when it is cancelled."""

    def __init__(self, address: str, book: Book, topic_id: bytes, instance: str | None) -> None:
        self.instance = instance
        self.freezes = False
        self.leaves = False
        self._host, _, self._port = address.rpartition(":")
        self._book = book
        self._topic_id = topic_id
        self._forget()

    def _forget(self) -> None:
        self.life = Life()
        self._member_id = str(uuid.uuid4())
        self._epoch = _JOINING
        self._positions: dict[int, int] = {}
        self._interval_s = 0.1

    async def live(self) -> None:
        client = await Client.connect(self._host, int(self._port))
        try:
            while not self.leaves:
                code = await self._turn(client)
                if code in _FENCED:
                    self.life.may_leave_records = True
                    self._forget()
            if self._epoch != _JOINING:
                await self._leave(client)
        except asyncio.CancelledError:
            self.life.may_leave_records = True
            raise
        finally:
            client.abort()

    async def _leave(self, client: Client) -> None:
        """Commit, and leave in peace: a static member will come back."""
        if await self._commit(client, self._positions) in _FENCED:
            self.life.may_leave_records = True
            return
        request = self._beat_request(epoch=_LEAVING if self.instance is None else _LEFT_STATIC)
        left = (await client.ask(request, 1)).error_code
        assert left in {ErrorCode.NONE, *_FENCED}, left

    async def _turn(self, client: Client) -> ErrorCode:
        """Beat, let go, take, commit what was read in the turn before, read, wait."""
        joins = self._epoch == _JOINING
        fields: dict[str, Any] = {"topic_partitions": self._owned()}
        if joins:
            fields = {"topic_partitions": [], "subscribed_topic_names": [_TOPIC], "rebalance_timeout_ms": 10_000}
        answer = await client.ask(self._beat_request(self._epoch, **fields), 1)
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            await asyncio.sleep(0.1)  # until the session of the one before has ended
            return ErrorCode.NONE
        if answer.error_code:
            assert answer.error_code in _FENCED, (answer.error_code, answer.error_message)
            return ErrorCode(answer.error_code)
        code = await self._follow(client, answer)
        code = code or await self._commit(client, self._positions)
        if not code:
            await self._read(client)
        if code or not self.freezes:
            await asyncio.sleep(self._interval_s)
            return code
        await asyncio.sleep(2 * SESSION_MS / 1000)
        self.freezes = False
        code = await self._commit(client, self._positions)
        assert code in _FENCED or not self._positions, f"{code}: one that overslept its session has committed"
        return code

    async def _follow(self, client: Client, answer: ConsumerGroupHeartbeatResponse) -> ErrorCode:
        """Commit what is to be let go, and begin with what is new at its committed offset."""
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            assigned = {index for each in answer.assignment.topic_partitions for index in each.partitions}
            lost = {index: position for index, position in self._positions.items() if index not in assigned}
            code = await self._commit(client, lost)
            if code:
                return code
            for index in lost:
                del self._positions[index]
            self._epoch = answer.member_epoch
            code = await self._begin(client, sorted(assigned - self._positions.keys()))
            if code:
                return code
        self._epoch = answer.member_epoch
        self._book.own(self._epoch, self.instance or self._member_id, self._positions)
        return ErrorCode.NONE

    async def _begin(self, client: Client, partitions: list[int]) -> ErrorCode:
        if not partitions:
            return ErrorCode.NONE
        topics = [OffsetFetchRequestTopic(topic_id=self._topic_id, partition_indexes=partitions)]
        group = OffsetFetchRequestGroup(
            group_id=_GROUP, member_id=self._member_id, member_epoch=self._epoch, topics=topics
        )
        (found,) = (await client.ask(OffsetFetchRequest(groups=[group]), 10)).groups
        if found.error_code:
            assert found.error_code in _FENCED | {ErrorCode.STALE_MEMBER_EPOCH}, found.error_code
            return ErrorCode.UNKNOWN_MEMBER_ID
        for each in found.topics[0].partitions:
            self._positions[each.partition_index] = max(0, each.committed_offset)
        return ErrorCode.NONE

    async def _read(self, client: Client) -> None:
        if not self._positions:
            return
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in self._positions.items()
        ]
        topic = FetchTopic(topic_id=self._topic_id, partitions=wanted)
        fetched = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 22, topics=[topic]), 13)
        for data in fetched.responses[0].partitions if fetched.responses else ():
            assert data.error_code == ErrorCode.NONE, data.error_code
            self._take(data.partition_index, bytes(data.records or b""))

    def _take(self, partition: int, records: bytes) -> None:
        for _, header in batches(memoryview(records)):
            end = header.base_offset + header.last_offset_delta + 1
            for offset in range(max(header.base_offset, self._positions[partition]), end):
                self._book.read(self.life, partition, offset)
                self._positions[partition] = offset + 1

    async def _commit(self, client: Client, positions: dict[int, int]) -> ErrorCode:
        """Commit; a member that is told of a newer epoch first beats, and its commit is tried again then."""
        if not positions:
            return ErrorCode.NONE
        asked = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=position)
            for index, position in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=_GROUP, generation_id_or_member_epoch=self._epoch, member_id=self._member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(topic_id=self._topic_id, partitions=asked)],
        )  # fmt: skip
        codes = {each.error_code for each in (await client.ask(request, 10)).topics[0].partitions}
        assert len(codes) == 1, codes
        code = ErrorCode(codes.pop())
        assert code in {ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, *_FENCED}, code
        if code == ErrorCode.NONE:
            for partition, position in positions.items():
                self._book.committed[partition] = max(self._book.committed[partition], position)
        return ErrorCode.UNKNOWN_MEMBER_ID if code == ErrorCode.STALE_MEMBER_EPOCH else code

    def _beat_request(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=_GROUP, member_id=self._member_id, member_epoch=epoch, instance_id=self.instance, **fields
        )

    def _owned(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._positions))] if self._positions else []


class Crowd:
    """The members, and what befalls them."""

    def __init__(self, address: str, topic_id: bytes, tasks: asyncio.TaskGroup, source: random.Random) -> None:
        self.book = Book()
        self._address = address
        self._topic_id = topic_id
        self._tasks = tasks
        self._source = source
        self._lives: dict[Member, asyncio.Task[None]] = {}

    def start(self, instance: str | None) -> None:
        member = Member(self._address, self.book, self._topic_id, instance)
        self._lives[member] = self._tasks.create_task(member.live())

    async def suffer(self, seconds: float) -> None:
        """Somebody leaves, dies or freezes every now and then; who is gone is replaced at once."""
        for number in range(MEMBERS):
            self.start(f"static-{number}" if number % _STATIC_EVERY == 0 else None)
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(self._source.uniform(0, _FATE_MAX_S))
            member = self._source.choice(list(self._lives))
            fate = self._source.choice(("leave", "leave", "die", "freeze"))
            self.book.events[fate] += 1
            if fate == "freeze":
                member.freezes = True
                continue
            life = self._lives.pop(member)
            if fate == "leave":
                member.leaves = True
            else:
                life.cancel()
            await asyncio.wait([life])
            self.start(member.instance)

    def end(self) -> None:
        for life in self._lives.values():
            life.cancel()


async def run(address: str, *, seconds: float, seed: int) -> Book:
    """Let members come and go, and see that all that was written is read in the end."""
    host, _, port = address.rpartition(":")
    admin = await Client.connect(host, int(port))
    created = await admin.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name=_TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    )
    source = random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        crowd = Crowd(address, created.topics[0].topic_id, tasks, source)
        is_over = asyncio.Event()
        writer = tasks.create_task(_write(await Client.connect(host, int(port)), crowd.book, source, is_over))
        await crowd.suffer(seconds)
        is_over.set()
        await writer
        deadline = asyncio.get_running_loop().time() + _SETTLED_S
        while crowd.book.open_questions():
            assert asyncio.get_running_loop().time() < deadline, crowd.book.open_questions()[:5]
            await asyncio.sleep(0.1)
        crowd.end()
    await admin.close()
    read = Counter(partition for partition, _ in crowd.book.readers)
    assert read == +crowd.book.written, "a record was never read"
    return crowd.book


async def _write(client: Client, book: Book, source: random.Random, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        partition = source.randrange(PARTITIONS)
        batch = make_batch(*[b"v"] * _WRITTEN_AT_ONCE)
        book.written[partition] += _WRITTEN_AT_ONCE
        answer = await client.ask(produce_request(_TOPIC, batch, partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await asyncio.sleep(0.005)
    await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.consumer_churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=given.seconds, seed=given.seed))
    epochs = len({epoch for _, epoch in book.owners})
    print(f"{book.written.total()} records, {epochs} epochs, {dict(book.events)}, {len(book.read_again)} read again")


if __name__ == "__main__":
    main()
