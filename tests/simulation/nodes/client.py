"""A client of all nodes: finds leaders and coordinators as Kafka's clients do, and gives up a node that is silent."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import LENGTH_END, Record, batches, decode_records, encode_batch
from tests.simulation.ledger import expect
from tests.simulation.nodes.cluster import Cluster, Connections

PATIENCE_S = 2.0
BACK_OFF_S = 0.2
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID = 9, 12, 9, 3, 4
"""Versions that are used."""
CONTROL = 0x20
COMMITTED = 1
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
TRANSACTIONAL = 0x10
BASE_OFFSET_BYTES = 8

Answer = tuple[ErrorCode, int]
"""Code and base offset of an answer to a batch."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch as it was read."""

    base_offset: int
    last_offset: int
    epoch: int
    attributes: int
    producer_id: int
    records: Sequence[tuple[int, bytes]]
    """Offset and value of each; none of a control batch."""


class ReadBatches:
    """Batches by their bytes: each is decoded once, however often it is read."""

    def __init__(self) -> None:
        self._known: dict[bytes, ReadBatch] = {}

    def of(self, raw: bytes) -> list[ReadBatch]:
        """Return the batches of an answer."""
        found, position = list[ReadBatch](), 0
        while position < len(raw):
            end = position + LENGTH_END + int.from_bytes(raw[position + BASE_OFFSET_BYTES : position + LENGTH_END])
            batch = raw[position:end]
            known = self._known.get(batch)
            if known is None:
                known = self._known[batch] = _decoded(batch)
            found.append(known)
            position = end
        return found


class Owners:
    """The node that acknowledged what it wrote to a partition in each leader epoch: never two."""

    def __init__(self) -> None:
        self._writers: dict[tuple[str, int], dict[int, int]] = {}
        """Nodes by offset, of each partition."""
        self._known: dict[tuple[str, int, int], int] = {}
        """Nodes by partition and leader epoch."""

    def acknowledged(self, place: tuple[str, int], offset: int, node: int) -> None:
        """Note that a node has acknowledged a batch that was sent for the first time."""
        self._writers.setdefault(place, {})[offset] = node

    def see(self, place: tuple[str, int], seen: Iterable[ReadBatch]) -> None:
        """Look at the epochs of batches that are stored."""
        writers = self._writers.get(place, {})
        for batch in seen:
            node = writers.get(batch.base_offset)
            if node is not None:
                owner = self._known.setdefault((*place, batch.epoch), node)
                expect(owner == node, f"{place} was written by nodes {owner} and {node} in epoch {batch.epoch}")


class NodesClient:
    """One client."""

    def __init__(self, cluster: Cluster, owners: Owners, decoded: ReadBatches, chance: Random) -> None:
        self.cluster = cluster
        self._decoded = decoded
        self.chance = chance
        self._owners = owners
        self._connections: Connections = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    async def leader(self, name: str, index: int) -> int:
        """Return the number of the node that leads a partition; 0: nobody says so now."""
        known = self._leaders.get((name, index), 0)
        if not known:
            await self._look_for_leaders(name)
            known = self._leaders.get((name, index), 0)
        return known

    def forget_leader(self, name: str, index: int) -> None:
        """Look for it again, next time."""
        self._leaders.pop((name, index), None)

    async def _look_for_leaders(self, name: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        told = await self.ask_any(request, METADATA)
        for each in [] if told is None else told.topics[0].partitions:
            place = name, each.partition_index
            if each.leader_id > 0:
                self._leaders[place] = each.leader_id

    async def coordinator(self, kind: int, key: str) -> int:
        """Return the number of the node that coordinates; 0: nobody says so now."""
        if (kind, key) not in self._coordinators:
            told = await self.ask_any(FindCoordinatorRequest(key=key, key_type=kind), FIND_COORDINATOR)
            if told is None or told.error_code:
                return 0
            self._coordinators[kind, key] = told.node_id
        return self._coordinators[kind, key]

    async def ask_coordinator(self, kind: int, key: str, request: Any, version: int) -> Any:
        """Return the answer of the coordinator; None: there is none."""
        node = await self.coordinator(kind, key)
        return None if not node else await self.cluster.ask(self._connections, node, request, version, PATIENCE_S)

    async def ask_any(self, request: Any, version: int) -> Any:
        """Return the answer of any node; None: it has none."""
        number = self.chance.randint(1, self.cluster.count)
        return await self.cluster.ask(self._connections, number, request, version, PATIENCE_S)

    async def producer_id(self) -> int:
        """Return one that nobody else has."""
        while True:
            told = await self.ask_any(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
            if told is not None and not told.error_code:
                identifier: int = told.producer_id
                return identifier
            await asyncio.sleep(BACK_OFF_S)

    async def produce(
        self,
        place: tuple[str, int],
        values: Sequence[bytes],
        producer: tuple[int, int, int],
        name: str | None = None,
        *,
        key: bytes | None = None,
        is_first: bool = False,
    ) -> Answer | None:
        """Send a batch to the leader; None: nobody knows what became of it. `producer`: id, epoch and sequence;
        `is_first`: it was never sent before."""
        leader = await self.leader(*place)
        if not leader:
            return None
        identifier, epoch, sequence = producer
        records = [Record(number, self.cluster.clock(), key, value, ()) for number, value in enumerate(values)]
        batch = encode_batch(
            records, producer_id=identifier, producer_epoch=epoch, base_sequence=sequence,
            attributes=0 if name is None else TRANSACTIONAL,
        )  # fmt: skip
        data = TopicProduceData(
            name=place[0], partition_data=[PartitionProduceData(index=place[1], records=memoryview(batch))]
        )
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[data])
        told = await self.cluster.ask(self._connections, leader, request, PRODUCE, PATIENCE_S)
        if told is None:
            self.forget_leader(*place)
            return None
        found = told.responses[0].partition_responses[0]
        if found.error_code:
            self.forget_leader(*place)
        elif is_first:
            self._owners.acknowledged(place, found.base_offset, leader)
        return ErrorCode(found.error_code), found.base_offset

    async def read(
        self, place: tuple[str, int], offset: int, *, is_committed: bool = False
    ) -> tuple[list[tuple[int, bytes]], int, int] | None:
        """Return records with their offsets, the offset behind them, and the end of the log; None: nobody says."""
        leader = await self.leader(*place)
        if not leader:
            return None
        asked = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 22)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, isolation_level=COMMITTED if is_committed else 0,
            topics=[FetchTopic(topic=place[0], partitions=[asked])],
        )  # fmt: skip
        told = await self.cluster.ask(self._connections, leader, request, FETCH, PATIENCE_S)
        data = None if told is None or told.error_code else told.responses[0].partitions[0]
        if data is None or data.error_code:
            self.forget_leader(*place)
            return None
        found = self._decoded.of(b"" if data.records is None else bytes(data.records))
        self._owners.see(place, found)
        behind = found[-1].last_offset + 1 if found else offset
        return _values(data, found), behind, data.last_stable_offset if is_committed else data.high_watermark


def _decoded(batch: bytes) -> ReadBatch:
    ((_, header),) = batches(batch)
    is_control = bool(header.attributes & CONTROL)
    records = [] if is_control else [(each.offset, bytes(each.value or b"")) for each in decode_records(batch)]
    return ReadBatch(
        header.base_offset, header.last_offset, header.partition_leader_epoch, header.attributes, header.producer_id,
        records,
    )  # fmt: skip


def _values(data: Any, read: Iterable[ReadBatch]) -> list[tuple[int, bytes]]:
    """Return the records of batches that were not aborted."""
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    left_out: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for batch in read:
        while aborted and aborted[0][0] <= batch.base_offset:
            left_out.add(aborted.pop(0)[1])
        if batch.attributes & CONTROL:
            left_out.discard(batch.producer_id)
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in left_out):
            found += batch.records
    return found
