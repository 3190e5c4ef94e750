"""A broker process under attack: another client works beside it, its memory is watched, its directory starts again."""

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.testing import Broker, broker
from tests.broker.conftest import make_batch, produce_request
from tests.broker.wire import BY_REQUEST, read_response, request_frame

MEMORY_BYTES_MAX = 500 << 20
ANSWER_S_MAX = 1.0
PACE_S = 0.05
TOPIC = "witness"
_TIMEOUT_S = 30.0


class Attacker:
    """One connection of blocking calls, which sends what it likes."""

    def __init__(self, address: str, timeout_s: float = _TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int | None = None) -> None:
        """Send a request, in its latest version unless told otherwise."""
        version = BY_REQUEST[type(request)].version_max if version is None else version
        self.socket.sendall(request_frame(request, version))

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Send, and wait for the answer. ConnectionError when the broker closes."""
        api = BY_REQUEST[type(request)]
        self.send(request, version)
        return read_response(api, api.version_max if version is None else version, self.receive())[1]

    def receive(self) -> bytes:
        """The next answer's bytes."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)


class Witness:
    """Another client: it writes a record, over and over, and notes how long the answer took."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_over = threading.Event()
        self.slowest_s = 0.0
        self.written = 0

    def run(self) -> None:
        """Until `end`, in a thread; once at least."""
        client = Attacker(self._address)
        while not (self._is_over.wait(PACE_S) and self.written):
            started = time.monotonic()
            answer = client.ask(produce_request(TOPIC, make_batch(b"%d" % self.written)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            self.written += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        client.close()

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def attacked(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A fresh broker and a witness of what happens in the block.

    At its end: the witness was answered within a second each time, the broker never took 500 MiB, its log has no
    traceback, and after a kill the directory starts with every record that the witness was acknowledged.
    """
    with broker(directory, settings) as victim:
        client = Attacker(victim.kafka)
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]))
        client.close()
        witness = Witness(victim.kafka)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(witness.run)
            try:
                yield victim
            finally:
                witness.end()
            running.result(_TIMEOUT_S)
        assert witness.written
        assert memory_bytes(victim, "VmHWM") < MEMORY_BYTES_MAX, memory_bytes(victim, "VmHWM") >> 20
        assert witness.slowest_s < ANSWER_S_MAX, witness.slowest_s
        assert "Traceback" not in victim.log
        victim.kill()
        victim.start()
        assert end_offset(victim) >= witness.written


def end_offset(victim: Broker) -> int:
    """Of the partition that the witness writes to."""
    client = Attacker(victim.kafka)
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    client.close()
    found: int = answer.topics[0].partitions[0].offset
    return found


def memory_bytes(victim: Broker, field: str = "VmRSS") -> int:
    """What the system says of the process; VmHWM: the most that its VmRSS ever was."""
    for line in Path(f"/proc/{victim.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {field} of process {victim.pid}")
