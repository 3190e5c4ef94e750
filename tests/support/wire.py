"""A broker asked over a plain socket with hand-packed requests: no client's codec between, and not our own.

Only what the suites look at: Fetch v4 and ListOffsets v1, for one partition, and the headers of record batches.
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EARLIEST, LATEST = -2, -1
_TIMEOUT_S = 30.0
_BATCH = struct.Struct(">qiibIhiqqqhii")
_FETCH_BYTES = 8 << 20


class StoredBatch(NamedTuple):
    """The header of one record batch as it lies in the log."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 7

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last."""
        return self.base_offset + self.last_offset_delta + 1


class Fetched(NamedTuple):
    """One partition of a Fetch answer: Kafka's error code, the high watermark, and whole batches."""

    error_code: int
    high_watermark: int
    records: bytes

    def batches(self) -> Iterator[tuple[StoredBatch, bytes]]:
        """Each whole batch with its header; a last one cut short by the size limit is left out."""
        position = 0
        while position + _BATCH.size <= len(self.records):
            header = StoredBatch(*_BATCH.unpack_from(self.records, position))
            end = position + 12 + header.length
            if end > len(self.records):
                return
            yield header, self.records[position:end]
            position = end


class Wire:
    """One blocking connection; a context manager. Errors of the socket pass through."""

    def __init__(self, address: str, timeout_s: float = _TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fetch(
        self, topic: str, partition: int, offset: int, *, bytes_max: int = _FETCH_BYTES, wait_ms: int = 0
    ) -> Fetched:
        """Ask for records from `offset` on; waits up to `wait_ms` at the broker when there are none."""
        body = struct.pack(">iiiibi", -1, wait_ms, 1, bytes_max, 0, 1) + _string(topic)
        body += struct.pack(">iiqi", 1, partition, offset, bytes_max)
        answer = self._ask(1, 4, body)
        position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4  # throttle, topics, name, partitions, index
        error_code, high_watermark, _stable, aborted = struct.unpack_from(">hqqi", answer, position)
        position += 22 + max(aborted, 0) * 16
        (size,) = struct.unpack_from(">i", answer, position)
        return Fetched(error_code, high_watermark, answer[position + 4 : position + 4 + max(size, 0)])

    def offset(self, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        """(error code, offset) for EARLIEST, LATEST or a time in ms; offset -1 when nothing is that late."""
        body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, partition, timestamp)
        answer = self._ask(2, 1, body)
        error_code, _timestamp, offset = struct.unpack_from(">hqq", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
        return error_code, offset

    def log(self, topic: str, partition: int) -> Iterator[tuple[StoredBatch, bytes]]:
        """Every batch from the log's start to its end, in order. AssertionError on an error code or a hole."""
        error_code, offset = self.offset(topic, partition, EARLIEST)
        assert error_code == 0, error_code
        while True:
            fetched = self.fetch(topic, partition, offset)
            assert fetched.error_code == 0, fetched.error_code
            if offset >= fetched.high_watermark:
                return
            before = offset
            for header, batch in fetched.batches():
                yield header, batch
                offset = header.next_offset
            assert offset > before, f"nothing at {offset}, below the high watermark {fetched.high_watermark}"

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        request = struct.pack(">hhi", api_key, version, self._correlation_id) + _string("wire") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
