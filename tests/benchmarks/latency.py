"""Small requests, one record each: one at a time, eight connections side by side, and from producer to consumer."""

import select
import struct
import time
from collections import deque

from tests.benchmarks.figures import P50, P99, REQUESTS, percentile
from tests.benchmarks.wire import (
    Connection,
    WireError,
    check_produced,
    fetch_request,
    produce_request,
    produced_size,
    read_fetched,
    record_batch,
)  # fmt: skip
from tests.benchmarks.workload import Outcome, Scale, Target

VALUE_BYTES = 100
CONNECTIONS = 8
RECORDS_PER_S = 1_000
_ANSWER_TIMEOUT_S = 30
_FETCH_BYTES = 1 << 20
_VALUE_POSITION = 61 + 8  # in a batch of one record of VALUE_BYTES: the header, then the fields before the value
_STAMP = struct.Struct(">Q")


def one_in_flight(target: Target, scale: Scale) -> Outcome:
    """One connection, one request at a time; the first twentieth is not counted."""
    request = _small_request(target.topic, 0)
    count, uncounted = scale.small_requests, scale.small_requests // 20
    took_ms = []
    with Connection(target.address) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.send(request)
            response = connection.receive()
            took_ms.append((time.perf_counter() - started) * 1e3)
            check_produced(response, target.topic)
    counted = took_ms[uncounted:]
    return Outcome({P50: percentile(counted, 50), P99: percentile(counted, 99)}, requests=count, appended=count)


def eight_connections(target: Target, scale: Scale) -> Outcome:
    """Eight connections in one process, each one request at a time, partitions in turn."""
    connections = [Connection(target.address) for _ in range(CONNECTIONS)]
    try:
        count = scale.small_requests * 2
        started = time.perf_counter()
        _exchange(target, connections, count)
        took = time.perf_counter() - started
    finally:
        for connection in connections:
            connection.socket.close()
    return Outcome({REQUESTS: count / took}, requests=count, appended=count)


def end_to_end(target: Target, scale: Scale) -> Outcome:
    """A producer and a waiting consumer in one process; a record a millisecond carries when it was to be sent.

    That the clock starts when a record was due, not when it went out, keeps a stall of the driver in the figures.
    """
    with Connection(target.address) as producer, Connection(target.address) as consumer:
        took_ms = _Flow(target, producer, consumer).run(scale.end_to_end_records)
    counted = took_ms[len(took_ms) // 20 :]
    return Outcome(
        {P50: percentile(counted, 50), P99: percentile(counted, 99)},
        requests=scale.end_to_end_records,
        appended=scale.end_to_end_records,
    )


def _exchange(target: Target, connections: list[Connection], count: int) -> None:
    requests = {
        connection.socket.fileno(): (connection.socket, _small_request(target.topic, index % target.partitions))
        for index, connection in enumerate(connections)
    }
    size = produced_size(target.topic)
    poll = select.epoll()
    sent = received = 0
    try:
        for number, (socket, request) in requests.items():
            poll.register(number, select.EPOLLIN)
            socket.sendall(request)
            sent += 1
        while received < count:
            ready = poll.poll(_ANSWER_TIMEOUT_S)
            if not ready:
                raise WireError(f"no answer within {_ANSWER_TIMEOUT_S} s")
            for number, _ in ready:
                socket, request = requests[number]
                response = socket.recv(4096)
                if len(response) != size:  # some 60 bytes on the loopback come whole
                    raise WireError(f"an answer of {len(response)} bytes instead of {size}")
                check_produced(response[4:], target.topic)
                received += 1
                if sent < count:
                    socket.sendall(request)
                    sent += 1
    finally:
        poll.close()


class _Flow:
    """Sends when a record is due, reads when an answer is there, waits otherwise."""

    def __init__(self, target: Target, producer: Connection, consumer: Connection) -> None:
        self._topic = target.topic
        self._producer = producer
        self._consumer = consumer
        self._due: deque[int] = deque()
        self._took_ms: list[float] = []
        self._offset = 0
        self._unanswered = 0

    def run(self, count: int) -> list[float]:
        """Latency of every record in ms, in order."""
        step_ns = 1_000_000_000 // RECORDS_PER_S
        start = time.perf_counter_ns() + step_ns
        self._due.extend(start + index * step_ns for index in range(count))
        self._fetch()
        while len(self._took_ms) < count or self._unanswered:
            self._send_due()
            self._receive(self._wait_s())
        return self._took_ms

    def _send_due(self) -> None:
        while self._due and self._due[0] <= time.perf_counter_ns():
            value = _STAMP.pack(self._due.popleft()).ljust(VALUE_BYTES, b".")
            batch = record_batch([value], timestamp_ms=time.time_ns() // 1_000_000)
            self._producer.send(produce_request(self._topic, [(0, batch)]))
            self._unanswered += 1

    def _wait_s(self) -> float:
        return max(self._due[0] - time.perf_counter_ns(), 0) / 1e9 if self._due else _ANSWER_TIMEOUT_S

    def _receive(self, wait_s: float) -> None:
        ready, _, _ = select.select([self._producer.socket, self._consumer.socket], [], [], wait_s)
        if not ready and not self._due:
            raise WireError(f"no record within {_ANSWER_TIMEOUT_S} s")
        if self._consumer.socket in ready:
            self._take(read_fetched(self._consumer.receive(), self._topic).records)
            self._fetch()
        if self._producer.socket in ready:
            check_produced(self._producer.receive(), self._topic)
            self._unanswered -= 1

    def _fetch(self) -> None:
        self._consumer.send(fetch_request(self._topic, 0, self._offset, _FETCH_BYTES))

    def _take(self, records: memoryview) -> None:
        now = time.perf_counter_ns()
        position = 0
        while position < len(records):
            (due,) = _STAMP.unpack_from(records, position + _VALUE_POSITION)
            self._took_ms.append((now - due) / 1e6)
            self._offset += 1
            position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")


def _small_request(topic: str, partition: int) -> bytes:
    batch = record_batch([b"." * VALUE_BYTES], timestamp_ms=time.time_ns() // 1_000_000)
    return produce_request(topic, [(partition, batch)])
