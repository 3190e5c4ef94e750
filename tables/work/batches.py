"""Stored record batches as Arrow columns. aiokafka's parser in C decodes the records."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute as compute
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.pq.log.row_facts import CUMULATIVE_WEIGHT, TIMESTAMP, RowFact
from pqbroker.protocol.compression import decompress
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CRC_END,
    DECOMPRESSED_BYTES_MAX,
    BatchHeader,
)
from pqbroker.tables.work.stored_batches import NO_ORDER, BatchDamaged, Order, in_order
from pqbroker.tables.work.views import HEADER_TYPE, RAW, RAW_VIEW, View


class RowRange(NamedTuple):
    """Rows [start, end) of a tablet."""

    tablet: int
    start: int
    end: int


class _Rows(NamedTuple):
    """Records of a span, and how many each batch has of them."""

    tablet: int
    records: list[Any]
    counts: list[tuple[BatchHeader, int]]
    facts: Mapping[int, RowFact]
    """Known facts, by row."""


ROWS_AT_ONCE = 4096
"""Records that become columns at one go, about: the objects that they are stay in the processor's cache."""


def decode(
    data: memoryview,
    span: RowRange,
    columns: Sequence[str],
    view: View = RAW_VIEW,
    facts: Iterable[RowFact] | None = None,
    order: Order = NO_ORDER,
) -> Any:
    """The rows of a span in record batches end to end, as one batch of Arrow: the columns asked for, and all of the
    schema's where one of them is. BatchDamaged."""
    names = [name for name in columns if not view.is_typed(name)]
    parts = view.typed.parts if view.typed is not None and len(names) < len(columns) else ()
    makers = [*(_MAKERS[name] for name in names), *(_MAKERS[part] for part in parts)]
    known = {fact.row_index: fact for fact in facts or ()}
    pieces = [[make(rows) for make in makers] for rows in _gathered(data, span, known, order)]
    whole = [pyarrow.concat_arrays(each) for each in zip(*pieces, strict=True)]
    made = dict(zip(names, whole, strict=False))
    if view.typed is not None and parts:
        made |= view.typed.make(dict(zip(parts, whole[len(names) :], strict=True)))
    return pyarrow.RecordBatch.from_arrays(list(made.values()), schema=view.schema(list(made)))


def _gathered(
    data: memoryview, span: RowRange, facts: Mapping[int, RowFact], order: Order
) -> Iterator[_Rows]:
    """Yield the records of a span, some batches at a time; at least once."""
    rows = _Rows(span.tablet, [], [], facts)
    try:
        for position, header in in_order(data, order):
            found = _records(data, position, header, span)
            rows.records.extend(found)
            rows.counts.append((header, len(found)))
            if len(rows.records) >= ROWS_AT_ONCE:
                yield rows
                rows = _Rows(span.tablet, [], [], facts)
    except (CorruptRecordException, KafkaError) as damage:
        raise BatchDamaged(str(damage)) from damage
    yield rows


def records_of(data: memoryview, span: RowRange, order: Order) -> Iterator[Any]:
    """Yield the records of a span in record batches end to end, one by one. BatchDamaged."""
    try:
        for position, header in in_order(data, order):
            yield from _records(data, position, header, span)
    except (CorruptRecordException, KafkaError) as damage:
        raise BatchDamaged(str(damage)) from damage


def _records(data: memoryview, position: int, header: BatchHeader, span: RowRange) -> Sequence[Any]:
    """Return the records of one batch. Its checksum is verified: its file may have gone to other uses since it was
    named."""
    if header.is_control or header.last_offset < span.start or header.base_offset >= span.end:
        return ()
    batch = data[position : position + header.size_bytes]
    if crc32c(batch[CRC_END:]) != header.crc:
        raise BatchDamaged(f"the checksum of the batch at offset {header.base_offset} is wrong")
    if header.codec:
        batch = _decompressed(batch, header)
    records = list(DefaultRecordBatch(batch))
    if header.base_offset >= span.start and header.last_offset < span.end:
        return records
    return [record for record in records if span.start <= record.offset < span.end]


def _decompressed(batch: memoryview, header: BatchHeader) -> memoryview:
    """The batch as it would be without a codec, for a parser that sets no limit to what it decompresses."""
    body = decompress(header.codec, batch[BATCH_HEADER_BYTES:], DECOMPRESSED_BYTES_MAX)
    plain = bytearray(batch[:BATCH_HEADER_BYTES])
    plain[CRC_END : CRC_END + 2] = (header.attributes & ~CODEC_MASK).to_bytes(2)
    return memoryview(plain + body)


def _tablets(rows: _Rows) -> Any:
    return pyarrow.repeat(pyarrow.scalar(rows.tablet, pyarrow.int64()), len(rows.records))


def _numbers(rows: _Rows) -> Any:
    return pyarrow.array([record.offset for record in rows.records], pyarrow.int64())


def _timestamps(rows: _Rows) -> Any:
    """Return the timestamps of the commit. Where nothing is known of it: no record of a batch is later than the
    greatest that it names."""
    parts = [
        pyarrow.repeat(pyarrow.scalar(timestamp_of(header.max_timestamp), pyarrow.uint64()), count)
        for header, count in rows.counts
    ]
    named = pyarrow.concat_arrays(parts) if parts else pyarrow.array([], pyarrow.uint64())
    if not rows.facts:
        return named
    found = [rows.facts.get(record.offset) for record in rows.records]
    return compute.coalesce(pyarrow.array([fact and fact.timestamp for fact in found], pyarrow.uint64()), named)


def _weights(rows: _Rows) -> Any:
    """Null where nothing is known."""
    found = [rows.facts.get(record.offset) for record in rows.records]
    return pyarrow.array([fact and fact.cumulative_weight for fact in found], pyarrow.int64())


def _times(rows: _Rows) -> Any:
    """A time below 0 is none."""
    times = [record.timestamp for record in rows.records]
    if min(times, default=0) < 0:
        times = [each if each >= 0 else None for each in times]
    return pyarrow.array(times, pyarrow.int64())


def _keys(rows: _Rows) -> Any:
    return pyarrow.array([record.key for record in rows.records], pyarrow.binary())


def _values(rows: _Rows) -> Any:
    return pyarrow.array([record.value for record in rows.records], pyarrow.binary())


def _headers(rows: _Rows) -> Any:
    """Most topics have none, and objects are slow."""
    headers = [record.headers for record in rows.records]
    if not any(headers):
        starts = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), len(headers) + 1)
        return pyarrow.ListArray.from_arrays(starts, pyarrow.array([], HEADER_TYPE))
    shown = [[{"key": name, "value": value} for name, value in each] for each in headers]
    return pyarrow.array(shown, RAW["headers"])


_MAKERS: Mapping[str, Callable[[_Rows], Any]] = {
    "$tablet_index": _tablets,
    "$row_index": _numbers,
    TIMESTAMP: _timestamps,
    CUMULATIVE_WEIGHT: _weights,
    "timestamp_ms": _times,
    "key": _keys,
    "value": _values,
    "headers": _headers,
}
