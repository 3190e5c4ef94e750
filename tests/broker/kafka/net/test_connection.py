import asyncio
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.ground.listeners import DEFAULT_NAME, Address, Listener
from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
from pqbroker.broker.kafka.handlers import api_versions, fetch, metadata, produce
from pqbroker.broker.kafka.net import connection as connection_module
from pqbroker.broker.kafka.net.connection import Connection
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.dynamic import layers
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pqbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pqbroker.protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from tests.broker.conftest import until
from tests.broker.wire import read_response, request_frame, split_frames

LISTENER = Listener(DEFAULT_NAME, Address("127.0.0.1", 9092))


class Wire(asyncio.Transport):
    """A transport that keeps what is written and what it was told."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 5)})
        self.written = bytearray()
        self.calls = 0
        self.is_closed = self.is_aborted = self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.calls += 1
        for data in list_of_data:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class SteppedLoop:
    """The running loop, except that the test says when a turn of it ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def end(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class Bench:
    """A connection whose handlers' answers the test gives."""

    def __init__(self, **settings: Any) -> None:
        self.begun: list[tuple[str, Answer[Any]]] = []
        self.metrics = Metrics()
        self.turn = SteppedLoop()
        loop = cast(asyncio.AbstractEventLoop, self.turn)
        configured = SimpleNamespace(layers=layers(BrokerSettings(**settings), {}, {}))
        cell = cast(CellOwner, SimpleNamespace(current=SimpleNamespace(settings=configured)))
        node = Node(
            cell=cell, loop=loop, clock=lambda: 0, metrics=self.metrics,
            sessions=FetchSessions(10, 10, lambda: 0), producer_ids=None, cluster_id="c", leaders=Leaders(1),  # type: ignore[arg-type]
            api_ranges=((18, 0, 4),), turns=Turns(loop), answers=AnswerBudget(1 << 27, loop.time),
            connections=Connections(loop, self.metrics, lambda: self.node.settings.max_connections),
            logins=Logins(loop, lambda: cell.current.scheme, lambda: self.node.settings, lambda: 0),
        )  # fmt: skip
        self.receiving = Receiving(node.settings, loop)
        self.budget = self.receiving.budget
        self.connections = node.connections
        self.serve: Callable[[str, Any], Any] = self._serve_later
        apis = [self._api(each) for each in (produce.API, fetch.API, metadata.API)]
        self.dispatcher = Dispatcher(node, [*apis, api_versions.API])
        self.node = node
        self.wire, self.connection = self.connect()

    def connect(self) -> tuple[Wire, Connection]:
        wire = Wire()
        connection = Connection(self.node, self.dispatcher, self.receiving, self.connections, LISTENER)
        connection.connection_made(wire)
        return wire, connection

    def receive(self, *frames: bytes) -> None:
        data = b"".join(frames)
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def answered(self) -> list[int]:
        """Correlation ids of the answers written by the end of the loop's turn."""
        self.turn.end()
        return [struct.unpack_from(">i", each)[0] for each in split_frames(bytes(self.wire.written))]

    def _api(self, api: Api) -> Api:
        return replace(api, serve=lambda _, request: self.serve(api.name, request), open_lane=None)

    def _serve_later(self, name: str, request: Any) -> Answer[Any]:
        answer: Answer[Any] = Answer()
        if name == "Fetch":
            answer.hurry = lambda: answer.complete(FetchResponse())
        self.begun.append((name, answer))
        return answer


def produce_frame(correlation_id: int, acks: int = 1) -> bytes:
    return request_frame(ProduceRequest(acks=acks), 9, correlation_id)


def _topics(count: int) -> list[TopicProduceData]:
    """That take `count` bytes."""
    return [TopicProduceData(name="t" * (count // 2), partition_data=[]) for _ in range(2)]


def fetch_frame(correlation_id: int) -> bytes:
    return request_frame(FetchRequest(), 12, correlation_id)


def metadata_frame(correlation_id: int) -> bytes:
    return request_frame(MetadataRequest(), 9, correlation_id)


async def test_consecutive_produce_requests_begin_at_once_and_are_answered_in_order() -> None:
    bench = Bench()
    bench.receive(produce_frame(1), produce_frame(2), produce_frame(3))
    assert [name for name, _ in bench.begun] == ["Produce"] * 3
    bench.begun[2][1].complete(ProduceResponse())
    bench.begun[1][1].complete(ProduceResponse())
    assert bench.answered() == []
    bench.begun[0][1].complete(ProduceResponse())
    assert bench.answered() == [1, 2, 3]


async def test_another_request_waits_until_earlier_ones_are_answered() -> None:
    bench = Bench()
    bench.receive(produce_frame(1), metadata_frame(2), produce_frame(3))
    assert [name for name, _ in bench.begun] == ["Produce"]
    bench.begun[0][1].complete(ProduceResponse())
    assert [name for name, _ in bench.begun] == ["Produce", "Metadata"]
    bench.begun[1][1].complete(MetadataResponse())
    assert [name for name, _ in bench.begun] == ["Produce", "Metadata", "Produce"]
    assert bench.answered() == [1, 2]


@pytest.mark.spec("spark 2")
async def test_a_request_completes_the_parked_fetch_before_it() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    assert bench.answered() == []
    bench.receive(metadata_frame(2))
    assert bench.answered() == [1]
    bench.begun[1][1].complete(MetadataResponse())
    assert bench.answered() == [1, 2]
    assert bench.metrics.overstay.count == 1
    assert bench.metrics.overstay_worst_s < 1, "it waits for nothing"


async def test_requests_behind_a_fetch_in_one_read_do_not_let_it_park() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1) + fetch_frame(2) + produce_frame(3))
    assert bench.answered() == [1, 2]
    assert bench.begun[2][0] == "Produce"


async def test_a_fetch_nobody_hurries_is_not_counted_as_overstaying() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    bench.begun[0][1].complete(FetchResponse())
    assert bench.answered() == [1]
    assert bench.metrics.overstay.count == 0


async def test_a_coroutine_is_awaited() -> None:
    bench = Bench()
    released = asyncio.Event()

    async def later() -> MetadataResponse:
        await released.wait()
        return MetadataResponse(cluster_id="x")

    bench.serve = lambda name, request: later()
    bench.receive(metadata_frame(7))
    assert bench.answered() == []
    released.set()
    await until(lambda: bool(bench.answered()))
    assert bench.answered() == [7]


async def test_a_response_of_none_writes_nothing_and_lets_the_next_request_begin() -> None:
    bench = Bench()
    bench.receive(produce_frame(1, acks=0), metadata_frame(2))
    bench.begun[0][1].complete(None)
    assert bench.answered() == []
    bench.begun[1][1].complete(MetadataResponse())
    assert bench.answered() == [2]


async def test_an_error_without_a_response_to_carry_it_closes_after_the_answers_before_it() -> None:
    bench = Bench()
    bench.receive(produce_frame(1), produce_frame(2, acks=0), produce_frame(3))
    bench.begun[1][1].fail(ProtocolError("acks 0"))
    assert not bench.wire.is_closed
    bench.begun[0][1].complete(ProduceResponse())
    assert bench.answered() == [1]
    assert bench.wire.is_closed
    bench.begun[2][1].complete(ProduceResponse())
    assert bench.answered() == [1]


async def test_a_kafka_error_becomes_the_code_of_the_response() -> None:
    bench = Bench()

    def refuse(name: str, request: Any) -> Any:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    bench.serve = refuse
    bench.receive(fetch_frame(1))
    _, response = read_response(fetch.API, 12, split_frames(bytes(bench.wire.written))[0])
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert bench.metrics.errors == {ErrorCode.INVALID_REQUEST: 1}


@pytest.mark.parametrize("when", ["at once", "in a task", "by an answer", "in a further step"])
async def test_a_defect_becomes_an_unknown_server_error_and_a_traceback(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    answer: Answer[Any] = Answer()

    def broken() -> Any:
        raise ValueError("a defect")

    async def later() -> Any:
        broken()

    serve: Callable[[], Any] = {"at once": broken, "in a task": later}.get(when, lambda: answer)
    bench.serve = lambda name, request: serve()
    bench.receive(fetch_frame(1))
    if when == "by an answer":
        answer.fail(ValueError("a defect"))
    elif when == "in a further step":
        answer.proceed(broken)
    await until(lambda: bool(bench.answered()))
    _, response = read_response(fetch.API, 12, split_frames(bytes(bench.wire.written))[0])
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


async def test_an_unknown_api_closes_the_connection() -> None:
    bench = Bench()
    bench.receive(struct.pack(">ihhih", 10, 999, 0, 1, -1))
    assert bench.wire.is_closed
    assert bench.metrics.protocol_errors == 1


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (1, 18), (3, 14), (3, -1)])
async def test_an_unknown_version_closes_the_connection(key: int, version: int) -> None:
    bench = Bench()
    bench.receive(struct.pack(">ihhih", 10, key, version, 1, -1))
    assert bench.wire.is_closed
    assert not bench.begun


@pytest.mark.parametrize("version", [5, 99, -1])
async def test_an_unknown_api_versions_version_is_answered_as_version_0(version: int) -> None:
    bench = Bench()
    bench.receive(struct.pack(">ihhih", 13, 18, version, 77, -1) + b"\xff\xff\xff")
    correlation_id, response = read_response(api_versions.API, 0, split_frames(bytes(bench.wire.written))[0])
    assert correlation_id == 77
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
    bench.receive(request_frame(ApiVersionsRequest(), 0, 78))
    assert bench.answered() == [77, 78]


@pytest.mark.parametrize("data", [struct.pack(">i", 2000), struct.pack(">i", -1), struct.pack(">ihh", 4, 3, 0)])
async def test_a_frame_too_large_negative_or_too_short_closes_the_connection(data: bytes) -> None:
    bench = Bench(socket_request_max_bytes=1024)
    bench.receive(data)
    assert bench.wire.is_closed


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET /metrics HTTP/1.1\r\n", "speaks HTTP to the Kafka listener"),
        (b"POST /v1/topics HTTP/1.1\r\n", "--http"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS to the listener"),
    ],
)
async def test_the_log_names_another_protocol(
    data: bytes, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "seldom", SeldomLog(logging.getLogger("test")))
    bench = Bench()
    bench.receive(data)
    assert bench.wire.is_closed
    (line,) = caplog.messages
    assert line.startswith("a client at 127.0.0.1 ")
    assert words in line


async def test_a_malformed_body_closes_the_connection() -> None:
    bench = Bench()
    bench.receive(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000))
    assert bench.wire.is_closed
    assert not bench.begun


async def test_reading_pauses_above_the_limit_of_requests_and_resumes_below() -> None:
    bench = Bench(connection_requests_max=2)
    bench.receive(produce_frame(1))
    assert not bench.wire.is_paused
    bench.receive(produce_frame(2))
    assert bench.wire.is_paused
    bench.begun[0][1].complete(ProduceResponse())
    assert not bench.wire.is_paused


async def test_reading_pauses_above_the_limit_of_bytes_and_resumes_below() -> None:
    bench = Bench(connection_bytes_max=1024)
    large = request_frame(ProduceRequest(acks=1, transactional_id="x" * 2000), 9, 1)
    bench.receive(large)
    assert bench.wire.is_paused
    bench.begun[0][1].complete(ProduceResponse())
    assert not bench.wire.is_paused
    assert bench.budget.taken == 0


async def test_bytes_of_one_connection_pause_another_until_the_node_has_room() -> None:
    bench = Bench(node_bytes_max=1024)
    large = request_frame(ProduceRequest(acks=1, transactional_id="x" * 2000), 9, 1)
    bench.receive(large)
    first_wire, first = bench.wire, bench.connection
    bench.wire, bench.connection = bench.connect()
    bench.receive(metadata_frame(1))
    assert bench.wire.is_paused
    bench.begun[0][1].complete(ProduceResponse())
    assert not first_wire.is_paused
    assert not bench.wire.is_paused
    assert first.is_idle


async def test_bytes_of_a_lost_connection_are_given_back() -> None:
    bench = Bench(node_bytes_max=1024)
    bench.receive(produce_frame(1), metadata_frame(2))
    assert bench.budget.taken > 0
    bench.connection.connection_lost(None)
    assert bench.budget.taken == 0
    bench.begun[0][1].complete(ProduceResponse())
    assert bench.budget.taken == 0
    assert bench.wire.written == b""


async def test_a_lost_connection_ends_its_parked_fetch_and_cancels_its_tasks() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    bench.connection.connection_lost(None)
    assert bench.begun[0][1].settled

    bench.wire, bench.connection = bench.connect()
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bench.serve = lambda name, request: started
    bench.receive(metadata_frame(1))
    bench.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert started.cancelled()


async def test_nothing_is_served_while_the_peer_does_not_take_its_answers() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    bench.receive(fetch_frame(1))
    assert not bench.begun
    bench.connection.resume_writing()
    assert [name for name, _ in bench.begun] == ["Fetch"]


async def test_reading_resumes_when_a_peer_takes_its_answers_again() -> None:
    bench = Bench(connection_requests_max=2)
    bench.serve = lambda name, request: MetadataResponse()
    bench.connection.pause_writing()
    bench.receive(metadata_frame(1), metadata_frame(2))
    assert bench.wire.is_paused
    bench.connection.resume_writing()
    assert bench.answered() == [1, 2]
    assert not bench.wire.is_paused


async def test_draining_waits_for_a_peer_that_takes_its_answers_late() -> None:
    bench = Bench()
    bench.serve = lambda name, request: MetadataResponse()
    bench.connection.pause_writing()
    bench.receive(metadata_frame(1))
    bench.connection.drain()
    assert not bench.wire.is_closed
    bench.connection.resume_writing()
    assert bench.answered() == [1]
    assert bench.wire.is_closed


async def test_draining_answers_what_came_and_closes() -> None:
    bench = Bench()
    bench.receive(produce_frame(1), metadata_frame(2))
    bench.connection.drain()
    assert bench.wire.is_paused
    assert not bench.wire.is_closed
    bench.begun[0][1].complete(ProduceResponse())
    bench.begun[1][1].complete(MetadataResponse())
    assert bench.answered() == [1, 2]
    assert bench.wire.is_closed


async def test_draining_does_not_wait_for_a_parked_fetch() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    bench.connection.drain()
    assert bench.answered() == [1]
    assert bench.wire.is_closed


async def test_draining_an_idle_connection_closes_it() -> None:
    bench = Bench()
    bench.connection.drain()
    assert bench.wire.is_closed


async def test_only_an_idle_connection_is_closed_as_idle() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    now = asyncio.get_running_loop().time()
    bench.connection.close_if_idle_since(now + 1)
    assert not bench.wire.is_closed
    bench.begun[0][1].complete(FetchResponse())
    bench.connection.close_if_idle_since(now - 1000)
    assert not bench.wire.is_closed
    bench.connection.close_if_idle_since(now + 1)
    assert bench.wire.is_closed


async def test_a_peer_that_takes_no_answers_is_cut_when_idle() -> None:
    bench = Bench()
    bench.receive(fetch_frame(1))
    bench.begun[0][1].complete(FetchResponse())
    bench.connection.pause_writing()
    bench.receive(fetch_frame(2))
    now = asyncio.get_running_loop().time()
    bench.connection.close_if_idle_since(now - 1000)
    assert not bench.wire.is_aborted
    bench.connection.close_if_idle_since(now + 1)
    assert bench.wire.is_aborted


async def test_a_connection_above_the_limit_is_closed_at_once() -> None:
    bench = Bench(max_connections=1)
    wire, _ = bench.connect()
    assert wire.is_closed
    assert not bench.wire.is_closed
    assert bench.metrics.connections_refused == 1


async def test_record_data_is_written_as_it_is_not_joined() -> None:
    bench = Bench()
    lines: list[Any] = []
    bench.wire.writelines = lines.extend  # type: ignore[method-assign, assignment]
    record_data = memoryview(bytearray(100_000))
    response = FetchResponse()
    response.responses = [
        FetchableTopicResponse(topic="t", partitions=[PartitionData(records=[record_data])])
    ]
    bench.serve = lambda name, request: response
    bench.receive(fetch_frame(1))
    assert any(line is record_data for line in lines)


async def test_answers_that_become_due_together_are_sent_together() -> None:
    bench = Bench()
    bench.receive(produce_frame(1), produce_frame(2), produce_frame(3))
    for _, answer in bench.begun[:2]:
        answer.complete(ProduceResponse())
    assert not bench.wire.written
    bench.begun[2][1].complete(ProduceResponse())
    assert len(split_frames(bytes(bench.wire.written))) == 3
    assert bench.wire.calls == 1


async def test_an_unfinished_request_counts_and_its_connection_gives_it_back() -> None:
    bench = Bench()
    bench.receive(struct.pack(">i", 1_000_000) + bytes(50_000))
    assert bench.budget.taken == 1_000_000
    bench.receive(bytes(900_000))
    bench.connection.connection_lost(None)
    assert bench.receiving.is_at_rest


async def test_the_start_of_a_small_request_counts_until_the_rest_comes() -> None:
    bench = Bench()
    frame = metadata_frame(2)
    bench.receive(metadata_frame(1) + frame[:9])
    bench.begun[0][1].complete(MetadataResponse())
    assert bench.budget.taken == 9
    bench.receive(frame[9:])
    bench.begun[1][1].complete(MetadataResponse())
    assert bench.answered() == [1, 2]
    assert bench.receiving.is_at_rest


async def test_a_large_request_is_not_read_until_it_has_its_memory() -> None:
    bench = Bench(node_bytes_max=4 << 20)
    bench.receive(struct.pack(">i", 3 << 20) + bytes(2 << 20))
    first = bench.connection
    bench.wire, bench.connection = bench.connect()
    large = request_frame(ProduceRequest(acks=1, transactional_id="x" * 30_000, topic_data=_topics(60_000)), 9, 1)
    bench.receive(large[:60_000])
    assert bench.wire.is_paused
    first.connection_lost(None)
    assert not bench.wire.is_paused
    bench.receive(large[60_000:])
    assert [name for name, _ in bench.begun] == ["Produce"]


async def test_a_request_that_makes_room_closes_its_connection_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(unfinished_bytes_max=6 << 20)
    caplog.set_level(logging.INFO)
    first = bench.wire, bench.connection
    bench.receive(struct.pack(">i", 3 << 20) + bytes(1 << 20))
    bench.wire, bench.connection = bench.connect()
    second = bench.wire
    bench.receive(struct.pack(">i", 3 << 20) + bytes(11 << 18))
    bench.wire, bench.connection = first
    bench.receive(bytes(7 << 18))
    assert (bench.wire.is_closed, second.is_closed) == (False, True)
    assert bench.metrics.unfinished_closed == 1
    assert "pqbroker.unfinished.bytes.max" in caplog.text


async def test_what_a_closing_connection_still_receives_is_not_looked_at() -> None:
    bench = Bench()
    bench.receive(struct.pack(">i", -1))
    bench.receive(struct.pack(">i", -1), struct.pack(">i", 1_000_000) + bytes(50_000))
    assert bench.metrics.protocol_errors == 1
    assert bench.receiving.is_at_rest


async def test_a_long_fetch_request_does_not_park_while_memory_is_short() -> None:
    bench = Bench(node_bytes_max=100_000)
    bench.budget.taken += 50_001
    bench.receive(fetch_frame(1))
    assert bench.answered() == []
    bench.wire, bench.connection = bench.connect()
    bench.receive(request_frame(FetchRequest(rack_id="x" * 5000), 12, 2))
    assert bench.answered() == [2]
    bench.budget.give_back(50_001)
    bench.wire, bench.connection = bench.connect()
    bench.receive(struct.pack(">i", 60_000) + bytes(55_000))
    bench.wire, bench.connection = bench.connect()
    bench.receive(request_frame(FetchRequest(rack_id="x" * 5000), 12, 3))
    assert bench.budget.taken > 50_000
    assert bench.answered() == []


async def test_a_closed_connection_waits_for_no_budget() -> None:
    bench = Bench(node_bytes_max=1024)
    bench.budget.taken += 2000
    bench.receive(metadata_frame(1))
    assert bench.wire.is_paused
    assert bench.budget.is_awaited
    bench.connection.connection_lost(None)
    assert not bench.budget.is_awaited
    bench.budget.give_back(2000)
    assert bench.receiving.is_at_rest


async def test_a_closed_connection_has_no_pause_left() -> None:
    bench = Bench()
    timers: list[asyncio.TimerHandle] = []
    call_at = asyncio.get_running_loop().call_at
    bench.turn.call_at = lambda *arguments: timers.append(call_at(*arguments)) or timers[-1]  # type: ignore[attr-defined, func-returns-value]

    def pause(name: str, request: Any) -> Answer[MetadataResponse]:
        answer: Answer[MetadataResponse] = Answer()
        answer.pause_ms = 60_000
        answer.complete(MetadataResponse())
        return answer

    bench.serve = pause
    bench.receive(metadata_frame(1))
    assert bench.wire.is_paused
    bench.connection.connection_lost(None)
    assert [timer.cancelled() for timer in timers] == [True]


async def test_a_fetch_session_ends_with_its_connection() -> None:
    bench = Bench()
    peers: list[Peer] = []
    begin = bench.dispatcher.begin
    bench.dispatcher.begin = lambda peer, frame: peers.append(peer) or begin(peer, frame)  # type: ignore[method-assign, func-returns-value]
    bench.receive(metadata_frame(1))
    asked = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])
    bench.node.sessions.begin(asked, 12, peers[0])
    assert len(bench.node.sessions) == 1
    bench.connection.connection_lost(None)
    assert len(bench.node.sessions) == 0
