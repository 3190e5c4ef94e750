"""A broker process under attack, and what must hold all the while: its memory, its turns, other clients' requests.

Nothing of the broker is imported but its codec: what it is asked are bytes.
"""

import os
import re
import socket
import ssl
import struct
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.testing import Broker, broker
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import BY_REQUEST, read_response, request_frame
from tests.support.crowding import Crowding
from tests.support.wire import Wire

TICK_S = 0.01
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
WITNESS_TOPIC = "witness"
KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", "max.message.bytes": "1000000"}
"""What the witness's topic is set to, whatever becomes of the node's settings."""
RSS_BYTES_MAX = 500 << 20
ANSWER_S_MAX = 1.0
"""Seconds that a small answer takes at most; `Attacked.answer_s_max` is the limit beside other programs."""
TURN_S_MAX = 0.050
"""On a machine that does nothing else."""
TURN_EVER_S_MAX = 0.200
"""Where other programs run beside it: each of the longest turns (a pass of the collector, the end of a request of many
elements, the copy of a field of many megabytes) costs two or three times its time then."""
EXPLAINED = 0.8
"""Of the longest turn: a search of all memory for garbage that took so much of it was that turn."""
PAUSE_S = 0.02
SETTINGS = {"pqbroker.loop.lag.sample.ms": "2", "group.initial.rebalance.delay.ms": "0"}
_MEMORY = Path("/dev/shm")
_SAMPLE = re.compile(r"^pqbroker_(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Caller:
    """One blocking connection. ConnectionError, TimeoutError (both OSError) when the broker does not answer."""

    def __init__(
        self, address: str, timeout_s: float = 60.0, source: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`source`: the address to come from. `tls`: the connection is encrypted."""
        host, _, port = address.rpartition(":")
        come_from = (source, 0) if source else None
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=come_from)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int | None = None) -> None:
        """Send a request, in its latest version unless told otherwise."""
        version = BY_REQUEST[type(request)].version_max if version is None else version
        self.socket.sendall(request_frame(request, version))

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The response."""
        api = BY_REQUEST[type(request)]
        self.send(request, version)
        return read_response(api, api.version_max if version is None else version, self.receive())[1]

    def answer(self, request: type, version: int) -> Any:
        """The response to a request of this kind that was sent before."""
        return read_response(BY_REQUEST[request], version, self.receive())[1]

    def receive(self) -> bytes:
        """The next frame."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def skip(self) -> int:
        """Receive the next frame without keeping it; returns its size."""
        (size,) = struct.unpack(">i", self._receive(4))
        left = size
        while left:
            piece = self.socket.recv(min(left, 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            left -= len(piece)
        return int(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)


class Ticker:
    """Counts for how long this process let none of its threads run: an attack is prepared in large steps."""

    def __init__(self) -> None:
        self.late_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def settle(self) -> None:
        """Return when what has passed until now is counted."""
        time.sleep(2 * TICK_S)

    def _tick(self) -> None:
        while not self._is_over.is_set():
            started = time.perf_counter()
            time.sleep(TICK_S)
            self.late_s += max(0.0, time.perf_counter() - started - 2 * TICK_S)


class Witness:
    """Another client: asks for one topic and writes one record, again and again, and notes the slowest answer."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self._caller = Caller(address, tls=tls)
        self._caller.ask(create_request(WITNESS_TOPIC, 1, KEPT))
        self._is_over = threading.Event()
        self._ticker = Ticker()
        self._thread = threading.Thread(target=self._call)
        self.worst_s = 0.0
        self.acknowledged = 0
        self.error: Exception | None = None
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._ticker.stop()
        self._caller.close()

    def _call(self) -> None:
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=WITNESS_TOPIC)])
        produce = produce_request(WITNESS_TOPIC, make_batch(b"v"))
        try:
            while not self._is_over.wait(PAUSE_S):
                for request, version in ((metadata, 12), (produce, 9)):
                    late_s, started = self._ticker.late_s, time.perf_counter()
                    answer = self._caller.ask(request, version)
                    answer_s = time.perf_counter() - started
                    if answer_s > self.worst_s:
                        self._ticker.settle()
                        self.worst_s = max(self.worst_s, answer_s - (self._ticker.late_s - late_s))
                answer = answer.responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, self.acknowledged), answer
                self.acknowledged += 1
        except Exception as error:  # noqa: BLE001 (of this thread; raised where it is awaited)
            self.error = error


@dataclass(frozen=True, slots=True)
class Seen:
    """The worst of a broker so far: memory, another client's slowest answer, turns of the loop."""

    rss_bytes: int
    answer_s: float
    turn_s: float
    pass_s: float
    lag_s: float
    records: int

    def __str__(self) -> str:
        return (
            f"{self.rss_bytes >> 20} MiB, slowest small answer {self.answer_s * 1000:.0f} ms, longest turn "
            f"{self.turn_s * 1000:.0f} ms of CPU, longest pass of "
            f"collector {self.pass_s * 1000:.0f} ms, {self.lag_s * 1000:.0f} ms of wall time, {self.records} records"
        )


class Attacked:
    """The broker, its other client, and what was seen."""

    def __init__(self, running: Broker, crowding: Crowding, *, tls: bool = False) -> None:
        self.broker = running
        self.crowding = crowding
        self.tls = running.tls.context() if tls else None
        """Clients connect over TLS with this context; None: the broker takes plain connections."""
        self.witness = Witness(running.kafka, self.tls)

    @property
    def answer_s_max(self) -> float:
        """Seconds that a small answer may take on a machine that is as crowded as this one was so far."""
        return ANSWER_S_MAX * self.crowding.times

    def connect(self, timeout_s: float = 60.0, source: str | None = None) -> Caller:
        return Caller(self.broker.kafka, timeout_s, source, self.tls)

    def create(self, topic: str, partitions: int) -> None:
        with self.connect() as caller:
            answer = caller.ask(create_request(topic, partitions))
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def rss_bytes(self, field: str = "VmRSS") -> int:
        """What the process takes; VmHWM: the most that it has taken so far."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text(encoding="ascii")
        match = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) << 10

    def cpu_s(self) -> float:
        """Seconds of CPU time that the process has had."""
        _, _, fields = Path(f"/proc/{self.broker.pid}/stat").read_text(encoding="ascii").rpartition(") ")
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / CLOCK_TICKS

    def samples(self) -> dict[str, float]:
        """Every metric that has one value."""
        with urllib.request.urlopen(f"http://{self.broker.http}/metrics", timeout=60) as answer:
            return {name: float(text) for name, text in _SAMPLE.findall(answer.read().decode())}

    def look(self) -> "Seen":
        """What was seen so far."""
        samples = self.samples()
        return Seen(
            rss_bytes=self.rss_bytes("VmHWM"),
            answer_s=self.witness.worst_s,
            turn_s=samples["loop_turn_worst_seconds"],
            pass_s=samples["memory_pass_worst_seconds"],
            lag_s=samples["loop_lag_worst_seconds"],
            records=self.witness.acknowledged,
        )

    def check(self, *, turn_s_max: float = TURN_S_MAX, pass_s_max: float = TURN_EVER_S_MAX) -> "Seen":
        """What must hold at any time. `pass_s_max`: for a turn that was a search of all memory."""
        if self.witness.error is not None:
            raise self.witness.error
        seen = self.look()
        assert seen.rss_bytes < RSS_BYTES_MAX, seen
        assert seen.answer_s < self.answer_s_max, seen
        if seen.pass_s < EXPLAINED * seen.turn_s:  # else: the one turn that is known to be longer
            assert seen.turn_s < min(turn_s_max, TURN_EVER_S_MAX), seen
        assert seen.turn_s < max(TURN_EVER_S_MAX, pass_s_max), seen
        self.check_log()
        return seen

    def check_log(self) -> None:
        """No request met a defect."""
        _, found, trace = self.broker.log.partition("Traceback")
        assert not found, trace[:4000]

    def check_directory(self) -> None:
        """Kill, start again, and find every acknowledged record."""
        self.witness.stop()
        self.broker.kill()
        self.broker.start()
        with Wire(self.broker.kafka, tls=self.tls) as wire:
            stored = sum(header.record_count for header, _ in wire.log(WITNESS_TOPIC, 0))
        assert stored >= self.witness.acknowledged > 0
        self.check_log()


def create_request(topic: str, partitions: int, config: Mapping[str, str] | None = None) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in (config or {}).items()]
    named = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
    return CreateTopicsRequest(timeout_ms=60_000, topics=[named])


@contextmanager
def attacked(
    settings: Mapping[str, str] | None = None,
    *,
    turn_s_max: float = TURN_S_MAX,
    pass_s_max: float = TURN_EVER_S_MAX,
    tls: bool = False,
) -> Iterator[Attacked]:
    """A fresh broker to attack, under TLS or plain; at the end all must hold that is said above, and its directory must
    start.

    Its data lies in memory where the system has a file system there: how long a disk takes to sync is not asked here.
    """
    with (
        Crowding() as crowding,
        tempfile.TemporaryDirectory(prefix="pqbroker-", dir=_MEMORY if _MEMORY.is_dir() else None) as scratch,
        broker(Path(scratch, "data"), {**SETTINGS, **(settings or {})}, tls=tls) as running,
    ):
        node = Attacked(running, crowding, tls=tls)
        try:
            yield node
            print(node.check(turn_s_max=turn_s_max, pass_s_max=pass_s_max))
            node.check_directory()
        finally:
            node.witness.stop()
