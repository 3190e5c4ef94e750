import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.memory import MemoryEngine
from tests.broker.wire import Client

ENGINE_BYTES = 64 << 20
TURNS_AT_ONCE = 1000
"""Turns of the loop without a pause, while something is waited for."""
PAUSE_S = 0.001


class Clock:
    """Milliseconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Node:
    """A server in this process on an engine in memory, and a client of it."""

    def __init__(self, server: Server, engine: MemoryEngine, clock: Clock, stack: AsyncExitStack) -> None:
        self.server = server
        self.engine = engine
        self.clock = clock
        self._stack = stack
        self.source: str | None = None
        """Address from which topics are made."""
        self._clients: list[Client] = []

    async def connect(self, source: str | None = None) -> Client:
        """`source`: address that the broker shall see."""
        client = await Client.connect("127.0.0.1", self.server.kafka_address.port, source)
        self._stack.push_async_callback(client.close)
        self._clients.append(client)
        return client

    def uncounted_errors(self) -> set[str]:
        """Error codes that came to a client and stand in no metric."""
        came = {code for client in self._clients for code in client.codes}
        return {code.name for code in came - self.server.node.metrics.errors.keys()}

    async def create_topic(self, name: str, partitions: int = 1, **config: str) -> bytes:
        """Create a topic (config names with _ for .) and return its id."""
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        client = await self.connect(self.source)
        response = await client.ask(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    async def produce(self, topic: str, *values: bytes, partition: int = 0, **batch: Any) -> PartitionProduceResponse:
        """Produce one batch of records with these values."""
        client = await self.connect()
        response = await client.ask(produce_request(topic, make_batch(*values, **batch), partition), 9)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer


def make_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **options: Any) -> bytearray:
    records = [Record(index, timestamp_ms + index, None, value, ()) for index, value in enumerate(values or (b"v",))]
    return encode_batch(records, **options)


def produce_request(topic: str, batch: bytes | bytearray | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    records = None if batch is None else memoryview(batch)
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """Starts servers with settings; all of them and their clients end with the test. Errors they sent are counted."""
    nodes: list[Node] = []
    async with AsyncExitStack() as stack:

        async def start_one(
            *, http: Address | None = None, pools: Sequence[str] = ("main",), listeners: Sequence[Listener] = (),
            **settings: Any,
        ) -> Node:
            clock = Clock()
            engine = MemoryEngine(ENGINE_BYTES, pools=pools)
            kafka = listeners or Address("127.0.0.1", 0)
            server = Server(BrokerSettings(**settings), engine, kafka, http, clock)
            await server.start()
            stack.push_async_callback(server.stop)
            nodes.append(Node(server, engine, clock, stack))
            return nodes[-1]

        yield start_one
        assert [node.uncounted_errors() for node in nodes] == [set()] * len(nodes)


@pytest.fixture
async def node(start: Callable[..., Awaitable[Node]]) -> Node:
    return await start()


@pytest.fixture
async def client(node: Node) -> Client:
    return await node.connect()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something holds; where it takes long, another thread or process needs the processor."""
    async with asyncio.timeout(60):
        turns = 0
        while not condition():  # what is waited for is a state, nobody sets an event
            turns += 1
            await asyncio.sleep(0 if turns < TURNS_AT_ONCE else PAUSE_S)
