"""TLS handshakes by the thousand: never begun, never finished, finished and dropped, and garbage. Others are served.

The attacker has one address. What must hold of the broker all the while: `attacked.py`.
"""

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.attacks.test_filled_budgets import repeated
from tests.attacks.test_shares import ATTACKER, HONEST
from tests.support.attacked import Attacked, attacked

IDLE = 1200
CHECKS = 5
ATTACKERS = 4
SERVED_S_MAX = 2.0


def client_hello(node: Attacked) -> bytes:
    """The first message of a client."""
    assert node.tls is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        node.tls.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def place(node: Attacked) -> tuple[str, int]:
    host, _, port = node.broker.kafka.rpartition(":")
    return host, int(port)


def check_honest(node: Attacked) -> None:
    """New clients of another address get their handshake and an answer in time, each."""
    for _ in range(CHECKS):
        started = time.perf_counter()
        with node.connect(source=HONEST) as caller:
            assert caller.ask(MetadataRequest(topics=[]), 12) is not None
        took = time.perf_counter() - started
        assert took < SERVED_S_MAX * node.crowding.times, took


def check_log_is_short(node: Attacked) -> None:
    assert len(node.broker.log.splitlines()) < 200, node.broker.log[-2000:]


@pytest.mark.parametrize("is_begun", [False, True], ids=["silent", "begun"])
def test_thousands_of_handshakes_that_are_never_finished(*, is_begun: bool) -> None:
    with attacked(tls=True) as node, ExitStack() as stack:
        hello = client_hello(node) if is_begun else b""
        for _ in range(IDLE):
            one = stack.enter_context(socket.create_connection(place(node), 60, (ATTACKER, 0)))
            with suppress(OSError):
                one.sendall(hello)
        check_honest(node)
        check_log_is_short(node)


def flood(node: Attacked, kind: str) -> Callable[[], object]:
    """One step of an attacker, over and over."""
    hello = client_hello(node)
    tls = node.tls
    assert tls is not None

    def opened() -> socket.socket:
        return socket.create_connection(place(node), 10, (ATTACKER, 0))

    def begin() -> None:
        with opened() as one:
            one.sendall(hello)
            one.recv(1 << 14)

    def finish() -> None:
        with tls.wrap_socket(opened(), server_hostname="localhost"):
            pass

    def garbage() -> None:
        with opened() as one:
            one.sendall(hello[:50] + b"\xff" * 5000)
            one.recv(1 << 14)

    def plain() -> None:
        with opened() as one:
            one.sendall(b"\0\0\0\x10\0\x12\0\0")
            one.recv(1 << 14)

    return {"begin": begin, "finish": finish, "garbage": garbage, "plain": plain}[kind]


def test_floods_of_handshakes() -> None:
    """One kind after the other, on one broker."""
    with attacked(tls=True) as node:
        for kind in ("begin", "finish", "garbage", "plain"):
            with repeated(flood(node, kind), ATTACKERS):
                check_honest(node)
            check_honest(node)
            check_log_is_short(node)
