"""Rows that a KV tablet finds at a start: all of them, each readable, or none."""

from pqbroker.storage.kv.key_ranges import GENERATION_KEY
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable

KV_PAGE_ROWS = 4096
"""Rows that one look at the index takes."""
GENERATION_BYTES = 8


async def read_rows(storage: TabletStorage) -> dict[bytes, Entry]:
    """The tablet's rows by key. Raises StoredUnreadable, ShardLost."""
    rows: dict[bytes, Entry] = {}
    lo = b""
    while page := await storage.scan(lo, None, KV_PAGE_ROWS):
        for key, row in page:
            try:
                rows[key] = Entry.stored(row)
            except ValueError as bad:
                raise StoredUnreadable(f"the row of key {key!r}", str(bad)) from bad
        if len(page) < KV_PAGE_ROWS:
            break
        lo = page[-1][0] + b"\0"
    generation = rows.get(GENERATION_KEY)
    if generation is not None and (not generation.is_inline or generation.size != GENERATION_BYTES):
        raise StoredUnreadable("the row of the user generation", f"it has {generation.size} bytes")
    return rows
