"""Clients of a broker of several nodes, and what they were promised: see `ledger.py` for the rules of the books."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from types import MappingProxyType
from typing import Any

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pqbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
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
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.ledger import GroupBook, PartitionBook, Value, expect
from tests.simulation.nodes.client import BACK_OFF_S, GROUP, TRANSACTION, NodesClient, Owners, ReadBatches
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.members import MembersStory
from tests.simulation.nodes.table_story import TableStory

TOPIC, TRANSACTED, CLEANED = "t", "x", "c"
PARTITIONS, CLEANED_PARTITIONS = 4, 2
CLEANED_SHARE = 0.5
"""Share of the runs whose transactions write to a compacted topic too."""
CLEANED_CONFIG = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500", "delete.retention.ms": "1000"
}  # fmt: skip
TRIES = 6
SIZES = (0, 30, 900, 6000)
TABLES_SHARE = 0.4
"""Share of the runs with tables."""
MEMBERS_SHARE = 0.4
"""Share of the runs with members of a group."""
Place = tuple[str, int]


class NodesStory:
    """One run's clients and books. Everybody draws from a chance of their own."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.owners = Owners()
        self._decoded = ReadBatches()
        self.books: dict[Place, PartitionBook] = {}
        self.groups = {name: GroupBook(name) for name in ("g", "h")}
        self.transactors = [Transactor(self, number) for number in range(2)]
        self.counts: Counter[str] = Counter()
        has_tables = self.chance("has tables").random() < TABLES_SHARE
        own = self.client("tables"), self.chance("tables"), self.counts
        self.tables = TableStory(cluster, *own) if has_tables else None
        has_members = self.chance("has members").random() < MEMBERS_SHARE
        named = self.client, self.chance, self.counts
        self.members = MembersStory(TOPIC, PARTITIONS, *named) if has_members else None
        self.has_cleaned = self.chance("has cleaned").random() < CLEANED_SHARE
        self.is_ending = False

    def chance(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    def client(self, name: str) -> NodesClient:
        return NodesClient(self.cluster, self.owners, self._decoded, self.chance(f"client {name}"))

    def book(self, place: Place) -> PartitionBook:
        return self.books.setdefault(place, PartitionBook(f"{place[0]}-{place[1]}"))

    async def create(
        self, name: str, partitions: int = PARTITIONS, config: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create a topic whose tablets lie in several cells; return when it exists."""
        client = self.client(f"create {name}")
        configs = [
            CreatableTopicConfig(name=key, value=text)
            for key, text in {"pq.partitions.per.tablet": "1", **config}.items()
        ]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        while True:
            told = await client.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            if told is not None and told.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(BACK_OFF_S)

    async def run(self) -> None:
        """Live until the run ends, and until everything sent is acknowledged."""
        for name in (TOPIC, TRANSACTED):
            await self.create(name)
        if self.has_cleaned:
            await self.create(CLEANED, CLEANED_PARTITIONS, CLEANED_CONFIG)
        async with asyncio.TaskGroup() as tasks:
            for index in range(PARTITIONS):
                tasks.create_task(self._produce((TOPIC, index)))
                tasks.create_task(self._read((TOPIC, index)))
            for group in self.groups.values():
                tasks.create_task(self._commit_offsets(group))
            for transactor in self.transactors:
                tasks.create_task(transactor.run())
            if self.tables is not None:
                tasks.create_task(self.tables.run(self))
            if self.members is not None:
                tasks.create_task(self.members.run(self))
            tasks.create_task(self._make_topics(tasks))

    async def _make_topics(self, tasks: asyncio.TaskGroup) -> None:
        """Create topics now and then, each with a record or more in each partition."""
        chance, number = self.chance("topics"), 0
        while not self.is_ending:
            await asyncio.sleep(chance.expovariate(0.3))
            number += 1
            await self.create(f"n{number}", 2)
            for index in range(2):
                tasks.create_task(self._produce((f"n{number}", index), batches=chance.choice((1, 5))))

    async def _produce(self, place: Place, batches: int = 1 << 30) -> None:
        """Write batches to one partition as an idempotent producer, each until it is acknowledged."""
        chance, client, book = self.chance(f"producer {place}"), self.client(f"producer {place}"), self.book(place)
        identifier, number = await client.producer_id(), 0
        while batches and not self.is_ending:
            batches -= 1
            await asyncio.sleep(chance.expovariate(8))
            values = [Value(identifier, number + each) for each in range(chance.choice((1, 1, 3)))]
            number += len(values)
            size = chance.choice(SIZES)
            book.sent(values)
            texts, producer, is_first = [one.text(size) for one in values], (identifier, 0, values[0].number), True
            while True:
                told = await client.produce(place, texts, producer, is_first=is_first)
                is_first = False
                if told is not None and told[0] is ErrorCode.NONE:
                    book.acknowledge(told[1], values)
                    self.counts["batches"] += 1
                    break
                lost = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
                expect(told is None or told[0] not in lost, f"{book.name} refuses {values}: {told}")
                await asyncio.sleep(BACK_OFF_S * chance.random())

    async def _read(self, place: Place) -> None:
        """Follow one partition, and look again at what was read before."""
        chance, client, book = self.chance(f"reader {place}"), self.client(f"reader {place}"), self.book(place)
        offset = 0
        while not self.is_ending:
            await asyncio.sleep(chance.expovariate(4))
            start = chance.randint(0, offset) if chance.random() < 0.2 else offset
            found = await client.read(place, start)
            if found is not None:
                records = [(at, Value.of(value)) for at, value in found[0] if at >= start]
                book.read(start, records)
                offset = max(offset, found[1])

    async def _commit_offsets(self, group: GroupBook) -> None:
        """Commit ever greater offsets of a group, and look at what they are."""
        chance, client, number = self.chance(f"group {group.name}"), self.client(f"group {group.name}"), 0
        while not self.is_ending:
            await asyncio.sleep(chance.expovariate(4))
            if chance.random() < 0.4:
                await self.look_at_offsets(group, client)
                continue
            number += 1
            places = [(TOPIC, index) for index in range(PARTITIONS) if chance.random() < 0.5] or [(TOPIC, 0)]
            state = ConsumerOffset(number)
            for place in places:
                group.book(place).asked(state)
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=number, committed_metadata="")
                for _, index in places
            ]
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
            request = OffsetCommitRequest(group_id=group.name, topics=[topic])
            told = await client.ask_coordinator(GROUP, group.name, request, 8)
            for each in [] if told is None else told.topics[0].partitions:
                if not each.error_code:
                    group.book((TOPIC, each.partition_index)).durable(state)
                    self.counts["offsets"] += 1

    async def look_at_offsets(self, group: GroupBook, client: NodesClient) -> bool:
        """Compare the offsets of a group with its book; return True if the coordinator knew them all."""
        found = await self.offsets(group.name, TOPIC, client)
        for index, offset in found.items():
            group.found((TOPIC, index), None if offset < 0 else ConsumerOffset(offset))
        return len(found) == PARTITIONS

    async def offsets(self, group_id: str, topic: str, client: NodesClient) -> dict[int, int]:
        """Return the offsets that the coordinator gives, by partition; -1 where there is none."""
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(PARTITIONS)))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[asked])])
        told = await client.ask_coordinator(GROUP, group_id, request, 8)
        if told is None or told.groups[0].error_code:
            return {}
        partitions = told.groups[0].topics[0].partitions
        return {each.partition_index: each.committed_offset for each in partitions if not each.error_code}

    async def verify(self) -> None:
        """Compare everything that is stored with what was promised. All nodes serve."""
        client = self.client("verify")
        for place, book in sorted(self.books.items()):
            records, end = await self._all(client, place)
            book.whole(0, end, [(at, Value.of(value)) for at, value in records])
        for group in self.groups.values():
            await _again(lambda group=group: self.look_at_offsets(group, client))
        places = [(TRANSACTED, index) for index in range(PARTITIONS)]
        if self.has_cleaned:
            places += [(CLEANED, index) for index in range(CLEANED_PARTITIONS)]
        seen = {place: await self._committed(client, place) for place in places}
        for transactor in self.transactors:
            await transactor.verify(seen, client)
        if self.tables is not None:
            await self.tables.verify()
        if self.members is not None:
            await self.members.verify()

    async def _committed(self, client: NodesClient, place: Place) -> list[bytes]:
        records, _ = await self._all(client, place, is_committed=True)
        return [value for _, value in records]

    async def _all(
        self, client: NodesClient, place: Place, *, is_committed: bool = False
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Return all records of a partition, and its end."""
        records, offset = list[tuple[int, bytes]](), 0
        for _ in range(400):
            found = await client.read(place, offset, is_committed=is_committed)
            if found is not None:
                records += [one for one in found[0] if one[0] >= offset]
                offset = found[1]
                if offset >= found[2]:
                    return records, found[2]
            await asyncio.sleep(BACK_OFF_S if found is None else 0)
        raise AssertionError(f"{place} cannot be read though nothing stands in the way")


class TransactionEnd(Enum):
    """A client knows one of these of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class PlannedTransaction:
    """One transaction: where it writes its record, in topics that are cleaned too, and whether it moves its group's
    offset."""

    number: int
    places: list[Place]
    cleaned: list[Place]
    has_offset: bool
    is_commit: bool
    end: TransactionEnd = TransactionEnd.ABORTED


class _Failed(Exception):
    """A step of a transaction failed, or nobody knows."""


@dataclass
class Transactor:
    """A client with a transactional id, which writes a record to several partitions in each transaction."""

    story: NodesStory
    number: int
    done: list[PlannedTransaction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"id{self.number}"
        self.group_id = f"of {self.name}"
        self._chance = self.story.chance(self.name)
        self._client = self.story.client(self.name)
        self._claim = (-1, -1)
        self._sequences: dict[Place, int] = {}

    def value(self, number: int) -> bytes:
        return b"%d:%d:" % (self.number, number)

    async def run(self) -> None:
        await self._begin()
        while not self.story.is_ending:
            await asyncio.sleep(self._chance.expovariate(2))
            places = [(TRANSACTED, index) for index in range(PARTITIONS) if self._chance.random() < 0.6]
            places = places or [(TRANSACTED, 0)]
            planned = PlannedTransaction(
                len(self.done), places, self._cleaned(places), self._chance.random() < 0.5, self._chance.random() < 0.8
            )
            self.done.append(planned)
            try:
                await self._transact(planned)
                self.story.counts["transactions"] += 1
            except _Failed:
                await self._begin()
        await self._begin()

    def _cleaned(self, places: list[Place]) -> list[Place]:
        has_any = self.story.has_cleaned
        return [(CLEANED, index) for _, index in places if has_any and index < CLEANED_PARTITIONS]

    async def _begin(self) -> None:
        """Have a new epoch; the transaction that was open is aborted, or was committed before."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        while True:
            told = await self._client.ask_coordinator(TRANSACTION, self.name, request, 4)
            if told is not None and not told.error_code:
                self._claim, self._sequences = (told.producer_id, told.producer_epoch), {}
                return
            await asyncio.sleep(BACK_OFF_S)

    async def _transact(self, planned: PlannedTransaction) -> None:
        name, (identifier, epoch) = self.name, self._claim
        topics = [
            AddPartitionsToTxnTopic(name=places[0][0], partitions=[index for _, index in places])
            for places in (planned.places, planned.cleaned) if places
        ]  # fmt: skip
        await self._step(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name, v3_and_below_producer_id=identifier,
                v3_and_below_producer_epoch=epoch, v3_and_below_topics=topics,
            ), 3,
        )  # fmt: skip
        for place in planned.places + planned.cleaned:
            await self._write(place, self.value(planned.number))
        if planned.has_offset:
            await self._step(
                AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=identifier, producer_epoch=epoch, group_id=self.group_id
                ), 3,
            )  # fmt: skip
            moved = [
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=planned.number, committed_metadata=""
                )
                for index in range(PARTITIONS)
            ]
            request = TxnOffsetCommitRequest(
                transactional_id=name, group_id=self.group_id, producer_id=identifier, producer_epoch=epoch,
                topics=[TxnOffsetCommitRequestTopic(name=TRANSACTED, partitions=moved)],
            )  # fmt: skip
            await self._step(request, 3, GROUP, self.group_id)
        if planned.is_commit:
            planned.end = TransactionEnd.UNKNOWN
        await self._step(
            EndTxnRequest(
                transactional_id=name, producer_id=identifier, producer_epoch=epoch, committed=planned.is_commit
            ), 3,
        )  # fmt: skip
        if planned.is_commit:
            planned.end = TransactionEnd.COMMITTED

    async def _write(self, place: Place, value: bytes) -> None:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        for _ in range(TRIES):
            key = self.name.encode() if place[0] == CLEANED else None
            told = await self._client.produce(place, [value], (*self._claim, sequence), self.name, key=key)
            if told is not None and told[0] is ErrorCode.NONE:
                return
            await asyncio.sleep(BACK_OFF_S)
        raise _Failed

    async def _step(self, request: Any, version: int, kind: int = TRANSACTION, key: str = "") -> None:
        """Have the coordinator do a step; again where it cannot now. _Failed."""
        for _ in range(TRIES):
            told = await self._client.ask_coordinator(kind, key or self.name, request, version)
            if told is not None and not any(_codes(told)):
                return
            await asyncio.sleep(BACK_OFF_S)
        raise _Failed

    async def verify(self, seen: dict[Place, list[bytes]], client: NodesClient) -> None:
        """A transaction is there in all its partitions, with its offsets, or nowhere."""
        offset = -1
        for planned in self.done:
            found = [seen[place].count(self.value(planned.number)) for place in planned.places]
            expect(set(found) in ({0}, {1}), f"transaction {planned} of {self.name} is torn: {found}")
            is_seen = found[0] == 1
            expect(is_seen or planned.end is not TransactionEnd.COMMITTED, f"{planned} of {self.name} is lost")
            expect(not is_seen or planned.end is not TransactionEnd.ABORTED, f"{planned} of {self.name} is seen")
            if is_seen and planned.has_offset:
                offset = planned.number
        self._verify_cleaned(seen)
        found_offsets: dict[int, int] = {}

        async def look() -> bool:
            found_offsets.update(await self.story.offsets(self.group_id, TRANSACTED, client))
            return len(found_offsets) == PARTITIONS

        await _again(look)
        is_right = set(found_offsets.values()) == {offset}
        expect(is_right, f"{self.name} has the offsets {found_offsets}, its last transaction has {offset}")

    def _verify_cleaned(self, seen: dict[Place, list[bytes]]) -> None:
        """Check that the last committed record of each key is there, and that those left before it are in order."""
        own = b"%d:" % self.number
        for place in (place for place in seen if place[0] == CLEANED):
            found = [int(value.split(b":")[1]) for value in seen[place] if value.startswith(own)]
            committed = [
                planned.number for planned in self.done
                if place in planned.cleaned and self.value(planned.number) in seen[planned.places[0]]
            ]  # fmt: skip
            is_right = found == sorted(set(found)) and set(found) <= set(committed) and found[-1:] == committed[-1:]
            expect(is_right, f"{place} has the records {found} of {self.name}, which committed {committed}")


def _codes(told: Any) -> list[int]:
    """Return the codes of an answer of a coordinator."""
    if hasattr(told, "results_by_topic_v3_and_below"):
        return [
            each.partition_error_code for topic in told.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]  # fmt: skip
    if hasattr(told, "topics"):
        return [each.error_code for topic in told.topics for each in topic.partitions]
    return [told.error_code]


async def _again(look: Any) -> None:
    """Look until it succeeds: nothing stands in the way."""
    for _ in range(400):
        if await look():
            return
        await asyncio.sleep(BACK_OFF_S)
    raise AssertionError("offsets of a group are not known though nothing stands in the way")
