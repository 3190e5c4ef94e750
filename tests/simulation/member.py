"""A member of a consumer group, as Kafka's clients are: joins, shares, reads, commits; sleeps too long and dies."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pqbroker.broker.services.coordination.classic.messages import Join, Joined, Leaver, Sync, Synced
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.pq.rig import read, values_of
from tests.simulation.compacted_story import COMPACTED
from tests.simulation.ledger import Value, expect
from tests.simulation.producing_story import DROPPED, PRODUCED
from tests.simulation.transaction_story import LOG
from tests.simulation.world import TABLE, World

A = TypeVar("A")
SESSION_MS = 6_000
REBALANCE_MS = 3_000
BACK_OFF_S = 0.2
ANSWER_S = 10.0
DIES = 0.02
SLEEPS = 0.03
START_AGAIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
LATER = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
}


class SimulatedMember:
    """One process that is started again whenever it dies."""

    def __init__(self, world: World, group: str, number: int) -> None:
        self._world = world
        self._chance = world.chance(f"member {group} {number}")
        self._group = group
        self._name = f"{group}.{number}"
        self._book = world.groups[group]
        self._lives = 0
        self._member_id = ""
        self._generation = -1
        self._positions: dict[TopicPartition, int] = {}
        self._commits = 0

    async def run(self) -> None:
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.random())
            if not self._world.node.is_up:
                continue
            try:
                if await self._join():
                    await self._consume()
            except KafkaError as error:
                expect(error.code in START_AGAIN | LATER, f"{self._name} is refused: {error!r}")
                self._world.note(f"{self._name}: {error.code.name}")
                if error.code in START_AGAIN:
                    self._member_id = ""
                await asyncio.sleep(BACK_OFF_S)
        if self._world.node.is_up and self._member_id:
            self._leave()

    async def _join(self) -> bool:
        """Be a member of the next generation and know the own share; False: try again."""
        self._lives += 1
        waited: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        request = Join(
            self._member_id, None, "consumer", (MemberProtocol("range", b""),), SESSION_MS, REBALANCE_MS,
            new_member_id=f"{self._name}.{self._lives}",
        )  # fmt: skip
        self._world.node.node.cell.current.coordinators.join(self._group, request, lambda answer: _tell(waited, answer))
        joined = await _in_time(waited)
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return False
        _check(joined.error)
        self._member_id, self._generation = joined.member_id, joined.generation
        shares = self._share(joined) if joined.leader == joined.member_id else None
        synced: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        request_sync = Sync(self._member_id, None, self._generation, assignments=shares)
        coordinators = self._world.node.node.cell.current.coordinators
        coordinators.sync(self._group, request_sync, lambda answer: _tell(synced, answer))
        answer = await _in_time(synced)
        _check(answer.error)
        mine = [(name, index) for name, index in json.loads(answer.assignment or b"[]")]
        self._book.owns(self._generation, self._member_id, mine)
        self._world.note(f"{self._name} is {self._member_id} in {self._generation}: {mine}")
        await self._find_positions(mine)
        return True

    def _share(self, joined: Joined) -> dict[str, bytes]:
        """Everything that there is, dealt out."""
        groups = self._world.node.node.cell.current.topics
        names = sorted(name for name in groups.names() if name not in (TABLE, LOG, COMPACTED, PRODUCED, DROPPED))
        found = [(name, server.index) for name in names for server in _servers(groups.get(name))]
        members = sorted(member.member_id for member in joined.members)
        return {
            member: json.dumps(found[number :: len(members)]).encode() for number, member in enumerate(members)
        }

    async def _find_positions(self, mine: Sequence[TopicPartition]) -> None:
        groups = self._world.node.node.cell.current.topics
        await groups.offsets.settled(self._group)
        committed = groups.offsets.of(self._group)
        for place, state in committed.items():
            self._book.found(place, state)
        for place in self._book.commits:
            if place not in committed and self._world.is_served(place):
                self._book.found(place, None)
        self._positions = {place: committed[place].offset if place in committed else -1 for place in mine}

    async def _consume(self) -> None:
        """Read, commit and beat until something ends it. KafkaError."""
        while not self._world.is_ending:
            chance = self._chance.random()
            if chance < DIES:
                self._world.note(f"{self._name} dies")
                self._member_id = ""
                return
            if chance < DIES + SLEEPS:
                await asyncio.sleep(SESSION_MS / 1000 * 2 * self._chance.random())
            await asyncio.sleep(self._chance.expovariate(2))
            for place in list(self._positions):
                await self._read(place)
            if self._chance.random() < 0.6:
                await self._commit()
            if not self._world.node.is_up:
                return
            coordinators = self._world.node.node.cell.current.coordinators
            coordinators.heartbeat(self._group, self._member_id, None, self._generation)

    async def _read(self, place: TopicPartition) -> None:
        node = self._world.node
        topic = node.node.cell.current.topics.get(place[0]) if node.is_up else None
        if topic is None or place[1] >= len(topic.partitions):
            return
        server = topic.partitions[place[1]]
        book = self._world.book(topic.record).partition(place[1])
        position = max(self._positions[place], server.start_offset)
        try:
            pieces = await read(server, position, self._chance.choice((1, 2_000, 50_000)))
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[place] = -1
            else:
                expect(error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{book.name} cannot be read: {error!r}")
            return
        found = [(offset, Value.of(value)) for offset, value in values_of(pieces, position)]
        book.read(position, found)
        self._positions[place] = position + len(found)

    async def _commit(self) -> None:
        """Commit as the handler does: who commits is checked, and the offsets enqueued, in one step."""
        node = self._world.node
        if not node.is_up:
            return
        offsets = dict(self._states())
        current = node.node.cell.current
        has_offsets = current.topics.offsets.has
        current.coordinators.check_commit(self._group, self._member_id, None, self._generation, has_offsets=has_offsets)
        self._book.accepted(self._generation)
        for place, state in offsets.items():
            self._book.book(place).asked(state)
        outcomes = await node.node.cell.current.topics.offsets.commit(self._group, offsets)
        for place, state in offsets.items():
            error = outcomes[place]
            if error is None:
                self._book.book(place).durable(state)
                self._world.note(f"{self._name} committed {state.offset} at {place}")
            elif error.code is not ErrorCode.NOT_COORDINATOR:
                self._book.book(place).refused(state)

    def _states(self) -> Iterable[tuple[TopicPartition, ConsumerOffset]]:
        for place, position in self._positions.items():
            if position >= 0:
                self._commits += 1
                yield place, ConsumerOffset(position, -1, f"{self._name} {self._commits}", self._world.node.clock())

    def _leave(self) -> None:
        try:
            self._world.node.node.cell.current.coordinators.leave(self._group, [Leaver(self._member_id, None)])
        except KafkaError as error:
            expect(error.code in LATER, f"{self._name} cannot leave: {error!r}")


def _servers(topic: Topic | None) -> Sequence[PartitionServer]:
    return topic.partitions if topic is not None else ()


def _tell(waited: "asyncio.Future[A]", answer: A) -> None:
    if not waited.done():
        waited.set_result(answer)


async def _in_time(waited: "asyncio.Future[A]") -> A:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await waited
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer") from None


def _check(error: ErrorCode) -> None:
    if error:
        raise KafkaError(error, error.name)
