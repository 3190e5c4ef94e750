"""Two nodes that are sent the same bytes: one has lanes, the other dispatches everything."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import DEFAULT_NAME, Address, Listener
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES, Clock
from tests.broker.kafka.net.test_connection import Wire

LISTENER = Listener(DEFAULT_NAME, Address("127.0.0.1", 9092))
TOPIC_ID = b"\x07" * 16
"""Stands for that of the topic, which no two nodes have in common."""


def note_taken(patch: pytest.MonkeyPatch, key: int, taken: list[bool]) -> None:
    """Note of each request of an API that met lanes whether one took it."""
    begin, dispatch = Dispatcher.begin, Dispatcher._begin
    left: list[bool] = []

    def begun(dispatcher: Dispatcher, peer: Peer, frame: memoryview) -> Exchange:
        meets = bool(peer.lanes.get(key)) and frame[:2] == key.to_bytes(2, "big")
        left.clear()
        exchange = begin(dispatcher, peer, frame)
        if meets:
            taken.append(not left)
        return exchange

    def dispatched(dispatcher: Dispatcher, *arguments: Any) -> Any:
        left.append(True)
        return dispatch(dispatcher, *arguments)

    patch.setattr(Dispatcher, "begin", begun)
    patch.setattr(Dispatcher, "_begin", dispatched)


class Road:
    """A node and its connections, which have no sockets."""

    def __init__(self, clock: Clock, *, has_lanes: bool) -> None:
        self.clock = clock
        self.engine = MemoryEngine(ENGINE_BYTES)
        self._server = Server(BrokerSettings(), self.engine, Address("127.0.0.1", 0), None, clock)
        self._apis = [api if has_lanes else replace(api, open_lane=None) for api in APIS]
        self._topic_ids: set[bytes] = set()
        self.wires: list[Wire] = []
        self.connections: list[Connection] = []

    async def start(self) -> None:
        await self._server.start()
        self.node = self._server.node
        loop = asyncio.get_running_loop()
        self.receiving = Receiving(self.node.settings, loop)
        self._connections = Connections(loop, self.node.metrics, lambda: 100)
        self._dispatcher = Dispatcher(self.node, self._apis)

    async def stop(self) -> None:
        self.leave()
        await self._server.stop()

    def connect(self, count: int) -> None:
        for _ in range(count):
            wire = Wire()
            connection = Connection(self.node, self._dispatcher, self.receiving, self._connections, LISTENER)
            connection.connection_made(wire)
            self.wires.append(wire)
            self.connections.append(connection)

    def leave(self) -> None:
        for connection in self.connections:
            connection.connection_lost(None)
        self.connections.clear()
        self.wires.clear()

    @property
    def topics(self) -> Any:
        return self.node.cell.current.topics

    def topic_id(self, name: str) -> bytes:
        topic = self.topics.get(name)
        if topic is None:
            return TOPIC_ID
        self._topic_ids.add(topic.record.topic_id)
        return bytes(topic.record.topic_id)

    def _written(self, wire: Wire) -> bytes:
        written = bytes(wire.written)
        for topic_id in self._topic_ids:
            written = written.replace(topic_id, TOPIC_ID)
        return written

    def send(self, number: int, topic: str, pieces: Sequence[bytes]) -> None:
        """Pieces as they arrive, in which `TOPIC_ID` stands for the topic's; what is closed receives nothing."""
        if self.wires[number].is_closed:
            return
        connection = self.connections[number]
        for piece in pieces:
            data = piece.replace(TOPIC_ID, self.topic_id(topic))
            while data:
                buffer = connection.get_buffer(-1)
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                connection.buffer_updated(size)
                data = data[size:]

    async def settle(self) -> None:
        """Let everything be answered."""
        async with asyncio.timeout(20):
            while not all(map(self._is_quiet, self.connections, self.wires)):  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)

    def _is_quiet(self, connection: Connection, wire: Wire) -> bool:
        """What had begun when a connection closed ends too; what had not begun never does."""
        return connection.is_idle or (wire.is_closed and not connection._in_flight)

    def seen(self, name: str) -> dict[str, Any]:
        """What clients and the operator have seen, and what is stored."""
        topic, metrics = self.topics.get(name), self.node.metrics
        return {
            "answers": list(map(self._written, self.wires)),
            "closed": [wire.is_closed for wire in self.wires],
            "paused": [wire.is_paused for wire in self.wires],
            "errors": dict(metrics.errors),
            "bytes": (metrics.bytes_in, metrics.bytes_out, metrics.protocol_errors),
            "requests": {(each.api, each.version): each.count for each in metrics.routes},
            "held": (self.receiving.budget.taken, self.node.answers.made, len(self.node.sessions)),
            "partitions": [] if topic is None else [partition_seen(each) for each in topic.partitions],
        }


def partition_seen(partition: PartitionServer) -> dict[str, Any]:
    """Its records' bytes, its producers, its counters."""
    counters, run = partition.writer.counters, partition.state.head.run
    return {
        "offsets": (partition.start_offset, partition.end_offset, partition.leader_epoch),
        "bytes": b"".join(map(bytes, run.slices(run.base, run.end))),
        "bodies": list(partition.state.bodies.spans()),
        "producers": {key: tuple(each.batches) for key, each in partition.state.producers.producers.items()},
        "counters": (counters.written, counters.bytes_written, counters.duplicates, counters.duplicate_bytes),
        "errors": dict(counters.errors),
        "reads": (partition.reader.counters.reads, partition.reader.counters.bytes_read),
        "watchers": len(partition.watchers),
    }


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
