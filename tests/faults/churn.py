"""Members of one group that join, leave, freeze and die: python -m tests.faults.churn --seconds 60

In every generation a partition has one owner, whom the leader chose; who has lost it commits for it no more.
"""

import argparse
import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.offset_fetch import OffsetFetchRequest
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pqbroker.testing import broker
from tests.broker.wire import Client

MEMBERS = 50
PARTITIONS = 64
GROUP = TOPIC = "churn"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
_SESSION_MS, _REBALANCE_MS = 1_000, 3_000
_HEARTBEAT_S, _FROZEN_S, _FATE_MAX_S = 0.15, 2.0, 0.4
_STATIC_EVERY = 5
_SETTLED_S = 60.0
FATES = ("leave", "die", "die", "freeze")
FEWEST_GENERATIONS = 3
_JOIN_AGAIN = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
}  # fmt: skip
"""Answers of the group after which a member joins again; any other is a failure."""


@dataclass(slots=True)
class Book:
    """Observations of all members. Owners are static members' instances, and else member ids."""

    chosen: dict[int, dict[int, str]] = field(default_factory=dict)
    """The owner of each partition in each generation, as its leader chose."""
    owners: dict[int, dict[int, str]] = field(default_factory=dict)
    """The same as owners were told."""
    committed: dict[int, int] = field(default_factory=dict)
    """The latest generation in which an offset of each partition was committed."""
    events: Counter[str] = field(default_factory=Counter)

    def choose(self, generation: int, owners: dict[int, str]) -> None:
        assert generation not in self.chosen, f"generation {generation} has two leaders"
        self.chosen[generation] = owners

    def own(self, generation: int, owner: str, partitions: list[int]) -> None:
        owners = self.owners.setdefault(generation, {})
        for partition in partitions:
            earlier = owners.setdefault(partition, owner)
            assert earlier == owner, f"generation {generation}: partition {partition} is {earlier}'s and {owner}'s"
            assert self.chosen[generation][partition] == owner

    @property
    def is_worth(self) -> bool:
        """True if enough has happened for a run to mean something."""
        return len(self.owners) >= FEWEST_GENERATIONS and len(self.events) == len(set(FATES)) and bool(self.committed)

    def commit(self, partition: int, generation: int, known: int) -> None:
        """`known`: the latest generation that had committed for the partition when this commit was sent."""
        assert generation >= known, f"generation {generation} committed for partition {partition} after {known}"
        self.committed[partition] = max(self.committed.get(partition, 0), generation)


class Member:
    """One process of the group; `live` is its life, which ends when it is cancelled."""

    def __init__(self, address: str, book: Book, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.freezes = False
        self._host, _, self._port = address.rpartition(":")
        self._book = book

    async def live(self) -> None:
        client = await Client.connect(self._host, int(self._port))
        try:
            while True:
                if await self._join(client):
                    await self._stay(client)
        finally:
            client.abort()

    async def _join(self, client: Client) -> bool:
        """Join and sync; False when it has to be tried again."""
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=_SESSION_MS, rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id, group_instance_id=self.instance, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="here", metadata=b"")],
        )  # fmt: skip
        joined: JoinGroupResponse = await client.ask(request)
        if joined.error_code:
            self.member_id = joined.member_id
            return self._obey(joined.error_code)
        self.member_id, generation = joined.member_id, joined.generation_id
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        choice = SyncGroupRequest(
            group_id=GROUP, generation_id=generation, member_id=self.member_id, group_instance_id=self.instance,
            protocol_type="consumer", protocol_name="here", assignments=self._assign(joined) if is_leader else [],
        )  # fmt: skip
        synced = await client.ask(choice)
        if synced.error_code:
            return self._obey(synced.error_code)
        self.owned = list(synced.assignment)
        self.generation = generation
        self._book.own(generation, self.instance or self.member_id, self.owned)
        return True

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = joined.members
        owners = {partition: members[partition % len(members)] for partition in range(PARTITIONS)}
        self._book.choose(
            joined.generation_id,
            {partition: owner.group_instance_id or owner.member_id for partition, owner in owners.items()},
        )
        return [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=bytes(partition for partition, owner in owners.items() if owner is member),
            )
            for member in members
        ]

    async def _stay(self, client: Client) -> None:
        """Commit and send heartbeats until the member has to join again."""
        while True:
            await asyncio.sleep(_FROZEN_S if self.freezes else _HEARTBEAT_S)
            self.freezes = False
            for ask in (self._commit, self._beat):
                if error := await ask(client):
                    self._obey(error)
                    return

    async def _beat(self, client: Client) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance
        )
        code: int = (await client.ask(request)).error_code
        return code

    async def _commit(self, client: Client) -> int:
        """Commit the generation as the offset of all that it owns."""
        if not self.owned:
            return 0
        known = {partition: self._book.committed.get(partition, 0) for partition in self.owned}
        states = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=self.generation, committed_metadata="")
            for index in self.owned
        ]
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=self.generation, member_id=self.member_id,
            group_instance_id=self.instance, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=states)],
        )  # fmt: skip
        answers = (await client.ask(request, 9)).topics[0].partitions
        codes = {answer.error_code for answer in answers}
        assert len(codes) == 1, codes
        if codes == {0}:
            for partition, generation in known.items():
                self._book.commit(partition, self.generation, generation)
        code: int = codes.pop()
        return code

    def _obey(self, code: int) -> bool:
        assert code in _JOIN_AGAIN, code
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation, self.owned = -1, []
        return False


class Crowd:
    """The members, and what befalls them."""

    def __init__(self, address: str, tasks: asyncio.TaskGroup, source: random.Random) -> None:
        self.book = Book()
        self._address = address
        self._tasks = tasks
        self._source = source
        self._lives: dict[Member, asyncio.Task[None]] = {}
        for number in range(MEMBERS):
            self._start(f"static-{number}" if number % _STATIC_EVERY == 0 else None)

    async def suffer(self, admin: Client, seconds: float) -> None:
        """Somebody leaves, dies or freezes every now and then; who is gone is replaced at once. It lasts longer where
        a slow machine has not shown all of that by then."""
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline or not self.book.is_worth:
            await asyncio.sleep(self._source.uniform(0, _FATE_MAX_S))
            member = self._source.choice(list(self._lives))
            fate = self._source.choice(FATES)
            if fate == "freeze":
                member.freezes = True
            elif fate == "die" or member.instance is not None:  # a static member says nothing when it goes
                self._replace(member)
            else:
                leaver = MemberIdentity(member_id=member.member_id)
                self._replace(member)
                await admin.ask(LeaveGroupRequest(group_id=GROUP, members=[leaver]))
            self.book.events[fate] += 1

    async def settle(self, admin: Client) -> None:
        """Wait until all have what the broker says that they have, and see that this is everything, once."""
        async with asyncio.timeout(_SETTLED_S):
            while not self._agrees(await _describe(admin)):  # noqa: ASYNC110 (the broker tells nobody of its state)
                await asyncio.sleep(_HEARTBEAT_S)
        assert sorted(index for member in self._lives for index in member.owned) == list(range(PARTITIONS))
        offsets = (await admin.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 7)).topics[0].partitions
        found = {told.partition_index: told.committed_offset for told in offsets}
        assert found.keys() >= self.book.committed.keys()
        for partition, generation in self.book.committed.items():
            assert generation <= found[partition] <= max(self.book.owners), f"partition {partition}"

    def end(self) -> None:
        for life in self._lives.values():
            life.cancel()

    def _start(self, instance: str | None) -> None:
        member = Member(self._address, self.book, instance)
        self._lives[member] = self._tasks.create_task(member.live())

    def _replace(self, member: Member) -> None:
        self._lives.pop(member).cancel()
        self._start(member.instance)

    def _agrees(self, group: DescribedGroup) -> bool:
        told = {member.member_id: bytes(member.member_assignment) for member in group.members}
        known = {member.member_id: bytes(member.owned) for member in self._lives}
        generations = {member.generation for member in self._lives}
        return group.group_state == "Stable" and told == known and len(generations) == 1


async def run(address: str, *, seconds: float, seed: int) -> Book:
    """Let the group suffer, then settle. AssertionError, in a group, when it breaks what the module promises."""
    host, _, port = address.rpartition(":")
    admin = await Client.connect(host, int(port))
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    assert (await admin.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0
    async with asyncio.TaskGroup() as tasks:
        crowd = Crowd(address, tasks, random.Random(seed))
        await crowd.suffer(admin, seconds)
        await crowd.settle(admin)
        crowd.end()
    await admin.close()
    return crowd.book


async def _describe(admin: Client) -> DescribedGroup:
    group: DescribedGroup = (await admin.ask(DescribeGroupsRequest(groups=[GROUP]))).groups[0]
    return group


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=options.seconds, seed=options.seed))
    print(f"{MEMBERS} members, {dict(book.events)}")
    print(f"{len(book.owners)} generations with an assignment, in each every partition has one owner")


if __name__ == "__main__":
    main()
