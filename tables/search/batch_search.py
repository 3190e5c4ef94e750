"""Search in one record batch: records that may match are found in its decompressed bytes, and only they are decoded."""

from collections.abc import Iterator
from typing import NamedTuple

from pqbroker.protocol.compression import NONE, decompress
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pqbroker.protocol.expression_engine import FindFirst
from pqbroker.protocol.primitives import read_varlong
from pqbroker.protocol.records import BATCH_HEADER_BYTES, BatchHeader, Record, decode_record

_ONE_BYTE = 0x80


class UnpackedRecords(NamedTuple):
    """The bytes of a batch's records: from `start` to `end` of `data`."""

    data: bytes | bytearray
    start: int
    end: int


def unpack(run: bytes, position: int, header: BatchHeader, bytes_max: int) -> UnpackedRecords:
    """Return the records of the batch at a position of a run, decompressed to at most `bytes_max` bytes. KafkaError.
    No copy is made of what is not compressed."""
    start, end = position + BATCH_HEADER_BYTES, position + header.size_bytes
    if header.codec == NONE:
        return UnpackedRecords(run, start, end)
    data = decompress(header.codec, memoryview(run)[start:end], bytes_max)
    return UnpackedRecords(data, 0, len(data))


def candidates(records: UnpackedRecords, header: BatchHeader, sieve: FindFirst | None) -> Iterator[Record]:
    """Yield the records that a sieve lets through, all of them without one. KafkaError INVALID_RECORD where the bytes
    are no records."""
    data, position, end = records
    try:
        while position < end:
            place = position if sieve is None else sieve(data, position, end)
            if place < 0:
                return
            position, following = _record_around(data, position, end, place)
            record, _ = decode_record(data, position, header)
            yield record
            position = following
    except (IndexError, ProtocolError, UnicodeDecodeError):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at {header.base_offset} holds no records") from None


def _record_around(data: bytes | bytearray, position: int, end: int, place: int) -> tuple[int, int]:
    """Return where the record that holds a place begins and ends, of those from `position` on. IndexError,
    ProtocolError."""
    while True:
        size = data[position]
        at = position + 1
        if size < _ONE_BYTE:
            size >>= 1
        elif (byte := data[at]) < _ONE_BYTE:  # two bytes, as in `read_varlong`: a call for each record is half the time
            size = (size & 0x7F | byte << 7) >> 1
            at += 1
        else:
            size, at = read_varlong(data, position)
        following = at + size
        if size <= 0 or following > end:
            raise ProtocolError("a record runs past the end")
        if place < following:
            return position, following
        position = following
