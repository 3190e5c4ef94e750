"""Whether cost grows as the work, or as what there is: python -m tests.benchmarks.growth [--only KIND]

The same number of requests a second goes to ever more partitions, topics, producers or groups, in turn; one connection
more or less has no part in it. Of each size: the broker's processor time a request, the seconds to its first answer
after a kill -9, and its resident memory then, idle.
"""

import argparse
import select
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pqbroker.fixture.process import BrokerProcess
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.benchmarks.figures import percentile
from tests.benchmarks.meter import cpu_seconds, memory
from tests.benchmarks.report import number, text_table
from tests.benchmarks.wire import Connection, WireError, produce_request, record_batch
from tests.broker.wire import request_frame
from tests.faults.exec_time import start

SIZES = (100, 1_000, 10_000)
REQUESTS_PER_S = 1_000
SECONDS = 10.0
CONNECTIONS = 8
TOPICS_A_REQUEST = 100
FEW = 100
"""Partitions that producers and groups share, whatever their number."""
STARTS = 3
_ANSWER_TIMEOUT_S = 60
_VALUE = b"." * 100


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of each kind there is, and what is asked."""

    sizes: Sequence[int] = SIZES
    requests_per_s: int = REQUESTS_PER_S
    seconds: float = SECONDS
    starts: int = STARTS


@dataclass(frozen=True, slots=True)
class Kind:
    """What there is ever more of: the topics and partitions it takes, and a request to the one of a number."""

    name: str
    topics: Callable[[int], dict[str, int]]
    request: Callable[[int, int], bytes]
    """Of the one with the number `index`, in the round `round`."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one size: µs of CPU a request, latency, seconds of a start, MiB idle after it."""

    kind: str
    size: int
    cpu_us: float
    p50_ms: float
    p99_ms: float
    start_s: float
    idle_mib: float

    def row(self, first: "Cost") -> list[str]:
        return [
            self.kind, str(self.size), number(self.cpu_us), f"{self.cpu_us / first.cpu_us:.2f}", number(self.p50_ms),
            number(self.p99_ms), number(self.start_s), number(self.idle_mib),
        ]  # fmt: skip


HEADER = ["kind", "size", "CPU µs/request", "× first", "p50 ms", "p99 ms", "start s", "idle MiB"]


def _batch() -> bytes:
    return record_batch([_VALUE], time.time_ns() // 1_000_000)


def _to_partition(index: int, _: int) -> bytes:
    return produce_request("all", [(index, _batch())])


def _to_topic(index: int, _: int) -> bytes:
    return produce_request(_topic(index), [(0, _batch())])


def _by_producer(index: int, round_: int) -> bytes:
    batch = record_batch([_VALUE], time.time_ns() // 1_000_000, producer=(1_000 + index, 0, round_))
    return produce_request("all", [(index % FEW, batch)])


def _by_group(index: int, round_: int) -> bytes:
    partition = OffsetCommitRequestPartition(
        partition_index=index % FEW, committed_offset=round_, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name="all", partitions=[partition])]
    return request_frame(OffsetCommitRequest(group_id=f"group-{index}", topics=topics), 7)


def _topic(index: int) -> str:
    return f"topic-{index}"


KINDS = (
    Kind("partitions", lambda size: {"all": size}, _to_partition),
    Kind("topics", lambda size: {_topic(index): 1 for index in range(size)}, _to_topic),
    Kind("producers", lambda _: {"all": FEW}, _by_producer),
    Kind("groups", lambda _: {"all": FEW}, _by_group),
)


def measure(kind: Kind, size: int, scale: Scale, directory: Path) -> Cost:
    """On a fresh broker: every one of the kind is written to once before anything is measured."""
    directory.mkdir(parents=True)
    log_file = directory / "log"
    log_file.touch()
    node = BrokerProcess(directory / "data", {}, log_file, "info")
    try:
        node.start()
        topics = kind.topics(size)
        _create(node.kafka, topics)
        _exchange(node.kafka, ((index, kind.request(index, 0)) for index in range(size)), None)
        count = int(scale.requests_per_s * scale.seconds)
        asked = (divmod(number, size) for number in range(count))
        requests = ((index, kind.request(index, 1 + round_)) for round_, index in asked)
        before = cpu_seconds(node.pid)
        took_ms = _exchange(node.kafka, requests, scale.requests_per_s)
        cpu_us = (cpu_seconds(node.pid) - before) / count * 1e6
        start_s, idle_mib = _starts(node, next(iter(topics)), scale.starts)
        return Cost(
            kind.name, size, cpu_us, percentile(took_ms, 50), percentile(took_ms, 99), start_s, idle_mib
        )
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _create(address: str, topics: dict[str, int]) -> None:
    names = list(topics)
    with Connection(address) as connection:
        for first in range(0, len(names), TOPICS_A_REQUEST):
            asked = [
                CreatableTopic(name=name, num_partitions=topics[name], replication_factor=1)
                for name in names[first : first + TOPICS_A_REQUEST]
            ]
            connection.send(request_frame(CreateTopicsRequest(topics=asked, timeout_ms=60_000), 2))
            connection.receive()


def _exchange(address: str, requests: Iterator[tuple[int, bytes]], requests_per_s: int | None) -> list[float]:
    """Send requests when they are due, or as they are answered; ms from when each was due to its answer.

    Those of a number go over one connection, so that their order stays.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(address)) for _ in range(CONNECTIONS)]
        return _Pace(connections, requests, requests_per_s).run()


class _Pace:
    """Requests on their way. Answers of a connection come in the order of its requests."""

    def __init__(
        self, connections: Sequence[Connection], requests: Iterator[tuple[int, bytes]], requests_per_s: int | None
    ) -> None:
        self._connections = connections
        self._requests = requests
        self._step_ns = 1_000_000_000 // requests_per_s if requests_per_s else 0
        self._sent: list[list[int]] = [[] for _ in connections]
        self._took_ms: list[float] = []

    def run(self) -> list[float]:
        due_ns = time.perf_counter_ns()
        for index, request in self._requests:
            turn = index % len(self._connections)
            while self._step_ns and (left_ns := due_ns - time.perf_counter_ns()) > 0:
                self._receive(left_ns / 1e9)
            while not self._step_ns and self._sent[turn]:
                self._receive(_ANSWER_TIMEOUT_S)
            self._sent[turn].append(due_ns if self._step_ns else time.perf_counter_ns())
            self._connections[turn].send(request)
            due_ns += self._step_ns
        while any(self._sent):
            self._receive(_ANSWER_TIMEOUT_S, must=True)
        return self._took_ms

    def _receive(self, wait_s: float, *, must: bool = False) -> None:
        ready, _, _ = select.select([each.socket for each in self._connections], [], [], wait_s)
        if not ready and must:
            raise WireError(f"no answer within {_ANSWER_TIMEOUT_S} s")
        for index, connection in enumerate(self._connections):
            if connection.socket in ready:
                _check(connection.receive())
                self._took_ms.append((time.perf_counter_ns() - self._sent[index].pop(0)) / 1e6)


def _check(response: memoryview) -> None:
    """WireError for an error of the one partition that the response is about, of Produce 7 or OffsetCommit 7."""
    position = 4
    if struct.unpack_from(">i", response, position)[0] == 0:  # the throttle time of OffsetCommit comes first
        position += 4
    (name_bytes,) = struct.unpack_from(">h", response, position + 4)
    (error,) = struct.unpack_from(">h", response, position + 4 + 2 + name_bytes + 4 + 4)
    if error:
        raise WireError(f"error {error}")


def _starts(node: BrokerProcess, topic: str, count: int) -> tuple[float, float]:
    """The least of some starts, each after a kill -9: seconds, MiB resident."""
    least_s, least_mib = float("inf"), float("inf")
    for _ in range(count):
        node.kill()
        least_s = min(least_s, start(node, topic).own_s)
        least_mib = min(least_mib, memory(node.pid).now_mib)
    return least_s, least_mib


def main() -> None:
    said = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=said)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], help="one kind alone")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of requests for each size (%(default)s)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="pqbroker-growth-"))
    kinds = [kind for kind in KINDS if options.only in (None, kind.name)]
    try:
        print(f"{REQUESTS_PER_S} requests/s over {CONNECTIONS} connections", flush=True)
        for kind in kinds:
            costs: list[Cost] = []
            for size in SIZES:
                costs.append(measure(kind, size, replace(Scale(), seconds=options.seconds), directory / kind.name))
                print(f"{kind.name}: {size} measured", file=sys.stderr, flush=True)
            print(text_table(HEADER, [cost.row(costs[0]) for cost in costs]), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
