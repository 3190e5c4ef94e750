"""Commits over partitions of two cells, performed by hand with crashes, losses and restarts between any two steps, and
compared with a naive model: no transaction torn, no row doubled or forgotten, offsets dense, writes in their order."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.transacted_batches import BatchesPart
from pqbroker.pq.transactions.participants import KeyedParticipant
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import START_MS, Node, batch, check_invariants, check_store, read_all
from tests.pq.serving.transacting import DIGEST, TIMEOUT_S, hold, part, send, transaction, turns_pass
from tests.support.depth import some

PARTITIONS = 2
EVENTS = 25
FAILURES = (KafkaError, CommitRefused, ShardLost)


class Place(NamedTuple):
    """A partition of one of the cells."""

    cell: int
    number: int


PLACES = [Place(cell, number) for cell in range(2) for number in range(PARTITIONS)]


class ProcessDied(Exception):
    """The coordinator knows nothing any more."""


@dataclass
class Transacted:
    """A transaction as the naive model has it. `is_committed`: what its client heard; None: nothing."""

    value: bytes
    places: Sequence[Place]
    is_committed: bool | None = None


@dataclass
class Produced:
    """A plain write."""

    place: Place
    value: bytes
    outcome: Outcome[Written]


@dataclass
class World:
    """Two cells, each with a topic of two tablets of a partition each."""

    chance: random.Random
    nodes: list[Node] = field(default_factory=list)
    transactions: dict[TransactionId, Transacted] = field(default_factory=dict)
    produced: list[Produced] = field(default_factory=list)
    timestamp: int = 1 << 62
    number: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a cell is opened again: nothing happens to it meanwhile."""

    async def start(self) -> "World":
        for cell in range(2):
            node = await Node().start()
            if cell:
                await node.topic("other", partitions=9, config={"pq.partitions.per.tablet": "1"})  # takes ids
            config = {"pq.partitions.per.tablet": "1", "pq.low.watermark.bytes": "2048"}
            await node.topic(partitions=PARTITIONS, config=config)
            self.nodes.append(node)
        return self

    def partition(self, place: Place) -> PartitionServer:
        return self.nodes[place.cell].partition(index=place.number)

    def participant(self, place: Place) -> KeyedParticipant:
        topic = self.nodes[place.cell].topics.get("t")
        assert topic is not None
        found = topic.tablets[topic.record.tablets[place.number]].participant(place.number)
        assert found is not None
        return found

    def place_of(self, participant_id: ParticipantId) -> Place:
        (found,) = [place for place in PLACES if self.participant(place).participant_id == participant_id]
        return found

    def produce(self) -> None:
        place, value = self.chance.choice(PLACES), b"w%d" % len(self.produced) + bytes(self.chance.choice((0, 700)))
        self.produced.append(Produced(place, value, self.partition(place).write(*batch(value))))

    async def between(self) -> None:
        """Whatever happens between two steps."""
        await self.opened()
        for _ in range(self.chance.randrange(3)):
            self.produce()
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        node = self.chance.choice(self.nodes)
        if self.opening.locked():
            return
        match self.chance.randrange(24):
            case 0:
                node.engine.faults.refuse_next(after=self.chance.randrange(3))
            case 1:
                node.engine.faults.lose_next(after=self.chance.randrange(2), stored=self.chance.random() < 0.5)
            case 2:
                await self.restart_tablet()
            case 3:
                async with self.opening:
                    node.engine.crash(durable=self.chance.randrange(3))
                    await node.start()
            case 4:
                raise ProcessDied
            case 5:
                await self.reopen()
            case 6:
                await self.finish_again()

    async def restart_tablet(self) -> None:
        place = self.chance.choice(PLACES)
        node = self.nodes[place.cell]
        topic = node.topics.get("t")
        assert topic is not None
        try:
            async with self.opening, asyncio.timeout(TIMEOUT_S):
                await node.host.restart(topic.record.tablets[place.number])
        except (CommitRefused, ShardLost):
            pass

    async def opened(self) -> None:
        """Return when all cells are open, or lost; in this turn each partition is found then."""
        async with self.opening:
            pass

    async def reopen(self) -> None:
        """Open cells that were lost."""
        async with self.opening:
            for node in self.nodes:
                if node.cell.lost.done():
                    await node.restart()

    async def finish_again(self) -> None:
        """Do what is done already."""
        for known, one in self.transactions.items():
            if one.is_committed is not None:
                for place in one.places:
                    await self.opened()
                    participant = self.participant(place)
                    if known not in participant.prepared and participant.is_known:
                        await settled(participant.finish(known, self.timestamp if one.is_committed else None))

    async def commit(self) -> None:
        await self.opened()
        self.number += 1
        known = transaction(self.number)
        places = self.chance.sample(PLACES, self.chance.randrange(1, len(PLACES) + 1))
        one = self.transactions[known] = Transacted(b"t%d" % self.number + bytes(self.chance.choice((0, 900))), places)
        home = places[0]
        head = PreparedHead(known, self.participant(home).participant_id, 0, START_MS)
        beside = [place for place in places if place.cell == home.cell]
        elsewhere = [place for place in places if place.cell != home.cell]
        parts = {place: self.part(place, one, None if place in beside else head) for place in places}
        try:
            await hold(*parts.values())
            await self.between()
            await self.decide(one, head, [parts[place] for place in beside], [parts[place] for place in elsewhere])
        except FAILURES:
            for each in parts.values():
                each.leave()
            await self.opened()
            if self.nodes[home.cell].cell.lost.done():
                await self.reopen()  # which says what is decided
            elif known not in self.participant(home).decisions:
                one.is_committed = False
            for place in elsewhere:
                await self.finish_as_decided(place, known)
            return
        await self.finish(known, home, elsewhere)

    def part(self, place: Place, one: Transacted, head: PreparedHead | None) -> BatchesPart:
        node = self.nodes[place.cell]
        return part(self.partition(place), node.clock, one.value, one.value, prepared=head)

    async def decide(
        self, one: Transacted, head: PreparedHead, beside: Sequence[BatchesPart], elsewhere: Sequence[BatchesPart]
    ) -> None:
        for each in elsewhere:
            check(each)
        if elsewhere:
            await send(elsewhere, None)
            await self.between()
        for each in beside:
            check(each)
        self.timestamp += 1
        others = tuple(each.participant.participant_id for each in elsewhere)
        decided = CommitDecision(head.transaction, self.timestamp, START_MS, DIGEST, len(one.places), others)
        await send(beside, self.timestamp, (beside[0].participant, decided))
        one.is_committed = True

    async def finish(self, known: TransactionId, home: Place, elsewhere: Sequence[Place]) -> None:
        await self.between()
        timestamp = self.timestamp
        errors = []
        for place in elsewhere:
            await self.opened()
            errors.append(await settled(self.participant(place).finish(known, timestamp)))
        await self.between()
        if not any(errors):
            await self.end(home, known)

    async def end(self, home: Place, known: TransactionId) -> None:
        """Nobody needs the decision any more."""
        await self.opened()
        participant = self.participant(home)
        if known in participant.decisions:
            decided = participant.decisions[known].finished
            if await settled(participant.kv.execute([participant.decision_command(decided)])) is None:
                participant.take_decision(decided)

    async def finish_as_decided(self, place: Place, known: TransactionId) -> None:
        """Do what the home of prepared rows says."""
        await self.opened()
        participant = self.participant(place)
        head = participant.prepared.get(known)
        if head is not None:
            decided = self.participant(self.place_of(head.home)).decisions.get(known)
            await settled(participant.finish(known, None if decided is None else decided.timestamp))

    async def resolve(self) -> None:
        """Finish what is in doubt, as after a start."""
        for node in self.nodes:
            node.engine.faults.clear()
        await self.reopen()
        for place in self.chance.sample(PLACES, len(PLACES)):
            for known in list(self.participant(place).prepared):
                await self.finish_as_decided(place, known)
                assert known not in self.participant(place).prepared
        for place in PLACES:
            for known, decided in list(self.participant(place).decisions.items()):
                others = [self.participant(self.place_of(other)) for other in decided.participants]
                assert not any(known in other.prepared for other in others)
                await self.end(place, known)

    async def check(self) -> None:
        """Compare all that is stored with the model."""
        found: dict[Place, list[bytes]] = {}
        for place in PLACES:
            server = self.partition(place)
            stored = await read_all(server)
            check_invariants(server.state, 2048)
            assert [offset for offset, _ in stored] == list(range(len(stored))), "offsets are dense"
            found[place] = [value or b"" for _, value in stored]
        for one in self.transactions.values():
            counts = {place: found[place].count(one.value) for place in PLACES}
            is_written = any(counts.values()) if one.is_committed is None else one.is_committed
            assert counts == {place: 2 * (is_written and place in one.places) for place in PLACES}
        offsets: dict[Place, list[int]] = defaultdict(list)
        for write in self.produced:
            error = write.outcome.exception()
            count = found[write.place].count(write.value)
            if error is None:
                offset = write.outcome.result().base_offset
                assert (count, found[write.place][offset]) == (1, write.value)
                offsets[write.place].append(offset)
            else:
                assert isinstance(error, KafkaError)
                assert count <= (error.code != ErrorCode.KAFKA_STORAGE_ERROR)
        assert all(known == sorted(known) for known in offsets.values()), "writes keep their order"


def check(one: BatchesPart) -> None:
    refusal = one.refusal()
    if refusal is not None:
        raise refusal


async def settled(outcome: Outcome[None]) -> BaseException | None:
    """The error of what ends by itself; only one of those that are expected."""
    async with asyncio.timeout(TIMEOUT_S):
        await outcome.wait()
    error = outcome.exception()
    assert error is None or isinstance(error, FAILURES), error
    return error


@pytest.mark.parametrize("seed", some(range(60)))
async def test_no_commit_is_torn_doubled_or_forgotten(seed: int) -> None:
    world = await World(random.Random(seed)).start()
    for _ in range(EVENTS):
        together = 2 if world.chance.random() < 0.3 else 1
        calls = [asyncio.ensure_future(world.commit()) for _ in range(together)]
        async with asyncio.timeout(TIMEOUT_S):
            done, left = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        if any(isinstance(call.exception(), ProcessDied) for call in done):
            for node in world.nodes:
                node.engine.crash(durable=world.chance.randrange(3))
            for call in left:
                call.cancel()
            await asyncio.wait(calls)
            for node in world.nodes:
                await node.start()
        for call in done:
            if not isinstance(call.exception(), ProcessDied):
                call.result()
        if world.chance.random() < 0.5:
            await world.resolve()
            await turns_pass()
    await world.resolve()
    async with asyncio.timeout(TIMEOUT_S):
        for one in world.produced:
            await one.outcome.wait()
    await world.check()
    for node in world.nodes:
        await node.restart()
    await world.resolve()
    await world.check()
    for node in world.nodes:
        await check_store(node, node.partition())
