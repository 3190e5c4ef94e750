"""The log of a base tablet of which a change may be lost: what can be read of it, in one new log blob.

A tablet refuses a log with a hole. Here the changes behind a hole apply to what was before it; those that do not fit
are counted. A chain that has lost its beginning begins with the snapshot that it named.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.storage.blobs.blob_id import channel_bounds
from pqbroker.storage.disk import index_rows
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.base_tablet import PART_BYTES_MAX, LogRecord, encode_record
from pqbroker.storage.tablets.row_sets import Key, Row, RowSet, apply, operation_count, snapshot
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL
from pqbroker.storage.tablets.value_encoding import decode_items, encode, encode_list_head

_UNREADABLE = (BlobCorrupt, BlobMissing, LookupError, TypeError, ValueError, struct.error)


@dataclass(slots=True)
class ReadLog:
    """The row sets of a base tablet's log. `is_broken`: log blobs of its chain are missing, or cannot be read."""

    row_sets: dict[str, RowSet] = field(default_factory=dict)
    is_broken: bool = False
    is_settled: bool = False
    """A change came behind the last lost round, so that no change behind it is lost."""
    misfits: int = 0
    """Changes that do not fit without those that are lost."""
    unreadable: int = 0
    """Log blobs that exist and are unreadable."""

    def replay(self, operations: Sequence[Sequence[Any]]) -> None:
        for operation in operations:
            try:
                apply(self.row_sets, operation, _nobody_listens)
            except (LookupError, TypeError, ValueError):
                self.misfits += 1
                self.is_broken = True


def read_log(salvage: CellSalvage, tablet: TabletId) -> ReadLog:
    """Replay a tablet's log as far as it can be read."""
    found = ReadLog()
    records = list(_records(salvage, tablet, found))
    first = _beginning(records)
    if records and first is None:
        found.is_broken = True
        _load_snapshot(salvage, found, _lost_snapshot(salvage, tablet))
    previous: BlobKey | None = None
    for key, record in records[first or 0 :]:
        if record.previous != previous:
            found.is_broken = True
        if record.snapshot:
            _load_snapshot(salvage, found, record.snapshot)
        found.replay(record.operations)
        previous = key
    found.is_settled = bool(records) and salvage.is_newer(index_rows.BLOB + records[-1][0])
    return found


def write_log(blobs: NewBlobs, row_sets: dict[str, RowSet]) -> None:
    """Store the row sets as a log blob that begins a chain, with a snapshot where they are large."""
    operations = list(snapshot(row_sets))
    encoded = encode_list_head(operation_count(row_sets)) + b"".join(map(encode, operations))
    if len(encoded) < PART_BYTES_MAX:
        blobs.put(LOG_CHANNEL, encode_record(None, None, (), encoded))
        return
    starts = range(0, len(encoded), PART_BYTES_MAX)
    parts = [blobs.put(SNAPSHOT_CHANNEL, encoded[start : start + PART_BYTES_MAX]) for start in starts]
    blobs.put(LOG_CHANNEL, encode_record(None, None, parts, encode([])))


def _records(salvage: CellSalvage, tablet: TabletId, found: ReadLog) -> Iterator[tuple[BlobKey, LogRecord]]:
    """The readable log blobs in order."""
    for blob in _blobs(salvage, tablet, LOG_CHANNEL):
        try:
            yield blob, LogRecord.decode(bytes(salvage.rows.content(blob)))
        except _UNREADABLE:
            found.is_broken = True
            found.unreadable += 1


def _beginning(records: Sequence[tuple[BlobKey, LogRecord]]) -> int | None:
    """Return the beginning of the last chain; None where it is lost. Then what is left of earlier ones is read too:
    the snapshot between them says the same."""
    if not records:
        return None
    last_key, last = records[-1]
    first = last.first or last_key
    return next((number for number, (key, _) in enumerate(records) if key == first), None)


def _load_snapshot(salvage: CellSalvage, found: ReadLog, parts: Sequence[BlobKey]) -> None:
    try:
        whole = b"".join(bytes(salvage.rows.content(part)) for part in parts)
        operations = [cast("list[Any]", operation) for operation, _ in decode_items(whole)]
    except _UNREADABLE:
        found.is_broken = True
        return
    found.row_sets.clear()
    found.replay(operations)


def _lost_snapshot(salvage: CellSalvage, tablet: TabletId) -> Sequence[BlobKey]:
    """The newest parts that are a whole snapshot, though no log blob names them."""
    parts = list(_blobs(salvage, tablet, SNAPSHOT_CHANNEL))
    for start in reversed(range(len(parts))):
        try:
            whole = b"".join(bytes(salvage.rows.content(part)) for part in parts[start:])
            for _ in decode_items(whole):
                pass
        except _UNREADABLE:
            continue
        return parts[start:]
    return ()


def _blobs(salvage: CellSalvage, tablet: TabletId, channel: int) -> Iterator[BlobKey]:
    lo, hi = channel_bounds(tablet, channel)
    for key, _ in salvage.rows.rows(index_rows.BLOB + lo, index_rows.BLOB + hi):
        yield BlobKey(key[1:])


def _nobody_listens(row_set: str, key: Key, row: Row | None) -> None: ...
