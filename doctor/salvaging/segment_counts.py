"""The counts of segments, taken again from the blobs that the index has: a lost round changed them too.

A segment that seems to hold less than it does would be removed with blobs that are needed.
"""

import struct

from pqbroker.doctor.salvaging.losses import CellSalvage
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.segments import record_bytes
from pqbroker.storage.engine import EngineError

_BLOBS_END = bytes((index_rows.BLOB[0] + 1,))


def count_segments(salvage: CellSalvage) -> None:
    """Plan rows of segments that agree with the rows of blobs."""
    counts: dict[bytes, tuple[int, int]] = {}
    for key, row in salvage.rows.rows(*index_rows.SEGMENT_ROWS):
        try:
            *_, end, _ = index_rows.parse_segment(key, row)
        except EngineError:
            continue
        counts[key] = end, 0
    for _, row in salvage.rows.rows(index_rows.BLOB, _BLOBS_END):
        try:
            at = index_rows.location(row)
        except (ValueError, struct.error, IndexError):
            continue
        if at is not None:
            key = index_rows.segment_key(at.pool, at.generation, at.sequence)
            end, live = counts.get(key, (0, 0))
            size = record_bytes(at.size)
            counts[key] = max(end, at.position + size), live + size
    for key, (end, live) in counts.items():
        salvage.changes.put(key, index_rows.segment_row(end, live))
