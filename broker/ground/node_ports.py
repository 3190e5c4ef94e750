"""Ports of a broker of several nodes. A listener's own port leads to any node, so clients begin there (bootstrap); node
K has the port that is K above it. All are held while the broker runs, so that no other program gets one while its node
is restarted.
"""

import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pqbroker.broker.ground.listeners import (
    Address,
    AddressError,
    CannotListen,
    Listener,
    bind,
    bind_shared,
)

_PORT_MAX = 65_535
PORT_ROWS_TRIED = 1000
"""Tries to find free ports in a row: connections that have just ended keep thousands of ports for a minute."""


def check_node_ports(listeners: Sequence[Listener], http: Listener, nodes: int) -> None:
    """Check that the ports of all nodes exist, and that no two listeners, HTTP included, have one. AddressError."""
    known: dict[int, str] = {}
    for listener in (*listeners, http):
        count = 0 if listener is http else nodes
        first = listener.address.port
        if not first:
            continue
        if first + count > _PORT_MAX:
            raise AddressError(
                f"listener {listener.name}: {nodes} nodes have the ports {first + 1} to {first + count}, and the last "
                f"port is {_PORT_MAX}; choose a lower one"
            )
        for port in range(first, first + count + 1):
            if port in known:
                raise AddressError(
                    f"the listeners {known[port]} and {listener.name} would both have port {port}: with {nodes} nodes "
                    f"a listener has its own port and the {nodes} above it; move one of them"
                )
            known[port] = listener.name


def hold_ports(listeners: Iterable[Listener], nodes: int) -> tuple[tuple[Listener, ...], ExitStack]:
    """Return the listeners, each with its port where any free one was asked for, and what holds the ports of all nodes
    until it is closed. CannotListen where another program has one; AddressError."""
    held, found = ExitStack(), []
    try:
        for listener in listeners:
            sockets, port = _hold(listener.address, nodes)
            for holding in sockets:
                held.enter_context(holding)
            found.append(replace(listener, address=replace(listener.address, port=port)))
    except CannotListen:
        held.close()
        raise
    return tuple(found), held


def _hold(address: Address, nodes: int) -> tuple[list[socket.socket], int]:
    for attempt in range(PORT_ROWS_TRIED):
        first = _probed(address)
        held: list[socket.socket] = []
        try:
            for port in range(first, first + nodes + 1):
                _probed(replace(address, port=port))
                held += bind_shared(replace(address, port=port), listens=False)
        except CannotListen:
            for holding in held:
                holding.close()
            if address.port or attempt == PORT_ROWS_TRIED - 1:
                raise
        else:
            return held, first
    raise AssertionError("the last attempt returns or raises")


def _probed(address: Address) -> int:
    """Return the port, which no other program listens on now. CannotListen: a shared port alone would not say so."""
    sockets, bound = bind(address)
    for listening in sockets:
        listening.close()
    return bound.port
