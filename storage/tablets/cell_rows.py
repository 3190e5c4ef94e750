"""Rows and blobs of a cell's tablets, in portions: every record read, all of one tablet removed."""

from collections.abc import AsyncIterator

from pqbroker.storage.blobs.blob_id import tablet_bounds
from pqbroker.storage.engine import Batch, Shard
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.tablet import RECORD, row_prefix

CELL_PAGE_ROWS = 1000
"""Rows or blobs that one step of start or drop takes."""

_RECORDS_END = bytes((RECORD[0] + 1,))


async def stored_records(shard: Shard) -> AsyncIterator[tuple[TabletId, bytes]]:
    """Ids of the cell's tablets, and their records as they are stored."""
    lo = RECORD
    while page := await shard.scan(lo, _RECORDS_END, CELL_PAGE_ROWS):
        for key, row in page:
            yield TabletId(int.from_bytes(key[1:], "big")), row
        lo = page[-1][0] + b"\0"


async def delete_blobs(shard: Shard, tablet_id: TabletId) -> None:
    """CommitRefused, ShardLost."""
    lo, hi = tablet_bounds(tablet_id)
    while page := await shard.scan_blobs(lo, hi, CELL_PAGE_ROWS):
        batch = Batch()
        for blob, _ in page:
            batch.delete_blob(blob)
        await shard.commit(batch)
        lo = page[-1][0]


async def delete_rows(shard: Shard, tablet_id: TabletId) -> None:
    """CommitRefused, ShardLost."""
    lo, hi = row_prefix(tablet_id), row_prefix(TabletId(tablet_id + 1))
    while page := await shard.scan(lo, hi, CELL_PAGE_ROWS):
        batch = Batch()
        for key, _ in page:
            batch.delete(key)
        await shard.commit(batch)
        lo = page[-1][0]
