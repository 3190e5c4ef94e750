"""Places that clients connect to: addresses, listeners and their sockets."""

import errno
import logging
import socket
from asyncio import BaseProtocol
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.conf.addresses import Address as Address
from pqbroker.conf.addresses import AddressError as AddressError
from pqbroker.conf.addresses import parse_address as parse_address
from pqbroker.security.protocols import SecurityProtocol

log = logging.getLogger(__name__)
seldom = SeldomLog(log)

Connect = Callable[[], BaseProtocol]
"""Makes the protocol of a connection."""
BACKLOG = 1024
PORT_ATTEMPTS = 10
DEFAULT_NAME = "PLAINTEXT"
"""Name of a listener that is given none."""
HTTP_NAME = "HTTP"
"""Name of the HTTP address, for settings of one listener."""


EVERY_HOST: Final = frozenset(("", "0.0.0.0", "::"))
"""Hosts that stand for every address of the machine, and for none that clients could reach."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that Kafka clients come to, and the name that `advertised.listeners` has for it."""

    name: str
    address: Address
    advertised: Address | None = None
    """Address that its clients are sent to; None: the one that they reached."""
    takes_files: bool = True
    """True if answers may leave past the transport (`sendfile`). Under TLS they never do: they would be unencrypted."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    node: int = 0
    """Number of the node among several: its own port is as much above that of the address, which all nodes share
    (`node_ports.py`). 0: there is one node."""

    @property
    def shared_port(self) -> int:
        """Return the port that all nodes have, of several; 0: there is one node."""
        return self.address.port if self.node else 0

    @property
    def has_login(self) -> bool:
        """Return True if its clients log in by SASL."""
        return self.protocol.has_login

    def __str__(self) -> str:
        if self.name == HTTP_NAME:
            return f"{'https://' if self.protocol.is_encrypted else ''}{self.address}"
        return str(self.address) if self.name == DEFAULT_NAME else f"{self.name}://{self.address}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """[NAME://]HOST:PORT, one or several with commas, each of these with a name of its own; AddressError.

    One that is called by a security protocol has it; `with_protocols` says those of the others.
    """
    listeners = []
    for item in text.split(","):
        name, separator, address = item.strip().rpartition("://")
        name = name if separator else DEFAULT_NAME
        protocol = SecurityProtocol.__members__.get(name.upper(), SecurityProtocol.PLAINTEXT)
        listeners.append(Listener(name, parse_address(address), protocol=protocol))
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise AddressError(f"{text!r} has two listeners of one name; write INSIDE://HOST:PORT,OUTSIDE://HOST:PORT")
    if not all(names):
        raise AddressError(f"{text!r} has a listener of no name; write NAME://HOST:PORT")
    return tuple(listeners)


def with_protocols(listeners: Iterable[Listener], protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    """Return the listeners with the protocols that `listener.security.protocol.map` gives them; AddressError for one
    that it does not name."""
    found = []
    for listener in listeners:
        protocol = protocols.get(listener.name.upper())
        if protocol is None:
            raise AddressError(
                f"listener.security.protocol.map has no protocol for the listener {listener.name}; add "
                f"{listener.name}:SSL or another protocol to it"
            )
        found.append(replace(listener, protocol=protocol))
    return tuple(found)


def advertised_addresses(listeners: Sequence[Listener], text: str) -> Mapping[str, Address]:
    """Return where each listener sends its clients (`advertised.listeners`), by name. Raise AddressError.

    A listener without an entry sends them where they came. A node with one listener takes the entry of its name, or
    else the first. {port} in an entry stands for the port that the listener has.
    """
    if not text:
        return {}
    try:
        told = {listener.name: listener.address for listener in parse_listeners(text.replace("{port}", "0"))}
    except AddressError as error:
        raise AddressError(f"advertised.listeners: {error}") from None
    names = [listener.name for listener in listeners]
    if len(names) == 1:
        told = {names[0]: told.get(names[0]) or next(iter(told.values()))}
    unknown = sorted(told.keys() - set(names))
    if unknown:
        raise AddressError(
            f"advertised.listeners names {', '.join(unknown)}; the listeners are {', '.join(names)}: use their names"
        )
    ports = {listener.name: listener.address.port for listener in listeners}
    return {name: replace(address, port=address.port or ports[name]) for name, address in told.items()}


class CannotListen(Exception):
    """Nothing can be listened on at an address; the text names cause and cure."""


def bind_all(listeners: Iterable[Listener]) -> list[tuple[Listener, list[socket.socket]]]:
    """Listening sockets of every listener, its address with its port; CannotListen leaves none open."""
    bound: list[tuple[Listener, list[socket.socket]]] = []
    try:
        for listener in listeners:
            sockets, address = _bind_for(listener)
            bound.append((replace(listener, address=address), sockets))
    except CannotListen:
        close_all(bound)
        raise
    return bound


def _bind_for(listener: Listener) -> tuple[list[socket.socket], Address]:
    if not listener.node:
        return bind(listener.address)
    shared, own = bind_shared(listener.address), replace(listener.address, port=listener.address.port + listener.node)
    try:
        return shared + bind_shared(own), listener.address
    except CannotListen:
        for listening in shared:
            listening.close()
        raise


def close_all(bound: Iterable[tuple[Listener, list[socket.socket]]]) -> None:
    for _, sockets in bound:
        for listening in sockets:
            listening.close()


def bind(address: Address) -> tuple[list[socket.socket], Address]:
    """Listening sockets for an address, all with one port, and the address with that port; CannotListen.

    localhost means 127.0.0.1 and ::1 (librdkafka tries ::1 first); a machine without IPv6 has the first only.
    """
    hosts = _hosts_of(address)
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


def bind_shared(address: Address, *, listens: bool = True) -> list[socket.socket]:
    """Sockets for an address with a port that other processes of the same user may bind so too, and clients are spread
    over those that listen. CannotListen. `listens=False`: the port is held, and no client comes."""
    shared = _SharedPort(listens)
    first, *others = _hosts_of(address)
    held = _listen(first, address.port, shared)
    try:
        return [held, *_listen_also(others, address.port, shared)]
    except CannotListen:
        held.close()
        raise


def _hosts_of(address: Address) -> list[str]:
    return ["127.0.0.1", "::1"] if address.host == "localhost" else [address.host]


@dataclass(frozen=True, slots=True)
class _SharedPort:
    """A port that several processes bind."""

    listens: bool


def _listen_also(hosts: list[str], port: int, shared: _SharedPort | None = None) -> list[socket.socket]:
    listening = []
    for host in hosts:
        try:
            listening.append(_listen(host, port, shared))
        except _NoSuchAddress:
            log.warning("this machine has no %s; localhost is served on 127.0.0.1 only", host)
    return listening


class _NoSuchAddress(CannotListen):
    """The machine has no such address or address family."""


def _listen(host: str, port: int, shared: _SharedPort | None = None) -> socket.socket:
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
        if shared is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        if shared is None or shared.listens:
            listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refusal(error, where) from None
    listening.setblocking(False)
    return listening


def _refusal(error: OSError, where: Address) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        cure = "choose another by --kafka or --http, or 0 for a free one"
        return CannotListen(f"cannot listen on {where}: the port is in use; {cure}")
    if error.errno == errno.EADDRNOTAVAIL:
        return _NoSuchAddress(f"cannot listen on {where}: this machine has no such address")
    return CannotListen(f"cannot listen on {where}: {error.strerror}")
