"""Members of a consumer group over several nodes, and what they were promised.

owner    in each epoch a partition is at most one member's
offsets  what a member committed stays the group's offset until a later commit; what comes late from an earlier owner
         is refused
end      once all is well, every partition is somebody's

Members die, sleep for longer than their session, and leave; then they join again as others. In half of the runs some of
them speak the classic protocol, so that the group moves from protocol to protocol.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from tests.simulation.ledger import CommitBook, expect
from tests.simulation.nodes.client import BACK_OFF_S, GROUP, METADATA, NodesClient
from tests.simulation.nodes.memberships import SESSION_S, ClassicMembership, Membership, ModernMembership, Topic
from tests.simulation.nodes.table_story import Run

GROUP_ID: Final = "members"
MEMBERS: Final = 3
OFFSET_COMMIT, OFFSET_FETCH = 9, 8
"""Versions that are used."""
SETTINGS: Final = {
    "group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "4000",
    "group.min.session.timeout.ms": "1000",
}  # fmt: skip
BEAT_S: Final = 0.4
DIES, SLEEPS, LEAVES = 0.02, 0.02, 0.02
COMMITS: Final = 0.5
TRIES: Final = 400
CLASSIC_SHARES: Final = (0.0, 0.4)
"""Shares of the members' lives that are classic: a run has one of them."""
_REFUSED: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
)  # fmt: skip
"""Codes of a commit that was not made."""


@dataclass(slots=True)
class MembersBook:
    """A book of what was promised to the group."""

    offsets: list[CommitBook]
    """Books of the committed offsets, by partition."""
    begins_anew: bool
    """True where epochs may begin at 1 again: a group without members that moves to the other protocol is a new one."""
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Members by epoch and partition."""
    latest: dict[int, tuple[int, str]] = field(default_factory=dict)
    """The latest epoch and its member, by partition."""
    holding: dict[str, Sequence[int]] = field(default_factory=dict)
    """Partitions by member, of those that live."""

    def owns(self, epoch: int, member: str, partitions: Sequence[int], *, is_new: bool) -> None:
        """A member was given these partitions; `is_new`: its first ones."""
        latest = max((self.latest.get(index, (0, ""))[0] for index in partitions), default=0)
        if is_new and self.begins_anew and epoch <= latest:
            self.owners.clear()
            self.latest.clear()
        for index in partitions:
            owner = self.owners.setdefault((epoch, index), member)
            expect(owner == member, f"partition {index} is {owner}'s and {member}'s in epoch {epoch}")
            self.latest[index] = max(self.latest.get(index, (0, "")), (epoch, member))

    def is_over(self, epoch: int, member: str, index: int) -> bool:
        """Return True if another member is known to have a partition since a later epoch."""
        since, owner = self.latest.get(index, (0, ""))
        return since > epoch and owner != member


class MembersStory:
    """Lives the lives of all members. `client`, `chance`: those of a name."""

    def __init__(
        self, topic: str, partitions: int, client: Callable[[str], NodesClient], chance: Callable[[str], Random],
        counts: Counter[str],
    ) -> None:  # fmt: skip
        self.topic = topic
        self.counts = counts
        self.classic_share = chance("classic members").choice(CLASSIC_SHARES)
        self.book = MembersBook([CommitBook() for _ in range(partitions)], begins_anew=self.classic_share > 0)
        self.is_over = False
        """True once the run ends, and every partition was somebody's."""
        self._client = client
        self._chance = chance

    async def run(self, run: Run) -> None:
        """Live until it is over."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(MEMBERS):
                name = f"member {number}"
                member = _Member(self, number, self._client(name), self._chance(name))
                tasks.create_task(member.run(run))

    @property
    def is_whole(self) -> bool:
        """Return True if every partition is somebody's."""
        held = [index for partitions in self.book.holding.values() for index in partitions]
        return sorted(held) == list(range(len(self.book.offsets)))

    async def verify(self) -> None:
        """Compare the offsets with what was promised. Nobody commits, and all nodes serve."""
        client = self._client("verify members")
        for _ in range(TRIES):
            found = await self.offsets(client)
            if len(found) == len(self.book.offsets):
                break
            await asyncio.sleep(BACK_OFF_S)
        else:
            raise AssertionError("offsets of members are not known though nothing stands in the way")
        for index, state in found.items():
            book = self.book.offsets[index]
            is_right = state == book.certain or state in book.maybe
            expect(is_right, f"members have {state} at partition {index}; committed was {book.certain}")
            book.durable(state)

    async def offsets(self, client: NodesClient) -> dict[int, ConsumerOffset | None]:
        """Return the offsets that the coordinator gives, by partition."""
        topic = OffsetFetchRequestTopic(name=self.topic, partition_indexes=list(range(len(self.book.offsets))))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP_ID, topics=[topic])])
        told = await client.ask_coordinator(GROUP, GROUP_ID, request, OFFSET_FETCH)
        if told is None or told.groups[0].error_code:
            return {}
        return {
            each.partition_index: None if each.committed_offset < 0
            else ConsumerOffset(each.committed_offset, metadata=each.metadata or "")
            for each in told.groups[0].topics[0].partitions if not each.error_code
        }  # fmt: skip


class _Member:
    """One process that is started again whenever it dies."""

    _membership: Membership

    def __init__(self, story: MembersStory, number: int, client: NodesClient, chance: Random) -> None:
        self._story = story
        self._number = number
        self._client = client
        self._chance = chance
        self._lives = 0
        self._name = ""
        self._topic: Topic | None = None
        self._given: Sequence[int] = ()
        self._positions: dict[int, int] = {}
        """Positions of the partitions that it holds."""
        self._commits = 0

    async def run(self, run: Run) -> None:
        story = self._story
        self._topic = await self._found_topic()
        self._begin()
        while not story.is_over:
            await asyncio.sleep(BEAT_S * 2 * self._chance.random())
            chance = self._chance.random()
            if run.is_ending:
                chance = 1.0
            if chance < DIES:
                self._begin()
            elif chance < DIES + SLEEPS:
                await asyncio.sleep(2 * SESSION_S * self._chance.random())
            elif chance < DIES + SLEEPS + LEAVES:
                await self._leave()
            for index in list(self._positions):
                await self._read(index)
            if self._chance.random() < COMMITS:
                await self._commit(self._positions)
            await self._beat()
            story.is_over = story.is_over or (run.is_ending and story.is_whole)

    async def _found_topic(self) -> Topic:
        name, count = self._story.topic, len(self._story.book.offsets)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while True:
            told = await self._client.ask_any(request, METADATA + 1)
            if told is not None and not told.topics[0].error_code:
                return Topic(name, told.topics[0].topic_id, count)
            await asyncio.sleep(BACK_OFF_S)

    def _begin(self) -> None:
        """Be another member, which has not joined yet."""
        assert self._topic is not None
        self._story.book.holding.pop(self._name, None)
        self._lives += 1
        self._name, self._given, self._positions = f"{self._number}-{self._lives}", (), {}
        if self._chance.random() < self._story.classic_share:
            self._membership = ClassicMembership(self._client, GROUP_ID, self._topic)
        else:
            self._membership = ModernMembership(self._client, GROUP_ID, self._topic, self._name)

    async def _beat(self) -> None:
        told = await self._membership.beat(sorted(self._positions))
        if told.is_ended:
            self._begin()
            return
        if told.given is not None:
            self._given = told.given
        if told.given is not None or set(self._given) - self._positions.keys():
            await self._take(self._given)

    async def _take(self, given: Sequence[int]) -> None:
        """Let go of partitions that are another one's now, and begin with others where their last owner stopped."""
        story, name = self._story, self._name
        story.book.owns(self._membership.epoch, name, given, is_new=self._name not in story.book.holding)
        gone = [index for index in self._positions if index not in given]
        if gone:
            await self._commit({index: self._positions[index] for index in gone})
            for index in gone:
                self._positions.pop(index, None)
        for index in given:
            if index not in self._positions and self._name == name:
                await self._take_one(index)
        if self._name == name:
            story.book.holding[name] = sorted(self._positions)
            story.counts["takes"] += 1

    async def _take_one(self, index: int) -> None:
        """Begin with a partition where its last owner stopped; not yet, if nobody says where."""
        book = self._story.book.offsets[index]
        may_be, asked = [book.certain, *book.maybe], len(book.history)
        found = await self._story.offsets(self._client)
        if index not in found:
            return
        state = found[index]
        is_right = state in may_be or state in book.history[asked:]
        expect(is_right, f"{self._name} was told {state} for partition {index}; committed were {may_be}")
        self._positions[index] = 0 if state is None else state.offset

    async def _read(self, index: int) -> None:
        found = await self._client.read((self._story.topic, index), self._positions[index])
        if found is not None:
            self._positions[index] = found[1]

    async def _commit(self, positions: Mapping[int, int]) -> None:
        story, states = self._story, dict[int, ConsumerOffset]()
        for index, offset in positions.items():
            self._commits += 1
            states[index] = ConsumerOffset(offset, metadata=f"{self._name} {self._commits}")
            story.book.offsets[index].asked(states[index])
        if not states:
            return
        membership = self._membership
        over = [index for index in states if story.book.is_over(membership.epoch, self._name, index)]
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=state.offset, committed_metadata=state.metadata
            )
            for index, state in states.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP_ID, generation_id_or_member_epoch=membership.epoch, member_id=membership.member_id,
            topics=[OffsetCommitRequestTopic(name=story.topic, partitions=partitions)],
        )  # fmt: skip
        told = await self._client.ask_coordinator(GROUP, GROUP_ID, request, OFFSET_COMMIT)
        for each in [] if told is None else told.topics[0].partitions:
            book, state = story.book.offsets[each.partition_index], states[each.partition_index]
            if not each.error_code:
                expect(each.partition_index not in over, f"{self._name} commits {state}, which is another one's by now")
                book.durable(state)
                story.counts["commits of members"] += 1
            elif each.error_code in _REFUSED:
                book.refused(state)

    async def _leave(self) -> None:
        await self._membership.leave()
        self._begin()
