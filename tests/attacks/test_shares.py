"""One address fills a budget, and another client is served all the same: fair shares (conf/shares.py)."""

import http.client
import json
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pqbroker.broker.kafka.apis.answer_budget import UNTAKEN_S
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.conftest import make_batch, produce_request
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, Caller, attacked

TOPIC = "shared"
ATTACKER = "127.0.0.2"
HONEST = "127.0.0.3"
ANSWER_S_MAX = 1.0
MIB = 1 << 20
CONNECTIONS = 400
READERS = 50
"""Clients that ask for much and read nothing of it."""
READER_BYTES = 20 << 20
ASKED = 25
"""Requests of each: the system's buffers take the answers to the first."""
READ_BESIDE = 30
"""Checks of another client beside them: longer than `UNTAKEN_S`."""
LARGE_BYTES = 900_000
"""One record: two of them are more than 1 MiB."""


class Honest:
    """A client at an address of its own; each of its calls takes at most a second, the first one too, on a machine that
    does nothing else."""

    def __init__(self, node: Attacked) -> None:
        self._node = node
        self._commits = 0
        self.answer_s_max = ANSWER_S_MAX

    def check(self) -> None:
        with self._node.connect(source=HONEST) as caller:
            with self.timed("Metadata"):
                assert caller.ask(MetadataRequest(topics=[]), 12) is not None
            with self.timed("Produce"):
                answer = caller.ask(produce_request(TOPIC, make_batch(b"v" * 1024)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            with self.timed("Fetch"):
                assert _fetched_bytes(caller.ask(fetch_request(), 12)) >= LARGE_BYTES
            self._commits += 1
            with self.timed("OffsetCommit"):
                assert commit(caller, f"honest-{self._commits}") == 0
        health = f"http://{self._node.broker.http}/health"
        with self.timed("/health"), urllib.request.urlopen(health, timeout=60) as answer:
            assert answer.status == 200
        topics = f"http://{self._node.broker.http}/v1/topics/{TOPIC}"
        with self.timed("a topic over HTTP"), urllib.request.urlopen(topics, timeout=60) as answer:
            assert answer.status == 200

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """See that what is done within takes no longer than allowed."""
        started = time.perf_counter()
        yield
        took_s = time.perf_counter() - started
        times = self._node.crowding.times
        assert took_s < self.answer_s_max * times, f"{what} took {took_s:.2f} s, where all takes {times:.1f} times"


def unread(node: Attacked, source: str) -> Caller:
    """A client that asks for as much as there is, and is to read nothing of it."""
    caller = node.connect(source=source)
    for _ in range(ASKED):
        caller.send(fetch_request(READER_BYTES), 12)
    return caller


def fetch_request(bytes_max: int = MIB) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=bytes_max)
    return FetchRequest(max_wait_ms=0, max_bytes=bytes_max, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])


def commit(caller: Caller, group_id: str) -> int:
    """The error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    answer = caller.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 8)
    return int(answer.topics[0].partitions[0].error_code)


def prepare(node: Attacked) -> Honest:
    """The topic, with a record of nearly 1 MiB in it."""
    node.create(TOPIC, 1)
    with node.connect() as caller:
        answer = caller.ask(produce_request(TOPIC, make_batch(b"\0" * LARGE_BYTES)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    honest = Honest(node)
    honest.check()
    return honest


def _fetched_bytes(answer: object) -> int:
    partition = answer.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert partition.error_code == 0
    return len(partition.records or b"")


def test_idle_connections_of_one_address_leave_room_for_another() -> None:
    with attacked({"max.connections": str(CONNECTIONS)}, turn_s_max=TURN_EVER_S_MAX) as node:
        honest = prepare(node)
        host, _, port = node.broker.kafka.rpartition(":")
        held = [
            socket.create_connection((host, int(port)), timeout=60, source_address=(ATTACKER, 0))
            for _ in range(CONNECTIONS + 50)
        ]
        try:
            for _ in range(5):
                honest.check()
        finally:
            for one in held:
                one.close()


def test_groups_invented_by_one_address_leave_room_for_another() -> None:
    with attacked({"pqbroker.partition.consumers.max": "640"}, turn_s_max=TURN_EVER_S_MAX) as node:
        honest = prepare(node)
        with Caller(node.broker.kafka, source=ATTACKER) as attacker:
            codes = {commit(attacker, f"invented-{number}") for number in range(640)}
            assert codes == {0, ErrorCode.POLICY_VIOLATION}
            for _ in range(5):
                honest.check()
        node.witness.stop()
        node.broker.kill()
        node.broker.start()
        with Caller(node.broker.kafka, source=ATTACKER) as attacker:
            assert commit(attacker, "another") == ErrorCode.POLICY_VIOLATION
            assert commit(attacker, "invented-0") == 0


def test_groups_invented_over_http_count_for_the_address_of_their_client() -> None:
    with attacked({"pqbroker.partition.consumers.max": "640"}, turn_s_max=TURN_EVER_S_MAX) as node:
        honest = prepare(node)
        assert {commit_over_http(node, ATTACKER, f"invented-{number}") for number in range(640)} == {200, 409}
        assert commit_over_http(node, HONEST, "honest over HTTP") == 200
        honest.check()


def commit_over_http(node: Attacked, source: str, group_id: str) -> int:
    """The status."""
    host, _, port = node.broker.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60, source_address=(source, 0))
    body = json.dumps({"offsets": [{"topic": TOPIC, "partition": 0, "offset": 1}]})
    path = f"/v1/groups/{urllib.parse.quote(group_id)}/offsets"
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_clients_of_one_address_that_read_nothing_leave_room_for_another(*, tls: bool) -> None:
    _read_beside([ATTACKER] * READERS, ANSWER_S_MAX, tls=tls)


def test_clients_of_many_addresses_that_read_nothing_are_cut_when_another_waits() -> None:
    """They take the whole reserve, each its first part of it: so a first Fetch waits for the second of idle ones."""
    sources = [f"127.0.1.{number}" for number in range(1, READERS + 1)]
    assert _read_beside(sources, ANSWER_S_MAX + UNTAKEN_S, tls=False) > 0


def _read_beside(sources: Sequence[str], answer_s_max: float, *, tls: bool) -> int:
    """How many connections were cut while another client was served."""
    with attacked(turn_s_max=TURN_EVER_S_MAX, tls=tls) as node:
        honest = prepare(node)
        with node.connect() as caller:
            for _ in range(READER_BYTES // LARGE_BYTES):
                answer = caller.ask(produce_request(TOPIC, make_batch(b"\0" * LARGE_BYTES)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
        callers = [unread(node, source) for source in sources]
        honest.answer_s_max = answer_s_max
        try:
            for _ in range(READ_BESIDE):
                honest.check()
                time.sleep(0.03)
        finally:
            for caller in callers:
                caller.close()
        return int(node.samples()["connections_unread_total"])
