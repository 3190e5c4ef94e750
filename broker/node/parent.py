"""Parent of the processes of a broker with several nodes: `pqbroker serve --nodes N`.

It serves nothing. It locks the directory, holds the ports, starts the nodes, kills one that does not answer and starts
one again that has ended, which `child_states.py` describes. A node is started again only after its process is gone, so
no cell has two owners. After SIGHUP, or where the first node asks, it restarts all nodes (`rolling_restart.py`). The
lock of the directory belongs to the nodes too: while one of them still stops, no other parent starts.
"""

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pqbroker.broker.ground.node_ports import check_node_ports, hold_ports
from pqbroker.broker.node.child import SECRET_BYTES
from pqbroker.broker.node.child_states import ChildEvent, ChildHistory, ChildState
from pqbroker.broker.node.node_place import FIRST
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.rolling_restart import RollingRestart
from pqbroker.broker.node.serve import ServeError, ServeStart, WrongSettings, loop_factory, stop_on_signals
from pqbroker.broker.peers.link_rules import LinkBusy, LinkTerms
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.conf.addresses import parse_address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.peers import NODES_MAX
from pqbroker.storage.disk.directory import fsync_directory
from pqbroker.storage.engine_kinds import MEMORY

log = logging.getLogger(__name__)

STARTING_S: Final = 120.0
"""Seconds of silence that a process is allowed until it serves: it loads its modules meanwhile, and on a busy machine
that takes long."""
LEAVING_S: Final = 5.0
"""Seconds that a process has to end after it has closed its link by itself."""
KILL_LOOK_S: Final = 10.0
STOP_BEYOND_DRAIN_S: Final = 20.0
"""Seconds that a node has to stop, beside its drain timeout, before it is killed."""
KEEPING_S: Final = 2.0
"""Seconds that a first node has to note that all of them stop."""
DIGITS_MAX: Final = 9
TEXT_SHOWN: Final = 40
"""Characters of an invalid number that its error shows."""
FAILURES_SAID: Final = 3
"""Ends in a row from which on the log says what to do."""
_CURE: Final = (
    "its own lines before this one say why; mend that, and it serves by itself, or stop the broker and look with "
    "`pqbroker doctor`"
)
_CHILD: Final = "pqbroker.broker.node.child"


def count_nodes(text: str, settings: BrokerSettings, data: str) -> int:
    """Return the number of nodes that `--nodes` asks for. WrongSettings for one that this broker cannot have."""
    if text != "auto" and not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise WrongSettings(f"--nodes is {text[:TEXT_SHOWN]!r}; give a number from 1 to {NODES_MAX}, or auto")
    nodes = _nodes_for_cores(settings, data) if text == "auto" else int(text)
    if not 1 <= nodes <= NODES_MAX:
        raise WrongSettings(f"--nodes is {nodes}; a broker has 1 to {NODES_MAX}")
    if nodes > 1 and data == MEMORY:
        raise WrongSettings(f"--nodes is {nodes}, and nodes share no memory: give --data a directory, or --nodes 1")
    if nodes > max(1, settings.cells_max):
        raise WrongSettings(
            f"--nodes is {nodes}, which needs as many data cells, and pqbroker.cells.max is {settings.cells_max}: "
            "raise it, or have fewer nodes"
        )
    return nodes


def _nodes_for_cores(settings: BrokerSettings, data: str) -> int:
    """Return a node for each core, as far as the limit of cells and the data allow."""
    most = 1 if data == MEMORY else min(NODES_MAX, settings.cells_max)
    return max(1, min(os.cpu_count() or 1, most))


def serve_several(start: ServeStart, nodes: int, texts: Mapping[str, str], log_level: str) -> int:
    """Run the nodes until a signal to stop. Raises ServeError, AddressError, CannotListen."""
    locations = start.locations
    assert locations.http is not None
    check_node_ports(locations.kafka, locations.http, nodes)
    lock = _lock(Path(locations.data))
    try:
        listeners, held = hold_ports(locations.kafka, nodes)
        with held, tempfile.TemporaryDirectory(prefix="pqbroker-") as private:
            orders = Orders(
                0, nodes, texts, listeners, locations.http, locations.data, log_level, str(Path(private, "peers")),
                os.urandom(SECRET_BYTES), start.first_user,
            )  # fmt: skip
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(Parent(orders, start.settings, lock).run())
    finally:
        os.close(lock)


def _lock(data: Path) -> int:
    """Return a descriptor that holds the lock of the directory, which is made if it does not exist. ServeError."""
    try:
        made = [path for path in (data, *data.parents) if not path.exists()]
        data.mkdir(parents=True, exist_ok=True)
        for path in made:
            fsync_directory(path.absolute().parent)
        lock = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ServeError(f"{data} cannot be used: {error.strerror}; give a directory that may be written") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ServeError(
            f"{data} is served by another `pqbroker serve --nodes`, or its nodes still stop: stop it, or wait until "
            "its processes are gone"
        ) from None
    return lock


class NodeProcess:
    """The process of one node, over all its lives."""

    def __init__(self, orders: Orders, settings: BrokerSettings, lock: int, restarting: RollingRestart) -> None:
        self._orders = orders
        self._settings = settings
        self._lock = lock
        self._restarting = restarting
        self._history = ChildHistory()
        self._process: asyncio.subprocess.Process | None = None
        self._stops = asyncio.Event()
        self._serves = asyncio.Event()
        self._link: PeerLink | None = None
        self._is_restarted = False
        """True while it ends because of `restart`."""
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        self.served: asyncio.Future[Any] = loop.create_future()
        """Resolves when it serves for the first time, with what it says of itself."""
        self.failed: asyncio.Future[int] = loop.create_future()
        """Resolves with the exit status if it ends before that."""

    @property
    def number(self) -> int:
        return self._orders.node

    async def keep(self) -> None:
        """Have the process run until it is stopped, or fails before it has served once."""
        while not self._history.is_over:
            status = await self._live()
            if self._history.is_over:
                return
            if not self._history.has_served:
                self.failed.set_result(status)
                return
            if self._is_restarted:
                self._is_restarted = False
                continue
            back_off_s = self._history.back_off_s
            log.error(
                "node %d ended with status %d; it is started again in %g s%s", self.number, status, back_off_s,
                self._consequence(),
            )  # fmt: skip
            try:
                async with asyncio.timeout(back_off_s):
                    await self._stops.wait()
            except TimeoutError:
                continue

    async def stop(self, allowed_s: float) -> None:
        """Have the process stop as after SIGTERM; kill it when it takes longer."""
        self._history.step(ChildEvent.STOP, self._clock())
        self._stops.set()
        await self._terminate(allowed_s)

    async def restart(self, allowed_s: float) -> bool:
        """Have the process stop as after SIGTERM, and start again; return True when it serves. One that has ended
        already is waited for."""
        self._is_restarted = self._process is not None
        await self._terminate(allowed_s)
        self._serves.clear()
        try:
            async with asyncio.timeout(STARTING_S):
                await self._serves.wait()
        except TimeoutError:
            return False
        return True

    async def ask(self, method: PeerMethod, head: Any, timeout_s: float) -> None:
        """Ask the process for something that has no answer. PeerRefused."""
        if self._link is None:
            raise PeerRefused(f"node {self.number} does not run")
        try:
            await self._link.ask(encode_peer_call(method, head), timeout_s)
        except LinkBusy as busy:
            raise PeerRefused(str(busy)) from busy

    def _consequence(self) -> str:
        """Return what its end means to clients, as the rest of a line in the log."""
        text = "; other nodes run its cells meanwhile"
        if self.number == FIRST:
            silence_s = self._settings.node_silence_ms / 1000
            text = (
                f". It has the system cell: the other nodes serve their partitions for {silence_s:g} s without it, "
                "and then nothing until it serves again"
            )
        if self._history.failures < FAILURES_SAID:
            return text
        return f"{text}. It has ended {self._history.failures} times in a row soon after its start: {_CURE}"

    async def _terminate(self, allowed_s: float) -> None:
        process = self._process
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(allowed_s):
                await process.wait()
        except TimeoutError:
            log.error("node %d did not stop within %g s; it is killed", self.number, allowed_s)
            await self._kill(process)

    async def _live(self) -> int:
        """Start the process; return its exit status once it is gone."""
        self._history.step(ChildEvent.START, self._clock())
        ours, theirs = socket.socketpair()
        secret = os.urandom(SECRET_BYTES)
        ours.sendall(secret)
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", _CHILD, str(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), self._lock],
            )  # fmt: skip
        self._process = process
        if self._history.state is ChildState.STOPPING:
            _signal(process, signal.SIGTERM)
        log.info("node %d is process %d", self.number, process.pid)
        terms = LinkTerms(secret, silence_s=STARTING_S, greeting_s=STARTING_S)
        watch = _Watch(self, process, self._settings.node_silence_ms / 1000)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: PeerLink(terms, watch, is_door=True), sock=ours)
        self._link = link
        status = await process.wait()
        self._process = self._link = None
        self._serves.clear()
        link.close("the process has ended")
        watch.forget()
        self._history.step(ChildEvent.END, self._clock())
        return status

    def answer(self, method: PeerMethod) -> Any:
        """Answer the process. PeerRefused."""
        if method is PeerMethod.ORDERS:
            return self._orders.encode()
        if method is PeerMethod.RESTART_NODES:
            self._restarting.begin()
        elif method is not PeerMethod.RESTART_STATE:
            raise PeerRefused(f"a parent answers no {method.name}")
        return self._restarting.document()

    def note_ready(self, told: Any) -> None:
        """Note that the process serves."""
        self._history.step(ChildEvent.SERVE, self._clock())
        self._serves.set()
        http = self._orders.http
        if http is not None:  # where any free port was asked for it stays the same from now on
            address = parse_address(told["http"].rpartition("://")[2])
            self._orders = replace(self._orders, http=replace(http, address=address))
        if not self.served.done():
            self.served.set_result(told)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill a process, and return when it is gone: until then its cells stay offline."""
        while True:
            _signal(process, signal.SIGKILL)
            try:
                async with asyncio.timeout(KILL_LOOK_S):
                    await process.wait()
                    return
            except TimeoutError:
                log.error(
                    "node %d, process %d, does not end after SIGKILL: its cells stay offline until it is gone",
                    self.number, process.pid,
                )  # fmt: skip

    async def end(self, process: asyncio.subprocess.Process, why: str, leaving_s: float) -> None:
        """Kill a process that has lost its link; `leaving_s`: seconds that it has to end by itself."""
        try:
            async with asyncio.timeout(leaving_s):
                await process.wait()
                return
        except TimeoutError:
            log.error("node %d is killed: %s", self.number, why)
        await self._kill(process)


class _Watch:
    """The parent's end of the link to one process."""

    def __init__(self, node: NodeProcess, process: asyncio.subprocess.Process, silence_s: float) -> None:
        """`silence_s`: seconds of silence that are allowed once the process serves."""
        self._node = node
        self._process = process
        self._silence_s = silence_s
        self._ending: asyncio.Task[None] | None = None

    def opened(self, link: PeerLink) -> None:
        """Nothing is done before the process asks."""

    def noted(self, link: PeerLink, payload: bytes) -> None:
        method, head, _ = decode_peer_call(payload)
        if method is not PeerMethod.READY:
            raise LinkBroken(f"a note {method.name} came from a node")
        self._node.note_ready(head)
        link.allow_silence(self._silence_s)

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        try:
            method, _, _ = decode_peer_call(payload)
        except LinkBroken as broken:
            raise PeerRefused(str(broken)) from broken
        return encode_peer_call(method, self._node.answer(method))

    def closed(self, link: PeerLink, why: str) -> None:
        leaving_s = LEAVING_S if link.was_left else 0
        self._ending = asyncio.get_running_loop().create_task(self._node.end(self._process, why, leaving_s))

    def forget(self) -> None:
        """Kill nothing any more: the process is gone."""
        if self._ending is not None:
            self._ending.cancel()


class Parent:
    """All nodes of the broker. `lock`: the descriptor of the directory's lock."""

    def __init__(self, orders: Orders, settings: BrokerSettings, lock: int) -> None:
        self._orders = orders
        self._stop_s = settings.drain_timeout_ms / 1000 + STOP_BEYOND_DRAIN_S
        self._settings = settings
        self._lock = lock
        self._restarting = RollingRestart(self._stop_s)

    async def run(self) -> int:
        """Start the first node, then the others; print the line of a start; stop all after a signal. ServeError."""
        stopping = stop_on_signals()
        numbers = range(1, self._orders.nodes + 1)
        nodes = [
            NodeProcess(self._orders.for_node(number), self._settings, self._lock, self._restarting)
            for number in numbers
        ]
        keeping: list[asyncio.Task[None]] = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._restart_soon)
        try:
            for some in (nodes[:1], nodes[1:]):
                keeping += [asyncio.create_task(node.keep()) for node in some]
                await _until_serving(some, [stopping, *keeping])
            if not stopping.done():
                self._print_start(nodes[0].served.result())
            self._restarting.allow(nodes)
            await _first_of([stopping, *keeping])
            log.info("stopping: the nodes stop")
            await _keep_homes(nodes[0])
            return 0
        finally:
            self._restarting.close()
            await _stop_all(nodes, self._stop_s)
            for task in keeping:
                task.cancel()

    def _restart_soon(self) -> None:
        try:
            self._restarting.begin()
        except PeerRefused as refused:
            log.warning("%s", refused)

    def _print_start(self, told: Any) -> None:
        orders = self._orders
        kafka = ",".join(str(replace(listener, node=0)) for listener in orders.kafka)
        print(f"ready kafka={kafka} http={told['http']} data={orders.data}", flush=True)


class _NodeFailed(ServeError):
    """A node did not start; it has said why."""

    def __init__(self, number: int, status: int) -> None:
        super().__init__(f"node {number} ended with status {status} before it served; its lines above say why")
        self.status = WrongSettings.status if status == WrongSettings.status else ServeError.status


async def _until_serving(nodes: list[NodeProcess], ends: list[asyncio.Future[Any]]) -> None:
    """Return when all nodes serve, or one of `ends` is done. Raises ServeError for one that failed."""
    for node in nodes:
        await _first_of([node.served, node.failed, *ends])
        if node.failed.done():
            raise _NodeFailed(node.number, node.failed.result())


async def _first_of(ends: list[asyncio.Future[Any]]) -> None:
    """Return when one of these is done; raise what a defect raised."""
    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in done:
        if isinstance(end, asyncio.Task):
            end.result()


async def _keep_homes(first: NodeProcess) -> None:
    """Have the first node leave the cells where they are, while the others stop."""
    try:
        await first.ask(PeerMethod.STOPPING, None, KEEPING_S)
    except PeerRefused as refused:
        log.info("the first node stops too: %s", refused)


async def _stop_all(nodes: list[NodeProcess], allowed_s: float) -> None:
    """Stop all nodes but the first, side by side, then the first: until then it answers what they forward."""
    await asyncio.gather(*(node.stop(allowed_s) for node in nodes[1:]))
    await nodes[0].stop(allowed_s)


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        log.debug("process %d is gone already", process.pid)
