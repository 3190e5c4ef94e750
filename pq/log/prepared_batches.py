"""Rows that a transaction has prepared in a partition, as they are stored behind their `PreparedHead`. Pure.

    0   uint8     format 1; 2: the rows are the batch of a queue producer's session
    1   uint32    CRC-32C of all that follows
    5   uint32    batches, one at least
    9   uint8     1: the rows are the batch of a session; 0: they are not
    10  uint64    its sequence there; 0 without a session
    18  uint16    bytes of the session's name
    20  the name; in format 2 the producer's epoch (uint64), the bytes of the user's document (uint32), the document;
        then of each batch:
        uint32    bytes of the batch
        uint32    rows whose weights follow; 0: nobody has weighed them
        the record batch
        uint32    the weight of each row

Numbers are little endian.
"""

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.pq.log.row_facts import RowWeights
from pqbroker.pq.log.sessions import Fence, ProducerState
from pqbroker.pq.log.write_cycle import PlannedBatch
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BATCH_MAGIC, read_header
from pqbroker.storage.engine import Buffer
from pqbroker.storage.unreadable import check_version

_VERSION = 1
_VERSION_OF_PRODUCER = 2
"""Earlier versions refuse it."""
_PRODUCER = Struct("<QI")
_SUM = Struct("<BI")
_HEADER = Struct("<IBQH")
_BATCH = Struct("<II")
_WEIGHT_BYTES = 4


class PreparedBatches(NamedTuple):
    """Checked batches in their order, with the weights of the rows of each, or None for it; `fence`: the batch of a
    session that they are."""

    fence: Fence | None
    batches: Sequence[PlannedBatch]
    weights: Sequence[RowWeights | None]

    def encode(self) -> list[Buffer]:
        """Return the stored form as buffers end to end; batches are not copied."""
        session = b"" if self.fence is None else self.fence.session.encode()
        sequence = 0 if self.fence is None else self.fence.sequence
        buffers: list[Buffer] = [_HEADER.pack(len(self.batches), self.fence is not None, sequence, len(session))]
        buffers.append(session)
        producer = None if self.fence is None else self.fence.producer
        if producer is not None:
            buffers += (_PRODUCER.pack(producer.epoch, len(producer.user_meta)), producer.user_meta)
        for (batch, _), weights in zip(self.batches, self.weights, strict=True):
            column = array("I", weights or ())
            if sys.byteorder != "little":
                column.byteswap()
            buffers += (_BATCH.pack(len(batch), len(column)), batch, column.tobytes())
        checksum = 0
        for buffer in buffers:
            checksum = crc32c(buffer, checksum)
        return [_SUM.pack(_VERSION if producer is None else _VERSION_OF_PRODUCER, checksum), *buffers]

    @classmethod
    def decode(cls, stored: bytes) -> "PreparedBatches":
        """Take the stored form apart; the batches are copies, to be stamped. ValueError for what no `encode` of this
        version writes."""
        is_of_producer = stored[:1] == bytes((_VERSION_OF_PRODUCER,))
        check_version(stored, _VERSION_OF_PRODUCER if is_of_producer else _VERSION)
        if len(stored) < _SUM.size + _HEADER.size:
            raise ValueError(f"{len(stored)} bytes are less than the header of prepared batches")
        _, checksum = _SUM.unpack_from(stored)
        view = memoryview(bytearray(stored))[_SUM.size :]
        if crc32c(view) != checksum:
            raise ValueError("prepared batches do not match their checksum")
        count, has_fence, sequence, name_bytes = _HEADER.unpack_from(view)
        name = bytes(view[_HEADER.size : _HEADER.size + name_bytes])
        is_fence = has_fence == 1 or (not has_fence and not sequence and not name_bytes)
        if not is_fence or len(name) != name_bytes or not count:
            raise ValueError(f"prepared batches have {count} batches, and a session's name of {name_bytes} bytes")
        batches: list[PlannedBatch] = []
        found: list[RowWeights | None] = []
        at = _HEADER.size + name_bytes
        producer = None
        if is_of_producer:
            producer, at = _read_producer(view, at)
        for _ in range(count):
            batch, weights, at = _read_batch(view, at)
            batches.append(batch)
            found.append(weights)
        if at != len(view):
            raise ValueError(f"{len(view) - at} bytes follow prepared batches")
        return cls(Fence(name.decode(), sequence, producer) if has_fence else None, batches, found)


def _read_producer(view: memoryview, at: int) -> tuple[ProducerState, int]:
    """Return the producer's state at a position, and where the batches begin. ValueError."""
    begin = at + _PRODUCER.size
    if begin > len(view):
        raise ValueError(f"prepared batches end at byte {len(view)}, within the state of a producer")
    epoch, meta_bytes = _PRODUCER.unpack_from(view, at)
    meta = bytes(view[begin : begin + meta_bytes])
    if len(meta) != meta_bytes:
        raise ValueError(f"prepared batches end at byte {len(view)}, within a producer's document")
    return ProducerState(epoch, meta), begin + meta_bytes


def _read_batch(view: memoryview, at: int) -> tuple[PlannedBatch, RowWeights | None, int]:
    """Return the batch at a position, the weights of its rows, and where the next one begins. ValueError."""
    begin = at + _BATCH.size
    if begin > len(view):
        raise ValueError(f"prepared batches end at byte {len(view)}, within the sizes of a batch")
    size, row_count = _BATCH.unpack_from(view, at)
    end = begin + size + row_count * _WEIGHT_BYTES
    if end > len(view):
        raise ValueError(f"prepared batches end at byte {len(view)}, within a batch that ends at {end}")
    batch = view[begin : begin + size]
    try:
        header = read_header(batch)
    except KafkaError as cause:
        raise ValueError(f"a prepared batch is none: {cause.message}") from cause
    if header.magic != BATCH_MAGIC or header.size_bytes != size or row_count not in (0, header.last_offset_delta + 1):
        raise ValueError(f"a prepared batch of {size} bytes and {row_count} weights says of itself {header}")
    weights = array("I", bytes(view[begin + size : end]))
    if sys.byteorder != "little":
        weights.byteswap()
    return (batch, header), weights or None, end
