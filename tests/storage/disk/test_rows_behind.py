"""Rows behind their payload: the map of zero sectors is right wherever in a sector the rows begin."""

import pytest

from pqbroker.storage.disk.commits.commit_log import HEADER_STAND_IN
from pqbroker.storage.disk.commits.commit_record import COMMIT_HEADER_BYTES
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.zero_sectors import decode_runs
from pqbroker.storage.disk.index_rows import number_row, segment_key, segment_row
from pqbroker.storage.disk.pools import Segment
from pqbroker.storage.disk.round_plan import rows_behind
from tests.storage.disk.commits.test_zero_sectors import numbers, slowly


@pytest.mark.parametrize("begin", [0, 3, 511, 70_000])
@pytest.mark.parametrize("value", [b"", bytes(2_000)])
def test_zero_sectors_are_named_wherever_the_rows_begin(begin: int, value: bytes) -> None:
    for size in range(2_000, 2_000 + 512):
        payload = b"PQB1" + bytes(size)
        changes = IndexChanges()
        changes.put(b"key", value)
        changes.put(segment_key("main", 1, 1), segment_row(begin, 0))
        changes.put(*number_row(256))
        segment = Segment(1, 1, begin + len(payload), 0, durable_end=begin)
        segment.buffers = [payload]
        behind = rows_behind(segment, changes, 1)
        round_bytes = payload + HEADER_STAND_IN + behind.content
        assert numbers(decode_runs(behind.zeros)) == list(slowly(round_bytes, begin)), size
        assert segment.end == begin + len(round_bytes) + len(behind.zeros)
        assert behind.payload_bytes == len(payload)
        assert len(HEADER_STAND_IN) == COMMIT_HEADER_BYTES
