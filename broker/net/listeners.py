"""Listening sockets and the connections they brought: addresses, listeners, the limit on connections, draining."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pqbroker.broker.net.connection_limits import ConnectionLimits
from pqbroker.broker.net.seldom_log import SeldomLog
from pqbroker.broker.node.metrics import Metrics
from pqbroker.conf.addresses import Address as Address
from pqbroker.conf.addresses import AddressError as AddressError
from pqbroker.conf.addresses import parse_address as parse_address
from pqbroker.conf.broker import BrokerSettings

if TYPE_CHECKING:
    from pqbroker.broker.net.connection import Connection

log = logging.getLogger(__name__)
seldom = SeldomLog(log)

BACKLOG = 1024
PORT_ATTEMPTS = 10
DEFAULT_NAME = "PLAINTEXT"
"""Of a listener that is given none."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that Kafka clients come to, and the name that `advertised.listeners` has for it."""

    name: str
    address: Address
    advertised: Address | None = None
    """Where its clients are sent; None: to the address that they reached."""
    takes_files: bool = True
    """Whether answers may leave past the transport (`sendfile`): under TLS they would leave as plain text."""

    def __str__(self) -> str:
        return str(self.address) if self.name == DEFAULT_NAME else f"{self.name}://{self.address}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """[NAME://]HOST:PORT, one or several with commas, each of these with a name of its own; AddressError."""
    listeners = []
    for item in text.split(","):
        name, separator, address = item.strip().rpartition("://")
        listeners.append(Listener(name if separator else DEFAULT_NAME, parse_address(address)))
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise AddressError(f"{text!r} has two listeners of one name; write INSIDE://HOST:PORT,OUTSIDE://HOST:PORT")
    if not all(names):
        raise AddressError(f"{text!r} has a listener of no name; write NAME://HOST:PORT")
    return tuple(listeners)


def advertised_addresses(listeners: Sequence[Listener], text: str) -> Mapping[str, Address]:
    """Where each listener sends its clients (`advertised.listeners`), by name; AddressError.

    A listener without an entry sends them where they came. A node with one listener takes the entry of its name, or
    else the first.
    """
    if not text:
        return {}
    try:
        told = {listener.name: listener.address for listener in parse_listeners(text)}
    except AddressError as error:
        raise AddressError(f"advertised.listeners: {error}") from None
    names = [listener.name for listener in listeners]
    if len(names) == 1:
        return {names[0]: told.get(names[0]) or next(iter(told.values()))}
    unknown = sorted(told.keys() - set(names))
    if unknown:
        raise AddressError(
            f"advertised.listeners names {', '.join(unknown)}; the listeners are {', '.join(names)}: use their names"
        )
    return told


class CannotListen(Exception):
    """Nothing can be listened on at an address; the text names cause and cure."""


def bind_all(listeners: Iterable[Listener]) -> list[tuple[Listener, list[socket.socket]]]:
    """Listening sockets of every listener, its address with its port; CannotListen leaves none open."""
    bound: list[tuple[Listener, list[socket.socket]]] = []
    try:
        for listener in listeners:
            sockets, address = bind(listener.address)
            bound.append((replace(listener, address=address), sockets))
    except CannotListen:
        close_all(bound)
        raise
    return bound


def close_all(bound: Iterable[tuple[Listener, list[socket.socket]]]) -> None:
    for _, sockets in bound:
        for listening in sockets:
            listening.close()


def bind(address: Address) -> tuple[list[socket.socket], Address]:
    """Listening sockets for an address, all with one port, and the address with that port; CannotListen.

    localhost means 127.0.0.1 and ::1 (librdkafka tries ::1 first); a machine without IPv6 has the first only.
    """
    hosts = ["127.0.0.1", "::1"] if address.host == "localhost" else [address.host]
    for _ in range(PORT_ATTEMPTS):
        first = _listen(hosts[0], address.port)
        bound = Address(address.host, first.getsockname()[1])
        try:
            return [first, *_listen_also(hosts[1:], bound.port)], bound
        except CannotListen:
            first.close()
            if address.port:
                raise
    raise CannotListen(f"found no port that is free on each of {', '.join(hosts)}; name one")


def _listen_also(hosts: list[str], port: int) -> list[socket.socket]:
    listening = []
    for host in hosts:
        try:
            listening.append(_listen(host, port))
        except _NoSuchAddress:
            log.warning("this machine has no %s; localhost is served on 127.0.0.1 only", host)
    return listening


class _NoSuchAddress(CannotListen):
    """The machine has no such address or address family."""


def _listen(host: str, port: int) -> socket.socket:
    where = Address(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise CannotListen(f"cannot listen on {where}: unknown host; give an address of this machine") from None
    family, kind, protocol, _, address = found[0]
    try:
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _NoSuchAddress(f"cannot listen on {where}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refusal(error, where) from None
    listening.setblocking(False)
    return listening


def _refusal(error: OSError, where: Address) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return CannotListen(f"cannot listen on {where}: the port is in use; choose another, or 0 for a free one")
    if error.errno == errno.EADDRNOTAVAIL:
        return _NoSuchAddress(f"cannot listen on {where}: this machine has no such address")
    return CannotListen(f"cannot listen on {where}: {error.strerror}")


class ConnectionFacts(NamedTuple):
    """What is known of one connection and the client behind it."""

    client_id: str | None
    address: Address
    listener: str
    principal: str
    apis: int
    """API keys that it has used, each a bit."""
    bytes_in: int
    bytes_out: int
    idle_s: float
    """Time since its last request."""
    requests: int
    """Requests of it that are not answered."""


class Connections:
    """The open connections of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        connections_max: Callable[[], int],
        settings: Callable[[], BrokerSettings] | None = None,
    ) -> None:
        """`settings`: those in force now, for the limits of each address; None: there are no such limits."""
        self._loop = loop
        self._metrics = metrics
        self._limits = ConnectionLimits(connections_max, settings, loop.time)
        self._open: dict[Connection, int] = {}
        """With their numbers, which rise and are not used again."""
        self._count = 0
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> "Iterator[Connection]":
        """Those open now; they may close meanwhile."""
        return iter(list(self._open))

    def after(self, number: int) -> "list[tuple[int, Connection]]":
        """Those of a greater number, which came later, each with its own."""
        return [(own, connection) for connection, own in self._open.items() if own > number]

    def add(self, connection: "Connection") -> bool:
        """False above a limit: the connection must close. Another one may close for its sake."""
        limits = self._limits
        refusal = limits.refusal(connection)
        if refusal is None and not limits.has_room(connection):
            gives_way = limits.gives_way(connection, self._open)
            if gives_way is None:
                refusal = limits.full(connection)
            else:
                self._metrics.connections_gave_way += 1
                self.remove(gives_way)
                gives_way.give_way()
        if refusal is not None:
            self._metrics.connections_refused += 1
            seldom.warning("connection from %s refused: %s", connection.peer.host, refusal)
            return False
        self._count += 1
        self._open[connection] = self._count
        limits.count(connection)
        self._metrics.connections = len(self._open)
        return True

    def remove(self, connection: "Connection") -> None:
        if self._open.pop(connection, None) is not None:
            self._limits.forget(connection)
        self._metrics.connections = len(self._open)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def close_lanes(self) -> None:
        """Have the next request of every connection dispatched: what a lane goes by holds no longer."""
        for connection in self:
            connection.peer.lanes.clear()

    def close_idle(self, idle_s: float) -> None:
        since = self._loop.time() - idle_s
        for connection in self:
            connection.close_if_idle_since(since)

    def cut_stalled(self, stall_s: float) -> None:
        """Cut every connection whose peer takes too little of its answers."""
        for connection in self:
            connection.cut_if_stalled(stall_s)

    async def drain(self, timeout_s: float) -> None:
        """Let every connection answer what it has received; abort those that take longer."""
        for connection in self:
            connection.drain()
        if not self._open:
            return
        self._emptied = self._loop.create_future()
        await asyncio.wait([self._emptied], timeout=timeout_s)
        if self._open:
            log.warning("%d connections did not drain in %g s and are cut", len(self._open), timeout_s)
            for connection in self:
                connection.abort()
