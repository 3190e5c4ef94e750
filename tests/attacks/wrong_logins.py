"""A flood of wrong logins: python -m tests.attacks.wrong_logins KIND HOST:PORT RATE SECONDS, which prints how many were
refused. KIND is PLAIN, SCRAM-SHA-256, Basic, or Basic-kept: connections are kept for further logins, as HTTP allows."""

import asyncio
import base64
import itertools
import sys
import time

from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire import request_frame

CONNECTIONS_MAX = 600
USERS = ("alice", "root", "nobody")
BASIC, BASIC_KEPT = "Basic", "Basic-kept"
_numbers = itertools.count()
_kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
"""Connections that wait for another login."""


async def flood(kind: str, address: str, rate: float, seconds: float) -> int:
    """Begin `rate` logins a second, each with a connection of its own or a kept one; return how many were refused."""
    host, _, port = address.rpartition(":")
    begun, end = time.monotonic(), time.monotonic() + seconds
    waiting: set[asyncio.Task[bool]] = set()
    refused = 0
    for number in itertools.count():
        due = begun + number / rate
        if due > end or time.monotonic() > end:
            break
        while due > time.monotonic() or len(waiting) >= CONNECTIONS_MAX:  # noqa: ASYNC110 (a clock sets no event)
            await asyncio.sleep(0.001)
        task = asyncio.create_task(_try(kind, host, int(port)))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        refused += 1
    if waiting:
        await asyncio.wait(waiting, timeout=10)
    return refused


async def _try(kind: str, host: str, port: int) -> bool:
    try:
        reader, writer = _kept.pop() if _kept else await asyncio.open_connection(host, port)
        is_open = False
        try:
            number = next(_numbers)
            name = USERS[number % len(USERS)]
            for message in _sasl(kind, name, number) if kind not in (BASIC, BASIC_KEPT) else _http(name, number):
                writer.write(message)
                is_open = bool(await asyncio.wait_for(reader.read(4096), 10))
        finally:
            if is_open and kind == BASIC_KEPT:
                _kept.append((reader, writer))
            else:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return True


def _sasl(kind: str, name: str, number: int) -> list[bytes]:
    shake = request_frame(SaslHandshakeRequest(mechanism=kind), 1)
    if kind == "PLAIN":
        return [shake, _token(f"\0{name}\0wrong-{number}".encode())]
    return [shake, _token(f"n,,n={name},r=x{number}".encode()), _token(b"c=biws,r=x,p=AAAA")]


def _token(token: bytes) -> bytes:
    return request_frame(SaslAuthenticateRequest(auth_bytes=token), 2)


def _http(name: str, number: int) -> list[bytes]:
    given = base64.b64encode(f"{name}:wrong-{number}".encode()).decode()
    return [f"GET /v1/node HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {given}\r\n\r\n".encode()]


if __name__ == "__main__":
    print(asyncio.run(flood(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
