"""Thousands of connections parked in Fetch, each woken by a record of its own: python -m tests.benchmarks.crowd

Every parked Fetch waits for a partition of its own, for up to 30 s; records go to the partitions in turn, so that each
wakes one connection, which then parks again. A record's time begins when it was due and ends when its value is read.
"""

import argparse
import resource
import select
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pqbroker.testing import Broker, broker
from tests.benchmarks.figures import percentile
from tests.benchmarks.meter import cpu_seconds, memory
from tests.benchmarks.systems import System
from tests.benchmarks.topics import new_topic
from tests.benchmarks.wire import (
    Connection,
    WireError,
    check_produced,
    fetch_request,
    produce_request,
    read_fetched,
    record_batch,
)

CONNECTIONS = 9_900
PARKED = 5_000
RECORDS_PER_S = 500
SECONDS = 40.0
WAIT_MS = 30_000
PRODUCERS = 4
VALUE_BYTES = 100
_FETCH_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 12
_ANSWER_TIMEOUT_S = 60
_VALUE_POSITION = 61 + 8  # in a batch of one record of VALUE_BYTES
_STAMP = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many connections there are, how many of them are parked, and what wakes them."""

    connections: int = CONNECTIONS
    parked: int = PARKED
    records_per_s: int = RECORDS_PER_S
    seconds: float = SECONDS

    @property
    def records(self) -> int:
        return int(self.records_per_s * self.seconds)


@dataclass(frozen=True, slots=True)
class Found:
    """Latencies in ms; memory of the broker in KiB a connection; its processor time in µs a record."""

    took_ms: Sequence[float]
    idle_kib: float
    parked_kib: float
    cpu_us: float

    @property
    def p50_ms(self) -> float:
        return percentile(self.took_ms, 50)

    @property
    def p99_ms(self) -> float:
        return percentile(self.took_ms, 99)

    def __str__(self) -> str:
        return (
            f"{len(self.took_ms)} records end to end: p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, "
            f"slowest {max(self.took_ms):.1f} ms; {self.cpu_us:.0f} µs of CPU a record; memory of an idle connection "
            f"{self.idle_kib:.1f} KiB, of a parked one {self.parked_kib:.1f} KiB"
        )


def measure(running: Broker, crowd: Crowd) -> Found:
    """Connect, park, and send; the first twentieth of the records is not counted."""
    system = System("ours", running.kafka, running.pid, {}, lambda: None)
    with new_topic(system, "crowd", crowd.parked) as target, ExitStack() as stack:
        before = memory(running.pid).now_mib
        connections = [
            stack.enter_context(Connection(target.address, _ANSWER_TIMEOUT_S, _BUFFER_BYTES))
            for _ in range(crowd.connections - PRODUCERS)
        ]
        producers = [stack.enter_context(Connection(target.address)) for _ in range(PRODUCERS)]
        _exchange_once(connections, target.topic)
        connected = memory(running.pid).now_mib
        flow = _Flow(target.topic, connections[: crowd.parked], producers)
        flow.park()
        cpu_before = cpu_seconds(running.pid)
        took_ms = flow.run(crowd)
        cpu_s = cpu_seconds(running.pid) - cpu_before
        parked = memory(running.pid).now_mib
    idle_kib = (connected - before) * 1024 / crowd.connections
    return Found(
        took_ms[len(took_ms) // 20 :],
        idle_kib,
        idle_kib + (parked - connected) * 1024 / crowd.parked,
        cpu_s / crowd.records * 1e6,
    )


def _exchange_once(connections: Sequence[Connection], topic: str) -> None:
    """An empty Fetch on each: a connection that has said nothing yet has not allocated what it keeps."""
    request = fetch_request(topic, 0, 0, _FETCH_BYTES, wait_ms=0)
    for connection in connections:
        connection.send(request)
        read_fetched(connection.receive(), topic)


class _Flow:
    """Sends records when they are due, and parks again whoever was answered."""

    def __init__(self, topic: str, parked: Sequence[Connection], producers: Sequence[Connection]) -> None:
        self._topic = topic
        self._parked = parked
        self._offsets = [0] * len(parked)
        self._producers = producers
        self._poll = select.epoll()
        self._of_file: dict[int, tuple[Connection, int | None]] = {}
        for partition, connection in enumerate(parked):
            self._watch(connection, partition)
        for connection in producers:
            self._watch(connection, None)
        self._took_ms: list[float] = []
        self._sent = 0
        self._acknowledged = 0

    def park(self) -> None:
        """Return when all wait: thousands of requests at once take the broker a second, which is not a record's.

        A socket that became readable later is read later, so an answer on another connection says so.
        """
        for partition in range(len(self._parked)):
            self._fetch(partition)
        last = self._producers[0]
        last.send(fetch_request(self._topic, 0, 0, _FETCH_BYTES, wait_ms=0))
        read_fetched(last.receive(), self._topic)

    def run(self, crowd: Crowd) -> list[float]:
        """The latency of every record in ms."""
        step_ns = 1_000_000_000 // crowd.records_per_s
        start_ns = time.perf_counter_ns() + step_ns
        while len(self._took_ms) < crowd.records or self._acknowledged < crowd.records:
            due_ns = start_ns + self._sent * step_ns
            now_ns = time.perf_counter_ns()
            if self._sent < crowd.records and now_ns >= due_ns:
                self._send(due_ns)
                continue
            wait_s = (due_ns - now_ns) / 1e9 if self._sent < crowd.records else _ANSWER_TIMEOUT_S
            ready = self._poll.poll(wait_s)
            if not ready and self._sent == crowd.records:
                raise WireError(f"no answer within {_ANSWER_TIMEOUT_S} s")
            for file, _ in ready:
                self._receive(*self._of_file[file])
        return self._took_ms

    def _watch(self, connection: Connection, partition: int | None) -> None:
        self._of_file[connection.socket.fileno()] = connection, partition
        self._poll.register(connection.socket.fileno(), select.EPOLLIN)

    def _send(self, due_ns: int) -> None:
        value = _STAMP.pack(due_ns).ljust(VALUE_BYTES, b".")
        batch = record_batch([value], timestamp_ms=time.time_ns() // 1_000_000)
        producer = self._producers[self._sent % len(self._producers)]
        producer.send(produce_request(self._topic, [(self._sent % len(self._parked), batch)]))
        self._sent += 1

    def _receive(self, connection: Connection, partition: int | None) -> None:
        response = connection.receive()
        if partition is None:
            check_produced(response, self._topic)
            self._acknowledged += 1
            return
        fetched = read_fetched(response, self._topic)  # empty when its wait is over
        position, now_ns = 0, time.perf_counter_ns()
        while position < len(fetched.records):
            (due_ns,) = _STAMP.unpack_from(fetched.records, position + _VALUE_POSITION)
            self._took_ms.append((now_ns - due_ns) / 1e6)
            position += 12 + int.from_bytes(fetched.records[position + 8 : position + 12], "big")
        if fetched.next_offset is not None:
            self._offsets[partition] = fetched.next_offset
        self._fetch(partition)

    def _fetch(self, partition: int) -> None:
        request = fetch_request(self._topic, partition, self._offsets[partition], _FETCH_BYTES, WAIT_MS)
        self._parked[partition].send(request)


@contextmanager
def open_files() -> Iterator[None]:
    """As many as the system allows this process, and what it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def main() -> None:
    said = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.crowd", description=said)
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="all together (%(default)s)")
    parser.add_argument("--parked", type=int, default=PARKED, help="how many of them wait in Fetch (%(default)s)")
    parser.add_argument("--records-per-s", type=int, default=RECORDS_PER_S, help="%(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="%(default)s; more than the Fetches' 30 s")
    options = parser.parse_args()
    crowd = Crowd(options.connections, options.parked, options.records_per_s, options.seconds)
    directory = Path(tempfile.mkdtemp(prefix="pqbroker-crowd-"))
    try:
        with open_files(), broker(directory / "data") as running:
            print(f"{crowd.connections} connections, {crowd.parked} parked, {crowd.records_per_s} records/s")
            print(measure(running, crowd))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
