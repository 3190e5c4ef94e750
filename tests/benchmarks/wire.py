"""Kafka requests built by hand, for drivers that cost next to nothing. Independent of the code they measure.

Only what the raw workloads send: Produce v7, Fetch v11 and ListOffsets v2, each for one topic, none flexible.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import crc32c

Buffer = bytes | bytearray | memoryview

_PRODUCE, _FETCH, _LIST_OFFSETS = 0, 1, 2
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_BATCH_TAIL: Final = struct.Struct(">hiqqqhii")  # what the checksum covers, before the records
_PRODUCED: Final = struct.Struct(">ihqqq")  # partition, error, base offset, append time, start offset
_LISTED: Final = struct.Struct(">ihqq")  # partition, error, timestamp, offset
_FETCHED: Final = struct.Struct(">ihqqqi")  # partition, error, high watermark, stable, start, aborted count
_LATEST = -1
_BUFFER_BYTES = 4 << 20


class WireError(Exception):
    """The broker answered with an error, or closed the connection."""


def record_batch(
    values: Sequence[bytes], timestamp_ms: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """One uncompressed v2 batch; every record without key and headers. `producer`: id, epoch and first sequence."""
    records = b"".join(_record(index, value) for index, value in enumerate(values))
    last = len(values) - 1
    tail = _BATCH_TAIL.pack(0, last, timestamp_ms, timestamp_ms, *producer, len(values)) + records
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail


def produce_request(topic: str, batches: Sequence[tuple[int, bytes]], transactional_id: str | None = None) -> bytes:
    """A Produce request with acks=all, with a batch for each (partition, batch); its length in front."""
    name = struct.pack(">h", -1) if transactional_id is None else _string(transactional_id)
    body = [name, struct.pack(">hii", -1, 30_000, 1), _string(topic), struct.pack(">i", len(batches))]
    for partition, batch in batches:
        body += [struct.pack(">ii", partition, len(batch)), batch]
    return _request(_PRODUCE, 7, b"".join(body))


def fetch_request(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int = 500) -> bytes:
    """A Fetch request without a session: at least a byte, at most `bytes_max`, after `wait_ms` at the latest."""
    return _request(_FETCH, 11, b"".join([
        struct.pack(">iiiibiii", -1, wait_ms, 1, bytes_max, 0, 0, -1, 1), _string(topic),
        struct.pack(">iiiqqi", 1, partition, -1, offset, -1, bytes_max),
        struct.pack(">i", 0), _string(""),
    ]))  # fmt: skip


def produced_size(topic: str, partitions: int = 1) -> int:
    """The size of a Produce response, its length included."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + partitions * _PRODUCED.size + 4


def check_produced(response: Buffer, topic: str) -> None:
    """WireError when a partition of a Produce response (without its length) has an error."""
    position = 8 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", response, position)
    for index in range(count):
        partition, error, *_ = _PRODUCED.unpack_from(response, position + 4 + index * _PRODUCED.size)
        if error:
            raise WireError(f"produce to {topic}-{partition}: error {error}")


def produced_offset(response: Buffer, topic: str) -> int:
    """The base offset that the first partition of a Produce response (without its length) was given."""
    _, _, base_offset, *_ = _PRODUCED.unpack_from(response, 8 + 2 + len(topic) + 4)
    return int(base_offset)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a Fetch response holds: whole batches in `records`, and the offset after them (None: no batch)."""

    records: memoryview
    next_offset: int | None


def read_fetched(response: memoryview, topic: str) -> Fetched:
    """Read a Fetch response (without its length) of one partition; a partial batch at the end is not counted."""
    error = struct.unpack_from(">h", response, 8)[0]
    position = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4
    partition, partition_error, *_, aborted = _FETCHED.unpack_from(response, position)
    if error or partition_error:
        raise WireError(f"fetch of {topic}-{partition}: error {error or partition_error}")
    position += _FETCHED.size + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", response, position)
    records = response[position + 4 : position + 4 + max(size, 0)]
    end, next_offset = 0, None
    while end + _BATCH.size <= len(records):
        base_offset, length, _, _, _, _, last_delta, *_ = _BATCH.unpack_from(records, end)
        if end + 12 + length > len(records):
            break
        end, next_offset = end + 12 + length, base_offset + last_delta + 1
    return Fetched(records[:end], next_offset)


class Connection:
    """A blocking connection to a broker. Answers come in the order of requests."""

    def __init__(self, address: str, timeout_s: float = 60, buffer_bytes: int = _BUFFER_BYTES) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(buffer_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        """Send a request with its length in front."""
        self.socket.sendall(request)

    def receive(self) -> memoryview:
        """The next response without its length; valid until the next call."""
        (size,) = struct.unpack(">i", self._receive(4))
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        return self._receive(size)

    def _receive(self, size: int) -> memoryview:
        view = memoryview(self._buffer)[:size]
        position = 0
        while position < size:
            count = self.socket.recv_into(view[position:])
            if count == 0:
                raise WireError("the broker closed the connection")
            position += count
        return view


def end_offsets(address: str, topic: str, partitions: int) -> list[int]:
    """The end offset of every partition."""
    wanted = b"".join(struct.pack(">iq", partition, _LATEST) for partition in range(partitions))
    body = struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">i", partitions) + wanted
    with Connection(address) as connection:
        connection.send(_request(_LIST_OFFSETS, 2, body))
        response = bytes(connection.receive())
    offsets = {}
    for partition, error, _, offset in _LISTED.iter_unpack(response[4 + 4 + 4 + 2 + len(topic) + 4 :]):
        if error:
            raise WireError(f"offsets of {topic}-{partition}: error {error}")
        offsets[partition] = offset
    return [offsets[partition] for partition in range(partitions)]


def _request(api_key: int, version: int, body: bytes) -> bytes:
    """Every request has the same correlation id: order tells answers apart, and a request built once is sent often."""
    header = struct.pack(">hhi", api_key, version, 7) + _string("benchmark")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode("ascii")


def _record(index: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(index) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
