"""Producers of Kafka transactions over whatever happens to their broker, who note what they do in a history.

aiokafka speaks version 1 of the protocol; a few lines over a socket speak version 2 (KIP-890), and commit offsets.
"""

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.end_txn import EndTxnRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pqbroker.protocol.records import TRANSACTIONAL, Record, encode_batch
from tests.broker.wire import Client
from tests.histories.history import Ending
from tests.histories.log_history import LogHistory, Produced, Seen, Sent

TIMEOUT_S: Final = 20.0
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.05
TRANSACTION_MS: Final = (2_000, 20_000)
KEYS: Final = 5
COMMITTED: Final = 0.7
LEFT_OPEN: Final = 0.07
RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)  # fmt: skip


@dataclass(slots=True)
class LogNotes:
    """The history as it is recorded by many clients."""

    partitions: Mapping[str, int]
    """Partitions of each topic."""
    compacted: frozenset[str] = frozenset()
    history: LogHistory = field(default_factory=LogHistory)
    _moments: "count[int]" = field(default_factory=count)
    _values: "count[int]" = field(default_factory=lambda: count(1))

    def moment(self) -> int:
        return next(self._moments)

    def draw(self, chance: random.Random) -> Sent:
        """Return a record that nobody else sends."""
        topic = chance.choice(list(self.partitions))
        key = b"%d" % chance.randrange(KEYS) if topic in self.compacted else None
        return Sent((topic, chance.randrange(self.partitions[topic])), next(self._values), None, key)

    def seen(self, name: Any, number: int, invoked: int) -> None:
        """Note a number that only grows."""
        self.history.seen.append(Seen(name, number, invoked, self.moment()))


def place_of(sent: Sent) -> tuple[str, int]:
    """Return the topic of a record, and the index of its partition."""
    place: tuple[str, int] = sent.partition  # type: ignore[assignment]
    return place


class FencedError(Exception):
    """The producer has to begin again."""


# Version 1 of the protocol


async def produce_with_aiokafka(
    address: str, notes: LogNotes, name: str, stopping: threading.Event, chance: random.Random
) -> None:
    """Transact until it is to stop, and leave nothing open; a producer that has failed is replaced by a new one."""
    while True:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=name, linger_ms=2,
            transaction_timeout_ms=chance.choice(TRANSACTION_MS), request_timeout_ms=int(1000 * TIMEOUT_S),
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_S):
                await producer.start()
            while not stopping.is_set():
                await _transact(producer, notes, name, chance)
        except (AiokafkaError, OSError, TimeoutError):
            await asyncio.sleep(PAUSE_S)
        else:
            return
        finally:
            with suppress(AiokafkaError, OSError, TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    await producer.stop()


async def _transact(producer: AIOKafkaProducer, notes: LogNotes, name: str, chance: random.Random) -> None:
    """One transaction. AiokafkaError, TimeoutError where the producer cannot continue."""
    sends: list[Sent] = []
    ending, asked = Ending.FAIL, None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await producer.begin_transaction()
            await _send_all(producer, [notes.draw(chance) for _ in range(chance.randint(1, 6))], sends)
            if chance.random() < LEFT_OPEN:
                raise TimeoutError
            if chance.random() < COMMITTED:
                asked, ending = notes.moment(), Ending.UNKNOWN
                await producer.commit_transaction()
                ending = Ending.OK
            else:
                await producer.abort_transaction()
    finally:
        notes.history.produced.append(Produced(sends, ending, asked, name))


async def _send_all(producer: AIOKafkaProducer, drawn: Sequence[Sent], sends: list[Sent]) -> None:
    sends += drawn
    answers = []
    for sent in drawn:
        topic, index = place_of(sent)
        answers.append(await producer.send(topic, b"%d:" % sent.value, sent.key, index))
    for number, answer in enumerate(answers):
        sends[number] = drawn[number]._replace(offset=(await answer).offset)


# Version 2 of the protocol


class WireProducer:
    """A producer of version 2; each request is sent until it is answered, over new connections where need be."""

    def __init__(self, address: str, notes: LogNotes, name: str, chance: random.Random) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._notes = notes
        self._name = name
        self._chance = chance
        self._client: Client | None = None
        self._producer = (-1, -1)
        self._sequences: dict[Any, int] = {}
        self._count = 0

    @property
    def group(self) -> str:
        return f"group of {self._name}"

    async def run(self, stopping: threading.Event) -> None:
        """Transact until it is to stop, and leave nothing open."""
        await self.begin()
        while not stopping.is_set():
            if not await self.transact():
                await self.begin()
        await self.begin()
        await leave(self._client)

    async def begin(self) -> None:
        """Get a producer id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=self._chance.choice(TRANSACTION_MS)
        )
        answer = await self._until_known(request, 4, lambda response: [response.error_code])
        self._producer, self._sequences = (answer.producer_id, answer.producer_epoch), {}

    async def transact(self) -> bool:
        """One transaction; False: the producer has to begin again."""
        sends: list[Sent] = []
        ending, asked = Ending.FAIL, None
        self._count += 1
        is_over = self._chance.random() < LEFT_OPEN
        try:
            for _ in range(self._chance.randint(1, 3)):
                await self._produce([self._notes.draw(self._chance) for _ in range(self._chance.randint(1, 3))], sends)
            if self._chance.random() < 0.5:
                await self._commit_offset()
            if not is_over:
                is_commit = self._chance.random() < COMMITTED
                if is_commit:
                    asked, ending = self._notes.moment(), Ending.UNKNOWN
                await self._end(is_commit=is_commit)
                ending = Ending.OK if is_commit else Ending.FAIL
        except FencedError:
            is_over = True
        self._notes.history.produced.append(Produced(sends, ending, asked, self._name))
        return not is_over

    async def _produce(self, drawn: Sequence[Sent], sends: list[Sent]) -> None:
        """Send one batch to each partition of what was drawn."""
        for partition in sorted({sent.partition for sent in drawn}, key=str):
            batch = [sent for sent in drawn if sent.partition == partition]
            first = len(sends)
            sends += batch
            topic, index = place_of(batch[0])
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(batch)
            encoded = encode_batch(
                [Record(0, 1_700_000_000_000, sent.key, b"%d:" % sent.value) for sent in batch],  # type: ignore[arg-type]
                producer_id=self._producer[0], producer_epoch=self._producer[1], base_sequence=sequence,
                attributes=TRANSACTIONAL,
            )  # fmt: skip
            data = PartitionProduceData(index=index, records=memoryview(encoded))
            request = ProduceRequest(
                transactional_id=self._name, acks=-1, timeout_ms=10_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )  # fmt: skip
            answer = await self._until_known(
                request, 12, lambda response: [response.responses[0].partition_responses[0].error_code]
            )
            base_offset = answer.responses[0].partition_responses[0].base_offset
            for number, sent in enumerate(batch):
                sends[first + number] = sent._replace(offset=base_offset + number if base_offset >= 0 else None)

    async def _commit_offset(self) -> None:
        offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=self._count)
        topic = TxnOffsetCommitRequestTopic(name=next(iter(self._notes.partitions)), partitions=[offset])
        request = TxnOffsetCommitRequest(
            transactional_id=self._name, group_id=self.group, producer_id=self._producer[0],
            producer_epoch=self._producer[1], topics=[topic],
        )  # fmt: skip
        await self._until_known(
            request, 5, lambda response: [one.error_code for topic in response.topics for one in topic.partitions]
        )

    async def _end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=self._producer[0], producer_epoch=self._producer[1],
            committed=is_commit,
        )  # fmt: skip
        answer = await self._until_known(request, 5, lambda response: [response.error_code])
        self._producer, self._sequences = (answer.producer_id, answer.producer_epoch), {}

    async def _until_known(self, request: Any, version: int, codes_of: Any) -> Any:
        """Send a request until it is answered. FencedError."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if self._client is None:
                        self._client = await Client.connect(self._host, int(self._port))
                    async with asyncio.timeout(TIMEOUT_S):
                        answer = await self._client.ask(request, version)
                except (OSError, EOFError, TimeoutError):
                    await leave(self._client)
                    self._client = None
                else:
                    codes = [ErrorCode(code) for code in codes_of(answer) if code]
                    if not codes:
                        return answer
                    if not RETRIABLE.issuperset(codes):
                        raise FencedError(str(codes))
                await asyncio.sleep(PAUSE_S)


async def leave(client: Client | None) -> None:
    """Close a connection at once."""
    if client is not None:
        client.abort()
        await asyncio.sleep(0)  # the transport closes in the next turn
