"""Frames of all kinds before a login: python -m tests.broker.kafka.net.login_fuzz FRAMES [SEED]

A broker of its own takes each part of 20 000 frames, with a seed of its own. The command fails where a client comes
past the gate, an error is logged, bytes of the budget stay taken, or memory grows after the first parts.

Each connection gets some frames, whole, cut, of other APIs, with lying lengths, tokens of every mechanism with bytes
changed. None of them may come past the gate: `Escaped` says which did, and its seed.
"""

import asyncio
import gc
import logging
import random
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pqbroker.broker.ground.access import ANONYMOUS
from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.login import LoginState
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.login_gate import LoginEntrance, receiving_before_login
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.parts import Node
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.storage.memory import MemoryEngine
from pqbroker.tables.work.watching import resident_bytes
from tests.broker.kafka.net.test_connection import Wire
from tests.broker.wire import request_frame
from tests.support.web_tokens import ISSUER, SigningKey, bearer, publish, unsigned

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
FRAMES_OF_ONE = 6
TOGETHER = 20
"""Connections at a time; in a turn of the loop the frames of one of them are served."""
PART_FRAMES = 20_000
"""Frames of a seed, in a run of the command."""
PARTS_TO_SETTLE = 3
"""Parts after which memory may grow by GROWTH_BYTES_MAX."""
GROWTH_BYTES_MAX = 16 << 20
BEFORE_LOGIN = frozenset((17, 18, 36))
LISTENER = Listener("LOCKED", Address("127.0.0.1", 0), protocol=SecurityProtocol.SASL_PLAINTEXT)
SETTINGS = BrokerSettings(sasl_mechanisms=MECHANISMS, failed_login_delay_ms=0, sasl_bytes_max=4096)
KEY, STRANGE = SigningKey(), SigningKey("key-2")
BEARERS = (
    STRANGE.token("root"), unsigned(KEY.token("root")), KEY.token("root", exp=1), KEY.token("root", iss="https://other"),
    "e30.e30.e30", "a.b.c",
)  # fmt: skip
"""Tokens that prove nothing."""
TOKENS = (
    b"\0root\0wrong", b"\0\0", b"root", b"\0root\0", b"n,,n=root,r=abc", b"n,,n=root,r=abc,ext=1", b"n,a=x,n=root,r=a",
    b"c=biws,r=abc,p=AAAA", b"c=biws,r=", b"", b"\xff" * 20, *map(bearer, BEARERS), b"\x01", b"n,,\x01\x01",
    b"n,,n=" + b"=2C" * 500 + b",r=x", b"," * 2000,
)  # fmt: skip


class Escaped(AssertionError):
    """A client came past the gate."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A run ended with these counts."""

    frames: int
    connections: int
    answered: int
    """Connections that got at least one answer."""
    held_bytes: int
    """Bytes that the budget of clients before their login counts at the end: none."""


def random_frame(choice: random.Random) -> bytes:
    """A frame with its length, often one that could be meant."""
    kind = choice.randrange(8)
    if kind == 0:
        return struct.pack(">i", size := choice.choice((0, 1, 2, 7, 60))) + choice.randbytes(size)
    if kind == 1:
        return struct.pack(">i", choice.choice((-1, 4097, 1 << 30, 5))) + choice.randbytes(choice.randrange(20))
    if kind == 2:
        head = struct.pack(">hhih", choice.choice([*range(80), -1, 999]), choice.randrange(-1, 14), 1, -1)
        body = head + choice.randbytes(choice.randrange(60))
        return struct.pack(">i", len(body)) + body
    if kind == 3:
        token = bytearray(choice.choice(TOKENS))
        if token and choice.random() < 0.5:
            token[choice.randrange(len(token))] = choice.randrange(256)
        headed = request_frame(SaslAuthenticateRequest(auth_bytes=bytes(token)), choice.randrange(3))
        return headed if choice.random() < 0.7 else struct.pack(">i", len(token)) + bytes(token)
    if kind == 4:
        mechanism = choice.choice((*MECHANISMS, "GSSAPI", "", "x" * 300))
        return request_frame(SaslHandshakeRequest(mechanism=mechanism), choice.randrange(2))
    if kind == 5:
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        return request_frame(asked, choice.randrange(5))
    if kind == 6:
        return request_frame(MetadataRequest(topics=None), 12)
    whole = bytearray(random_frame(choice))
    if len(whole) > 4:
        whole[choice.randrange(4, len(whole))] ^= 1 << choice.randrange(8)
    return bytes(whole)


async def fuzz(frames: int, seed: int) -> Fuzzed:
    """Send the given number of frames."""
    with tempfile.TemporaryDirectory() as directory:
        url = publish(Path(directory) / "keys", KEY)
        oauth = {"sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.expected.issuer": ISSUER}
        settings = replace(SETTINGS, oauth=tuple(oauth.items()))
        server = Server(settings, MemoryEngine(64 << 20), [LISTENER])
        await server.start(FirstUser("root", "secret"))
    node, choice = server.node, random.Random(seed)
    before = receiving_before_login(SETTINGS, node.loop)
    entrance = LoginEntrance(Dispatcher(node, APIS), Receiving(SETTINGS, node.loop), Turns(node.loop))
    connect = partial(Connection, node, entrance, before, node.connections, LISTENER)
    sent = connections = answered = 0
    while sent < frames:
        many = [choice.randrange(1, FRAMES_OF_ONE + 1) for _ in range(TOGETHER)]
        served = await asyncio.gather(*(_serve(connect, choice, count, seed) for count in many))
        connections += len(served)
        sent += sum(count for count, _ in served)
        answered += sum(is_answered for _, is_answered in served)
        _check(node, seed)
    await server.stop()
    return Fuzzed(sent, connections, answered, before.budget.taken)


async def _serve(connect: Callable[[], Connection], choice: random.Random, count: int, seed: int) -> tuple[int, bool]:
    """Return how many frames the connection took before it was closed, and whether it got an answer."""
    wire = Wire()
    connection = connect()
    connection.connection_made(wire)
    login = connection.peer.login
    assert login is not None
    taken = 0
    for _ in range(count):
        data = random_frame(choice)
        if wire.is_closed or login.state is LoginState.FAILED:
            break
        taken += 1
        while data:
            buffer = connection.get_buffer(len(data))
            piece = data[: len(buffer)]
            buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))
            data = data[len(piece) :]
            if wire.is_closed:
                break
        for _ in range(TOGETHER + 4):
            await asyncio.sleep(0)
    if login.state is LoginState.LOGGED_IN or connection.peer.principal != ANONYMOUS:
        raise Escaped(f"seed {seed}")
    if any(connection.peer.apis >> key & 1 for key in range(90) if key not in BEFORE_LOGIN):
        raise Escaped(f"seed {seed}: an API before a login")
    connection.connection_lost(None)
    return taken, bool(wire.written)


def _check(node: Node, seed: int) -> None:
    served = {route.api for route in node.metrics.routes if route.count}
    if served - {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}:
        raise Escaped(f"seed {seed}: {served}")


class _Errors(logging.Handler):
    """Lines that the node logs as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main(frames: int, first_seed: int) -> None:
    """Send the frames, and say what came of it; Escaped."""
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    logging.getLogger().setLevel(logging.ERROR)
    sent = connections = answered = settled_bytes = 0
    for part in range(-(-frames // PART_FRAMES)):
        done = asyncio.run(fuzz(min(PART_FRAMES, frames - sent), first_seed + part))
        gc.collect()
        sent, connections, answered = sent + done.frames, connections + done.connections, answered + done.answered
        if done.held_bytes or errors.lines:
            raise Escaped(f"seed {first_seed + part}: {done.held_bytes} bytes held, errors {errors.lines[:3]}")
        rss_bytes = resident_bytes()
        if part < PARTS_TO_SETTLE:
            settled_bytes = rss_bytes
        elif rss_bytes > settled_bytes + GROWTH_BYTES_MAX:
            raise Escaped(f"seed {first_seed + part}: memory grew from {settled_bytes} to {rss_bytes} bytes")
        print(f"{sent} frames, {rss_bytes >> 20} MiB", flush=True)
    grown_mib = (resident_bytes() - settled_bytes) / (1 << 20)
    print(
        f"{sent} frames on {connections} connections, of which {answered} got an answer: nobody past the gate, "
        f"no error logged, {grown_mib:.1f} MiB more memory than after the first parts; seeds from {first_seed}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
