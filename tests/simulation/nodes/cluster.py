"""The broker of several nodes as it is assembled, from its real parent down: what it calls of the system is replaced.

Replaced are the start of a process, the sockets to it, its log, its collector of garbage and its clock. Everything else
is the product's: `Parent`, `child`, `Server`, links, homes, cells, groups, transactions.
"""

import asyncio
import contextlib
import io
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Self
from unittest.mock import patch

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.node.child import _run
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.parent import NodeProcess, Parent
from pqbroker.broker.node.serve import ServeError
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse
from pqbroker.protocol.errors import ProtocolError
from pqbroker.storage.engine_kinds import ENGINE_KINDS
from tests.broker.wire import BY_REQUEST, read_response, request_frame
from tests.simulation.ledger import expect
from tests.simulation.nodes.directory import ProcessShard, SharedDirectory, SharedKind
from tests.simulation.nodes.network import NodesLoop
from tests.simulation.nodes.processes import CURRENT, SimulatedProcess

START_MS = 1_700_000_000_000
UP_S = 120.0
"""Seconds that all nodes have to serve, where nothing stands in their way."""
LOCK = 0
"""Stands for the descriptor of the directory's lock."""
ADDRESS = Address("broker", 9092)
_STARTING: ContextVar[int] = ContextVar("starting")
"""Number of the node whose process the parent starts."""


class Cluster:
    """Starts and stops the parent, and has the process of each node, the latest of several."""

    def __init__(self, loop: NodesLoop, count: int, texts: dict[str, str], *, has_locks: bool) -> None:
        self.loop = loop
        self.count = count
        self.directory = SharedDirectory(has_locks=has_locks)
        self.processes: dict[int, SimulatedProcess] = {}
        orders = Orders(0, count, texts, (), None, SharedKind.name, "error", "/no such place/peers", b"secret" * 6)
        self._parent = Parent(orders, parse(BrokerSettings, texts), LOCK)
        self._running: asyncio.Task[int] | None = None

    def clock(self) -> int:
        """Milliseconds since 1970."""
        return START_MS + int(self.loop.time() * 1000)

    async def start(self) -> None:
        """Return when all nodes serve."""
        self._running = self.loop.create_task(self._parent.run())
        await self._until_up()

    @property
    def is_up(self) -> bool:
        """Return True if all nodes serve."""
        return len(self.processes) == self.count and all(
            one.server is not None and not one.is_stopped and not one.is_dead for one in self.processes.values()
        )

    async def _until_up(self) -> None:
        assert self._running is not None
        deadline = self.loop.time() + UP_S
        while not self.is_up:
            await asyncio.sleep(0.05)
            assert not self._running.done(), "the parent has ended"
            expect(self.loop.time() < deadline, f"nodes do not serve {UP_S:g} s after they were started")

    async def stop(self) -> None:
        """Stop all nodes as after SIGTERM."""
        assert self._running is not None
        self.loop.parents_signals[signal.SIGTERM]()
        status = await self._running
        assert status == 0

    async def kill_all(self) -> None:
        """Kill all processes; return when those that the parent starts instead serve."""
        for process in list(self.processes.values()):
            process.end(-signal.SIGKILL)
        await self._until_up()

    def restart_all(self) -> None:
        """Have the parent restart the nodes one by one."""
        self.loop.parents_signals[signal.SIGHUP]()

    def spawn(self, secret: bytes, number: int) -> SimulatedProcess:
        """Start the process of a node."""
        process = SimulatedProcess(self.loop, number)
        self.loop.processes.append(process)
        self.processes[number] = process
        ours, theirs = self.loop.network.pair(None, process)
        self.loop.ends[None], self.loop.ends[process] = ours, theirs
        socket: Any = process
        task = self.loop.create_task(_run(socket, secret), context=process.context)
        task.add_done_callback(partial(self._ended, process), context=process.context)
        return process

    def _ended(self, process: SimulatedProcess, task: "asyncio.Task[int]") -> None:
        if task.cancelled() or self.loop.is_over:
            return
        error = task.exception()
        if error is not None and not isinstance(error, ServeError):
            self.loop.defects.append(f"node {process.number} ended: {error!r}")
        process.end(0 if error is None else 1)

    async def ask(self, connections: "Connections", number: int, request: Any, version: int, patience_s: float) -> Any:
        """Return the answer of a node to a client that has these connections; None: there is none, the connection is
        closed, and nobody knows what became of the request."""
        process, loop = self.processes.get(number), asyncio.get_running_loop()
        if process is None or process.is_dead or process.server is None:
            await asyncio.sleep(0)
            return None
        peer = _peer_of(connections, number, process)
        answer: asyncio.Future[bytes | None] = loop.create_future()
        process.run(_begin, process.server, peer, request_frame(request, version), answer)
        impatience = loop.call_later(patience_s, _give_up, answer)
        try:
            data = await answer
        finally:
            impatience.cancel()
        if data is None:
            del connections[number]
            process.run(peer.leave)
            return None
        return read_response(BY_REQUEST[type(request)], version, data[4:])[1]


Connections = dict[int, tuple[SimulatedProcess, Peer]]
"""A client's connections by the number of their node. One carries a request at a time."""


def _peer_of(connections: Connections, number: int, process: SimulatedProcess) -> Peer:
    known = connections.get(number)
    if known is None or known[0] is not process:
        peer = Peer(node=process.server.node, address=ADDRESS, host="client", port=1, holder="client")
        known = connections[number] = process, peer
    return known[1]


def _give_up(answer: "asyncio.Future[bytes | None]") -> None:
    if not answer.done():
        answer.set_result(None)


def _begin(server: Server, peer: Peer, frame: bytes, answer: "asyncio.Future[bytes | None]") -> None:
    """Serve a request as a connection does, and have its answer come to the client."""
    door = server._forwarder or server._dispatcher

    def finish() -> None:
        if exchange.is_done and not answer.done():
            told = exchange.output
            answer.set_result(None if told is None else b"".join(map(bytes, told)))  # type: ignore[arg-type]

    try:
        exchange = door.begin(peer, memoryview(bytearray(frame[4:])))
    except ProtocolError:
        if not answer.done():
            answer.set_result(None)
        return
    exchange.listener = finish
    finish()


class _NodeProcess(NodeProcess):
    """Says which node it starts a process of."""

    async def _live(self) -> int:
        _STARTING.set(self.number)
        return await super()._live()


class _Server(Server):
    """Says to its process that it serves."""

    async def start(self, first_user: FirstUser | None = None) -> None:
        await super().start(first_user)
        process = CURRENT.get()
        assert process is not None
        process.server = self


class _Collector:
    """Python's own collector is enough: many runs share a process."""

    def begin(self, served: int = 0) -> None:
        """Begin nothing."""

    async def collect_at_quiet_moments(self, *_: Any) -> None:
        """Collect nothing."""


class _Socket:
    """One of a pair, over which nothing but the secret goes: the rest is a stream of the simulated network."""

    secret = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def sendall(self, secret: bytes) -> None:
        _Socket.secret = secret

    def setblocking(self, _: bool) -> None:
        """Nothing blocks."""

    def fileno(self) -> int:
        return 0


@contextmanager
def replaced(cluster: Cluster) -> Iterator[None]:
    """Have the product run on what stands for the system."""

    async def load_at_once(later: Any) -> Any:
        """Load modules in the same turn: else a run would take other turns than one that finds them loaded."""
        if later._loaded is None:
            later._loaded = later._load()
        return later._loaded

    async def start_process(*_: Any, **__: Any) -> SimulatedProcess:
        return cluster.spawn(_Socket.secret, _STARTING.get())

    base = "pqbroker.broker.node"
    with ExitStack() as stack:
        for target, stand_in in (
            ("asyncio.create_subprocess_exec", start_process),
            ("pqbroker.broker.web.routing.loading.LoadedLater.get", load_at_once),
            (f"{base}.parent.socket.socketpair", lambda: (_Socket(), _Socket())),
            (f"{base}.child.begin_log", lambda _: None),
            (f"{base}.child.set_log_format", lambda _: None),
            (f"{base}.serve.CycleCollector", _Collector),
            (f"{base}.node_server.Server", partial(_Server, clock=cluster.clock)),
            (f"{base}.parent.NodeProcess", _NodeProcess),
            (f"{base}.server.Turns", lambda loop: Turns(loop, loop.time)),
            ("pqbroker.storage.memory.MemoryShard", ProcessShard),
            ("pqbroker.storage.engine_kinds.ENGINE_KINDS", (SharedKind(cluster.directory), *ENGINE_KINDS)),
        ):
            stack.enter_context(patch(target, stand_in))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        yield
