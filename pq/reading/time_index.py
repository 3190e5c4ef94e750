"""Search of offsets by timestamp, exact to the record (clients 4.28): which batches may hold the answer, and which
record is it.

Timestamps need not ascend; index entries and batch headers are upper bounds, the records themselves decide.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pqbroker.pq.log.batch_run import Run
from pqbroker.protocol.records import BatchHeader, decode_times, read_header
from pqbroker.storage.engine import Buffer


class TimedOffset(NamedTuple):
    """A record's offset and timestamp, and the leader epoch that wrote it."""

    offset: int
    timestamp: int
    leader_epoch: int


def batches_from(run: Run, stop: int, timestamp: int, first_offset: int) -> Iterator[Buffer]:
    """Batches of a run, in order, that may hold a record at or after both `timestamp` and `first_offset`."""
    for entry, bound in enumerate(run.stamps):
        if bound < timestamp or run.positions[entry] >= stop:
            continue
        end = run.positions[entry + 1] if entry + 1 < len(run.positions) else stop
        for position in run.batch_positions(run.positions[entry], min(end, stop)):
            batch = run.batch(position)
            header = read_header(batch)
            if header.max_timestamp >= timestamp and header.last_offset >= first_offset:
                yield batch


def first_record(batch: Buffer, timestamp: int, first_offset: int) -> TimedOffset | None:
    """The first record of the batch at or after both; decompresses it."""
    header = read_header(batch)
    if header.is_log_append_time and _is_whole(header):
        return TimedOffset(max(header.base_offset, first_offset), header.max_timestamp, header.partition_leader_epoch)
    for offset, found_ms in decode_times(batch):
        if found_ms >= timestamp and offset >= first_offset:
            return TimedOffset(offset, found_ms, header.partition_leader_epoch)
    return None


def latest_record(batch: Buffer, first_offset: int) -> TimedOffset | None:
    """The record with the largest timestamp at or after `first_offset`, the first of equals; decompresses the batch."""
    header = read_header(batch)
    if header.is_log_append_time and _is_whole(header):
        return TimedOffset(max(header.base_offset, first_offset), header.max_timestamp, header.partition_leader_epoch)
    found: TimedOffset | None = None
    for offset, found_ms in decode_times(batch):
        if offset >= first_offset and (found is None or found_ms > found.timestamp):
            found = TimedOffset(offset, found_ms, header.partition_leader_epoch)
    return found


def _is_whole(header: BatchHeader) -> bool:
    """Return True if the batch has a record at each of its offsets; a cleaner may have taken some or all out."""
    return header.record_count == header.last_offset_delta + 1
