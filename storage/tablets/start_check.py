"""Rows that every start of a cell needs, looked at before: where they are unreadable no start can serve the cell.

What costs a tablet alone is not looked for: the start finds it.
"""

from contextlib import suppress

from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.engine import CommitRefused, Shard
from pqbroker.storage.tablets.cell_facts import read_facts
from pqbroker.storage.tablets.cell_rows import stored_records
from pqbroker.storage.tablets.scheme import SCHEME_TABLET_ID, Scheme
from pqbroker.storage.tablets.tablet import TabletRecord, TabletStorage
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS

_OBJECT_TYPES = {bytes((type_,)) for type_, kind in TABLET_KINDS.items() if kind.belongs_to_object}
"""Second byte of the record of a tablet that belongs to an object of the scheme; the first one is the format."""


async def check_start(shard: Shard, name: str = "0") -> None:
    """Check that the facts of the cell `name`, its tablets' records and its scheme can be read. `shard` need not take
    commits. EngineError, StoredUnreadable."""
    blobs = BlobStorage(shard, (await read_facts(shard, name)).pools)
    records = {tablet_id: row async for tablet_id, row in stored_records(shard)}
    scheme = records.pop(SCHEME_TABLET_ID, None)
    if scheme is None:
        return
    storage = TabletStorage(shard, blobs, TabletRecord.decode(SCHEME_TABLET_ID, scheme))
    has_objects = any(row[1:2] in _OBJECT_TYPES for row in records.values())
    if (blocked := (await blobs.start([SCHEME_TABLET_ID])).get(SCHEME_TABLET_ID)) is not None:
        storage.leave(blocked)
    with suppress(CommitRefused):  # of one that is to be laid out yet
        await Scheme(may_be_new=not has_objects).start(storage)
