"""Streams between processes: each direction keeps its order, is delayed, and can be cut alone.

What is sent into a cut waits, as packets that are sent again, and arrives once the cut is healed. The bytes that a
process sent before it died arrive, and then the end of the stream.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from tests.simulation.nodes.processes import CURRENT, PARENT, ProcessLoop, SimulatedProcess

LATENCY_S = 0.0005


class Direction:
    """One direction of a stream, to a protocol that a process has or will have."""

    def __init__(self, network: "Network", way: tuple[int, int], receiver: SimulatedProcess | None) -> None:
        self._network = network
        self.way = way
        self._receiver = receiver
        self._queue: list[bytes] = []
        self._is_due = self._is_ended = self._is_over = False
        self.protocol: Any = None

    @property
    def waiting_bytes(self) -> int:
        return sum(map(len, self._queue))

    def send(self, data: bytes) -> None:
        self._queue.append(bytes(data))
        self.flow()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self.flow()

    def drop(self) -> None:
        """Nobody takes anything any more."""
        self._is_over = True
        self._queue.clear()

    def flow(self) -> None:
        """Have what waits arrive soon."""
        if not self._is_due and not self._is_over and self.protocol is not None:
            self._is_due = True
            self._network.loop.call_later(LATENCY_S, self._arrive, context=self._network.context)

    def _arrive(self) -> None:
        self._is_due = False
        if self._network.is_cut(self.way) or self._is_over:
            return
        data, self._queue = b"".join(self._queue), []
        if data:
            self._call(self._take, data)
        if self._is_ended:
            self._is_over = True
            self._call(self.protocol.connection_lost, None)

    def _take(self, data: bytes) -> None:
        if not self._is_over or self._is_ended:
            self.protocol.data_received(data)

    def _call(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._receiver is None:
            self._network.loop.call_soon(call, *arguments)
        else:
            self._receiver.run(call, *arguments)


class StreamEnd(asyncio.Transport):
    """The transport of one end."""

    def __init__(self, owner: SimulatedProcess | None, outgoing: Direction, incoming: Direction) -> None:
        super().__init__()
        self._owner = owner
        self._outgoing = outgoing
        self._incoming = incoming
        self._is_closed = False
        if owner is not None:
            owner.ends.append(self.abort)

    def begin(self, protocol: Any) -> None:
        """Give the protocol what came and comes."""
        self._incoming.protocol = protocol
        protocol.connection_made(self)
        self._incoming.flow()

    def write(self, data: Any) -> None:
        if not self._is_closed and not (self._owner is not None and self._owner.is_dead):
            self._outgoing.send(data)

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._incoming.drop()
            self._outgoing.end()

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self._is_closed

    def get_write_buffer_size(self) -> int:
        return self._outgoing.waiting_bytes


class _Door:
    """A process listens with it at a path; it has what is used of `asyncio.Server`."""

    def __init__(self, network: "Network", path: str, make: Callable[[], Any], owner: SimulatedProcess) -> None:
        self.make = make
        self.owner = owner
        self._network, self._path = network, path

    def close(self) -> None:
        if self._network.doors.get(self._path) is self:
            del self._network.doors[self._path]


class Network:
    """All streams of a run."""

    def __init__(self, loop: "NodesLoop") -> None:
        self.loop = loop
        self.context = copy_context()
        """It is the context of no process: what is on its way arrives, also when its sender has died."""
        self.doors: dict[str, _Door] = {}
        self._directions: list[Direction] = []
        self._cuts: set[tuple[int, int]] = set()

    def is_cut(self, way: tuple[int, int]) -> bool:
        return way in self._cuts

    def cut(self, way: tuple[int, int]) -> None:
        """Let nothing arrive that goes from one node to another; the other direction goes on."""
        self._cuts.add(way)

    def heal(self, way: tuple[int, int]) -> None:
        self._cuts.discard(way)
        for direction in self._directions:
            if direction.way == way:
                direction.flow()

    def heal_all(self) -> None:
        for way in list(self._cuts):
            self.heal(way)

    def pair(self, one: SimulatedProcess | None, other: SimulatedProcess | None) -> tuple[StreamEnd, StreamEnd]:
        """Return both ends of a stream between two processes; None: the parent."""
        ways = [(_number(one), _number(other)), (_number(other), _number(one))]
        there, back = Direction(self, ways[0], other), Direction(self, ways[1], one)
        self._directions += there, back
        return StreamEnd(one, there, back), StreamEnd(other, back, there)


class NodesLoop(ProcessLoop):
    """A loop of processes, with streams between them for the calls that the broker makes."""

    def __init__(self, thread_seconds: Callable[[], float], defects: list[str] | None = None) -> None:
        super().__init__(thread_seconds, defects)
        self.network = Network(self)
        self.ends: dict[Any, StreamEnd] = {}
        """Ends of streams by the sockets that stand for them."""

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        owner = CURRENT.get()
        assert owner is not None, "the parent has no door"
        door = self.network.doors[str(path)] = _Door(self.network, str(path), protocol_factory, owner)
        owner.ends.append(door.close)
        return door

    async def create_unix_connection(
        self, protocol_factory: Any, path: Any = None, *, sock: Any = None, **_: Any
    ) -> Any:
        if sock is not None:
            end = self.ends.pop(sock if sock in self.ends else None)
        else:
            door = self.network.doors.get(str(path))
            if door is None:
                raise ConnectionRefusedError(f"nobody listens at {path}")
            end, others = self.network.pair(CURRENT.get(), door.owner)
            door.owner.run(lambda: others.begin(door.make()))
        protocol = protocol_factory()
        end.begin(protocol)
        return end, protocol


def _number(process: SimulatedProcess | None) -> int:
    return PARENT if process is None else process.number
