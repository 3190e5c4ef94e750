"""Thousands of HTTP connections that say nothing, send a byte now and then, or take no answer: /health answers.

`python -m tests.faults.test_http_crowd 10000` brings a larger crowd, and says what it saw.
"""

import asyncio
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from pqbroker.testing import MEMORY, Broker, broker
from tests.support.crowding import Crowding

SIZE = 1000
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
OPENAPI = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = (
    b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2000000\r\n\r\n"
)
ANSWER_S = 1.0
GROWTH_MIB = 250


class Silent(asyncio.Protocol):
    """Connects, and sends `beginning` at most."""

    beginning = b""
    drop = b""
    """Sent again and again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.beginning:
            transport.write(self.beginning)

    def go_on(self) -> None:
        if self.drop and not self.transport.is_closing():
            self.transport.write(self.drop)


class Dripping(Silent):
    """Sends a request byte by byte."""

    beginning = b"G"
    drop = b"E"


class SlowBody(Silent):
    """Sends a head, and a large body in small parts."""

    beginning = BODY + b" " * 20_000
    drop = b" " * 2000


class Deaf(Silent):
    """Asks and takes no answer."""

    beginning = METRICS
    drop = OPENAPI * 5

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()


class DeafToLists(Deaf):
    """As Deaf, without places of its own."""

    beginning = OPENAPI * 10


KINDS: list[type[Silent]] = [Silent, Dripping, SlowBody, Deaf, DeafToLists]


@pytest.fixture
def files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("kind", KINDS)
def test_health_answers_whatever_a_crowd_does(files: None, kind: type[Silent]) -> None:
    with broker(MEMORY) as running:
        with Crowding() as crowding:
            slowest_s, grown_mib = asyncio.run(besiege(running, kind, SIZE))
        assert slowest_s < ANSWER_S * crowding.times
        assert grown_mib < GROWTH_MIB
        assert "Traceback" not in running.log


async def besiege(running: Broker, kind: Callable[[], Silent], size: int) -> tuple[float, float]:
    """The slowest answer of /health in seconds while a crowd comes and stays, and the MiB that the broker grew by."""
    process = psutil.Process(running.pid)
    host, _, port = running.http.partition(":")
    loop = asyncio.get_running_loop()
    before = largest = process.memory_info().rss
    crowd: list[Silent] = []
    is_over = threading.Event()
    slowest = loop.run_in_executor(None, watch_health, host, int(port), is_over)
    try:
        for number in range(size):
            with suppress(ConnectionError):
                crowd.append((await loop.create_connection(kind, host, int(port)))[1])
            if number % 100 == 0:
                for one in crowd[-1000:]:
                    one.go_on()
                largest = max(largest, process.memory_info().rss)
    finally:
        is_over.set()
    slowest_s = await slowest
    for one in crowd:
        one.transport.abort()
    return slowest_s, (largest - before) / (1 << 20)


def watch_health(host: str, port: int, is_over: threading.Event) -> float:
    """Ask on new connections until it is over: the longest time that an answer took. Runs in a thread."""
    slowest_s = 0.0
    while not is_over.is_set():
        begun_s = time.monotonic()
        with socket.create_connection((host, port), 10 * ANSWER_S) as asking:
            asking.sendall(HEALTH)
            answer = asking.makefile("rb").readline()
        assert answer == b"HTTP/1.1 200 OK\r\n", answer
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
    return slowest_s


def main() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for kind in KINDS:
        with broker(MEMORY) as running:
            slowest_s, grown_mib = asyncio.run(besiege(running, kind, int(sys.argv[1])))
            print(f"{kind.__name__:12} health within {slowest_s:.2f} s, grown by {grown_mib:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
