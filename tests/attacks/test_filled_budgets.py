"""One address fills a budget that addresses share, each in its turn; another address is served within a second."""

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.attacks.test_shares import ATTACKER, HONEST, TOPIC, prepare
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import request_frame
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, Caller, attacked

MIB = 1 << 20
CHECKS = 5
SETTLE_S = 0.5
"""Time for what an attacker sent to fill the budget."""
WAITING_S = 3.0


@dataclass(frozen=True, slots=True)
class Filling:
    """How a budget is filled: `fill` begins it, and ends it with the stack."""

    budget: str
    """The limit's first setting."""
    fill: Callable[[Attacked, ExitStack], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    use: Callable[[Attacked], None] | None = None
    """What another address wants of the same budget."""


def connected(node: Attacked, stack: ExitStack, count: int) -> list[Caller]:
    return [stack.enter_context(Caller(node.broker.kafka, source=ATTACKER)) for _ in range(count)]


def http_connected(node: Attacked, stack: ExitStack, count: int) -> list[socket.socket]:
    host, _, port = node.broker.http.rpartition(":")
    come_from = (ATTACKER, 0)
    return [
        stack.enter_context(socket.create_connection((host, int(port)), timeout=60, source_address=come_from))
        for _ in range(count)
    ]


@contextmanager
def repeated(step: Callable[[], object], threads: int = 1) -> Iterator[None]:
    """Take the step again and again, in threads; an OSError of it is no error: the broker may cut."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            try:
                step()
            except OSError:
                time.sleep(0.01)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in running:
            thread.join()


def send(caller: Caller, data: bytes) -> None:
    """As much of it as the broker takes."""
    caller.socket.settimeout(0.2)
    try:
        caller.socket.sendall(data)
    except OSError:
        return


def whole_requests(node: Attacked, stack: ExitStack) -> None:
    """Requests that wait behind a member that joins a group and waits for others."""
    frame = request_frame(produce_request(TOPIC, make_batch(b"v" * 60_000)), 9)
    for number, caller in enumerate(connected(node, stack, 12)):
        for _ in range(2):  # the second member waits for the first to join again
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            join = JoinGroupRequest(
                group_id=f"g{number}", session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
                protocol_type="consumer", protocols=protocols,
            )  # fmt: skip
            one = stack.enter_context(Caller(node.broker.kafka, source=ATTACKER))
            one.send(join, 1)
            time.sleep(0.02)
        caller.send(join, 1)
        send(caller, frame * 60)


def large_unfinished(node: Attacked, stack: ExitStack) -> None:
    for caller in connected(node, stack, 40):
        send(caller, struct.pack(">i", 3 * MIB) + bytes(2 * MIB))


def small_unfinished(node: Attacked, stack: ExitStack) -> None:
    for caller in connected(node, stack, 200):
        send(caller, struct.pack(">i", 60_000) + bytes(50_000))


def fetch_sessions(node: Attacked, stack: ExitStack) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    for caller in connected(node, stack, 60):
        caller.ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), 12)


def _head(node: Attacked, asked: str, more: str = "") -> bytes:
    return f"{asked} HTTP/1.1\r\nHost: {node.broker.http}\r\n{more}\r\n".encode()


def arrivals(node: Attacked, stack: ExitStack) -> None:
    """Connections without a request, and new ones all the time."""
    held = http_connected(node, stack, 64)

    def come_again() -> None:
        held.append(http_connected(node, stack, 1)[0])
        held.pop(0).close()

    stack.enter_context(repeated(come_again))


def http_places(node: Attacked, stack: ExitStack) -> None:
    """Bodies that never end, and new ones all the time."""
    head = _head(node, "POST /v1/topics", "Content-Type: application/json\r\nContent-Length: 1000\r\n") + b"{"

    def begin() -> socket.socket:
        (one,) = http_connected(node, stack, 1)
        one.sendall(head)
        return one

    held = [begin() for _ in range(40)]

    def begin_again() -> None:
        held.append(begin())
        held.pop(0).close()

    stack.enter_context(repeated(begin_again))


def http_bytes(node: Attacked, stack: ExitStack) -> None:
    """Bodies of which the end is missing."""
    head = _head(node, "POST /v1/topics", "Content-Type: application/json\r\nContent-Length: 1000000\r\n")
    for one in http_connected(node, stack, 30):
        one.sendall(head + b" " * 900_000)


def followers(node: Attacked, stack: ExitStack) -> None:
    head = _head(node, f"GET /v1/topics/{TOPIC}/records?follow=true")
    for one in http_connected(node, stack, 16):
        one.sendall(head)


def looks(node: Attacked, stack: ExitStack) -> None:
    """Searches through records, one after the other, on many connections."""
    head = _head(node, f"GET /v1/topics/{TOPIC}/records?partition=0&key=zzz")

    def search() -> None:
        with ExitStack() as own:
            (one,) = http_connected(node, own, 1)
            one.sendall(head)
            one.recv(100)

    stack.enter_context(repeated(search, 40))


def groups(node: Attacked, stack: ExitStack) -> None:
    """Groups of one member each, all with much metadata."""
    for number, caller in enumerate(connected(node, stack, 60)):
        protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))]
        join = JoinGroupRequest(
            group_id=f"g{number}", session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
            protocol_type="consumer", protocols=protocols,
        )  # fmt: skip
        caller.ask(join, 1)


def long_requests(node: Attacked, stack: ExitStack) -> None:
    """Requests of many elements, all the time."""
    partitions = [FetchPartition(partition=number, fetch_offset=0) for number in range(9_900)]
    frame = request_frame(FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=partitions)]), 12)
    callers = connected(node, stack, 20)

    def ask() -> None:
        caller = callers.pop()
        caller.socket.sendall(frame)
        caller.skip()
        callers.append(caller)

    stack.enter_context(repeated(ask, 20))


LONG_QUERY = "SELECT count(*) FROM range(1000000) AS one, range(1000000) AS other"


def long_queries(node: Attacked, stack: ExitStack) -> None:
    """SQL queries without an end, on many connections."""
    body = json.dumps({"query": LONG_QUERY}).encode()
    head = _head(node, "POST /v1/sql", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n")
    for one in http_connected(node, stack, 20):
        one.sendall(head + body)
    use_query(node)  # a worker's start takes longer than a query


def waiting_queries(node: Attacked, stack: ExitStack) -> None:
    """SQL queries that wait for their turn, on more connections than an address may have; who has waited long goes, and
    comes again."""
    body = json.dumps({"query": LONG_QUERY}).encode()
    head = _head(node, "POST /v1/sql", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n")
    is_full = threading.Event()

    def wait() -> None:
        with ExitStack() as own:
            (one,) = http_connected(node, own, 1)
            one.settimeout(WAITING_S)
            one.sendall(head + body)
            if one.recv(100).startswith(b"HTTP/1.1 503"):
                is_full.set()

    stack.enter_context(repeated(wait, 60))
    assert is_full.wait(60)
    use_query(node)  # a worker's start takes longer than a query


def use_session(node: Attacked) -> None:
    with Caller(node.broker.kafka, source=HONEST) as caller:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)
        topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
        assert caller.ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), 12).session_id


def use_large(node: Attacked) -> None:
    with Caller(node.broker.kafka, source=HONEST) as caller:
        answer = caller.ask(produce_request(TOPIC, make_batch(b"v" * 900_000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def use_group(node: Attacked) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(10_000))]
    join = JoinGroupRequest(
        group_id=f"honest{time.monotonic()}", session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    with Caller(node.broker.kafka, source=HONEST) as caller:
        assert caller.ask(join, 1).error_code == 0


def status(node: Attacked, head: str, body: bytes = b"") -> int:
    """The status of a request of another address."""
    host, _, port = node.broker.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60, source_address=(HONEST, 0)) as one:
        one.sendall(f"{head}\r\nHost: {node.broker.http}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return int(one.recv(100).split(b" ")[1])


def use_body(node: Attacked) -> None:
    body = b'{"name": "t", "unknown": "' + b"x" * 300_000 + b'"}'
    assert status(node, "POST /v1/topics HTTP/1.1\r\nContent-Type: application/json", body) == 400


def use_follower(node: Attacked) -> None:
    assert status(node, f"GET /v1/topics/{TOPIC}/records?follow=true HTTP/1.1") == 200


def use_look(node: Attacked) -> None:
    assert status(node, f"GET /v1/topics/{TOPIC}/records?partition=0&limit=1 HTTP/1.1") == 200


def use_query(node: Attacked) -> None:
    query = json.dumps({"query": f'SELECT count(*) AS n FROM "{TOPIC}" WHERE "$row_index" < 1'})
    host, _, port = node.broker.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60, source_address=(HONEST, 0))
    connection.request("POST", "/v1/sql", query, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"n":1}\n')
    connection.close()


FILLINGS = (
    Filling("pqbroker.inflight.bytes.max", whole_requests, {"pqbroker.inflight.bytes.max": str(16 * MIB)}, use_large),
    Filling(
        "pqbroker.unfinished.bytes.max", large_unfinished, {"pqbroker.unfinished.bytes.max": str(32 * MIB)}, use_large
    ),
    Filling("pqbroker.reserved.bytes", small_unfinished, {"pqbroker.reserved.bytes": str(4 * MIB)}, use_large),
    Filling(
        "max.incremental.fetch.session.cache.slots", fetch_sessions,
        {"max.incremental.fetch.session.cache.slots": "40"}, use_session,
    ),
    Filling("pqbroker.groups.bytes.max", groups, {"pqbroker.groups.bytes.max": str(4 * MIB)}, use_group),
    Filling("pqbroker.http.arrivals.max", arrivals, {"pqbroker.http.arrivals.max": "64"}),
    Filling("pqbroker.http.connections.max", http_places, {"pqbroker.http.connections.max": "32"}),
    Filling(
        "pqbroker.http.inflight.bytes.max", http_bytes, {"pqbroker.http.inflight.bytes.max": str(16 * MIB)}, use_body
    ),
    Filling("pqbroker.http.followers.max", followers, {"pqbroker.http.connections.max": "32"}, use_follower),
    Filling("pqbroker.http.looks.max", looks, {"pqbroker.http.looks.max": "1"}, use_look),
    Filling("pqbroker.sql.queries.max", long_queries, use=use_query),
    Filling(
        "pqbroker.http.connections.max", waiting_queries, {"pqbroker.http.connections.max": "32"}, use_query,
    ),
    Filling("broker/ground/turns.py:SLICE_S", long_requests),
)  # fmt: skip


@pytest.mark.parametrize("filling", FILLINGS, ids=lambda filling: f"{filling.budget} {filling.fill.__name__}")
def test_another_address_is_served_beside_one_that_fills(filling: Filling) -> None:
    with attacked(filling.settings, turn_s_max=TURN_EVER_S_MAX) as node, ExitStack() as stack:
        honest = prepare(node)
        filling.fill(node, stack)
        time.sleep(SETTLE_S)
        for _ in range(CHECKS):
            honest.check()
            if filling.use is not None:
                with honest.timed(f"the use of {filling.budget}"):
                    filling.use(node)
