"""Clients that keep a book of every request by its correlation id, so that its answer is known again in what the broker
sent: producers, and one who trims, commits offsets, makes topics and deletes them."""

import asyncio
import itertools
import random
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import Record, encode_batch
from tests.broker.wire import BY_REQUEST, read_response, request_frame
from tests.faults.hostile import payload

TOPIC, GROUP = "power", "readers"
PARTITIONS = 3
PRODUCERS = 3
_IN_FLIGHT = 4
_VERSIONS: dict[type, int] = {
    ProduceRequest: 7,
    DeleteRecordsRequest: 1,
    OffsetCommitRequest: 7,
    CreateTopicsRequest: 4,
    DeleteTopicsRequest: 3,
}
_SIZES = (50, 300, 2_000, 2_000, 9_000, 60_000, 250_000)
_NUMBER = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its correlation id, itself, and for a Produce what it wants stored and by whom."""

    correlation_id: int
    request: Any
    producer: int = -1
    partition: int = -1
    batch: bytes = b""


@dataclass(slots=True)
class Book:
    """Every request that was sent, by correlation id."""

    asked: dict[int, Asked] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """The least end of each partition, by answers that came."""
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def write(self, request: Any, **what: Any) -> Asked:
        asked = Asked(next(self._ids), request, **what)
        self.asked[asked.correlation_id] = asked
        return asked

    def read(self, frame: bytes) -> tuple[Asked, Any] | None:
        """The request and the response of a frame without its length; None when it answers none of ours."""
        asked = self.asked.get(int.from_bytes(frame[:4], "big"))
        if asked is None:
            return None
        api = BY_REQUEST[type(asked.request)]
        return asked, read_response(api, _VERSIONS[type(asked.request)], frame)[1]


class Connection:
    """One client's connection; raises OSError and IncompleteReadError when the broker dies."""

    def __init__(self, book: Book, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._book = book
        self._reader = reader
        self._writer = writer

    async def send(self, asked: Asked) -> None:
        version = _VERSIONS[type(asked.request)]
        self._writer.write(request_frame(asked.request, version, asked.correlation_id))
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next answer's response."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        read = self._book.read(await self._reader.readexactly(size))
        assert read is not None
        return read[1]

    async def ask(self, request: Any) -> Any:
        await self.send(self._book.write(request))
        return await self.receive()

    def close(self) -> None:
        self._writer.close()


async def load(address: str, book: Book, source: random.Random, requests: int) -> None:
    """Ask the broker until it dies, or until each producer has sent so many requests."""
    with suppress(OSError, asyncio.IncompleteReadError):
        await _connected(address, book, _create)
        chances = [random.Random(source.random()) for _ in range(PRODUCERS + 1)]
        administering = asyncio.ensure_future(
            _connected(address, book, lambda connection: _administer(connection, book, chances[PRODUCERS]))
        )
        working = [
            _connected(address, book, partial(_produce, book, number, chances[number], requests))
            for number in range(PRODUCERS)
        ]
        await asyncio.gather(*working, return_exceptions=True)
        administering.cancel()
        await asyncio.gather(administering, return_exceptions=True)


async def _connected(address: str, book: Book, work: Callable[[Connection], Awaitable[None]]) -> None:
    host, _, port = address.rpartition(":")
    connection = Connection(book, *await asyncio.open_connection(host, int(port)))
    try:
        await work(connection)
    finally:
        connection.close()


async def _create(connection: Connection) -> None:
    config = {"pq.low.watermark.bytes": "400000", "pq.partitions.per.tablet": "2"}
    settings = [CreatableTopicConfig(name=name, value=value) for name, value in config.items()]
    topic = CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=settings
    )
    response = await connection.ask(CreateTopicsRequest(topics=[topic], validate_only=False))
    assert response.topics[0].error_code in (0, 36), response  # 36: there is such a topic, from an earlier life


async def _produce(book: Book, producer: int, source: random.Random, requests: int, connection: Connection) -> None:
    waiting: deque[int] = deque()
    for _ in range(requests):
        partition = source.randrange(PARTITIONS)
        asked = _batch_for(book, producer, partition, source)
        await connection.send(asked)
        waiting.append(partition)
        if len(waiting) == _IN_FLIGHT:
            await _acknowledge(connection, book, waiting.popleft())
    while waiting:
        await _acknowledge(connection, book, waiting.popleft())


def _batch_for(book: Book, producer: int, partition: int, source: random.Random) -> Asked:
    """A Produce request of one batch of a few records; each names the request it came in."""
    number = len(book.asked) + 1
    filling = payload(source, source.choice(_SIZES))
    values = [_NUMBER.pack(number) + filling, *(_NUMBER.pack(number) for _ in range(source.randrange(3)))]
    batch = bytes(encode_batch([Record(0, 0, None, value) for value in values]))
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, topic_id=bytes(16), partition_data=[data])],
    )  # fmt: skip
    asked = book.write(request, producer=producer, partition=partition, batch=batch)
    assert asked.correlation_id == number
    return asked


async def _acknowledge(connection: Connection, book: Book, partition: int) -> None:
    response = await connection.receive()
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == 0, answer
    book.ends[partition] = max(book.ends.get(partition, 0), answer.base_offset + 1)


async def _administer(connection: Connection, book: Book, source: random.Random) -> None:
    for round_ in itertools.count():
        partition = source.randrange(PARTITIONS)
        end = book.ends.get(partition, 0)
        if round_ % 4 == 0:
            await connection.ask(_trim(partition, source.randrange(end + 1)))
        elif round_ % 4 < 3:
            await connection.ask(_commit(partition, len(book.asked)))
        else:
            name = f"short-{len(book.asked)}"
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            await connection.ask(CreateTopicsRequest(topics=[topic], validate_only=False))
            if source.random() < 0.7:
                await connection.ask(DeleteTopicsRequest(topic_names=[name], topics=[], timeout_ms=30_000))
        await asyncio.sleep(0)


def _trim(partition: int, offset: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=30_000)


def _commit(partition: int, offset: int) -> OffsetCommitRequest:
    """The offsets committed only grow, so that a later one is told from an earlier."""
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=bytes(16), partitions=[committed])
    return OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])
