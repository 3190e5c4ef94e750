"""Names by topic, partition and offsets what is unreadable of rounds that are kept though their payload lacks a sector.
"""

import contextlib
from collections.abc import Callable, Mapping

from pqbroker.doctor.salvaging.losses import CellSalvage, Loss
from pqbroker.doctor.salvaging.lost_offsets import unreadable_records
from pqbroker.pq.log.keys import parse_data_key
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType, row_prefix
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS

_PARTITION = slice(1, 11)
_STAGED = (b"s", b"t")
"""First letters of keys of staged pieces and of decisions."""
_PREPARED = b"p"
"""First letter of keys of rows that wait for the decision of their transaction."""


def name_torn(
    salvage: CellSalvage, records: Mapping[TabletId, TabletRecord], topic_of: Callable[[TabletId], str]
) -> None:
    """Read the blobs of torn payloads, and name the rows of those that are unreadable. What base tablets and
    sorted ones have lost is named where their logs are planned."""
    torn = {blob for blob in salvage.lost.torn if _is_unreadable(salvage, blob)}
    for tablet in sorted({BlobId.from_key(blob).tablet for blob in torn}):
        record = records.get(tablet)
        if record is None:
            salvage.name("tablet", f"tablet {tablet}", "some of its blobs are unreadable; it has no record")
        elif TABLET_KINDS[record.type].is_kv and record.type is not TabletType.SORTED:
            _name_rows(salvage, record, topic_of(tablet), torn)


def _name_rows(salvage: CellSalvage, record: TabletRecord, owner: str, torn: set[BlobKey]) -> None:
    prefix, end = (index_rows.ROW + row_prefix(TabletId(record.tablet_id + more)) for more in (0, 1))
    loss = _LOSSES.get(record.type, _loss_of_key)
    for key, row in salvage.rows.rows(prefix, end):
        with contextlib.suppress(ValueError, IndexError):  # a start refuses the partition alone
            if not torn.isdisjoint(map(BlobKey, Entry.stored(row).blobs())):
                salvage.losses.append(loss(owner, key[len(prefix) :]))


def _loss_of_topic(topic: str, key: bytes) -> Loss:
    """The loss of a blob that a PQ tablet's row names. ValueError for a key that no tablet writes."""
    where = f"{topic}-{int(key[_PARTITION])}"
    if key[:1] == b"d":
        found = parse_data_key(key)
        return unreadable_records(where, found.offset, found.offset + found.records, "some of the")
    kind = "staged rows" if key[:1] in _STAGED else "transactions" if key[:1] == _PREPARED else "partitions"
    return Loss(kind, where, f"what its row {key.decode('ascii', 'backslashreplace')} holds is unreadable")


def _loss_of_key(owner: str, key: bytes) -> Loss:
    return Loss("keys", owner, f"what its row {key.decode('ascii', 'backslashreplace')} holds is unreadable")


_LOSSES: Mapping[TabletType, Callable[[str, bytes], Loss]] = {TabletType.PERSQUEUE: _loss_of_topic}
"""Losses by kinds of KV tablets that are known here."""


def _is_unreadable(salvage: CellSalvage, blob: BlobKey) -> bool:
    try:
        salvage.rows.content(blob)
    except (BlobCorrupt, BlobMissing):
        return True
    return False
