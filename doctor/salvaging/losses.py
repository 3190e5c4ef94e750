"""Losses of a salvage, line by line, and the blobs that it stores in their place."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.mending.salvage import CellRows, Lost
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.tablets.tablet import TabletRecord

_CRC = slice(1, 5)


class Loss(NamedTuple):
    """One thing that is given up, or that may be older than it was."""

    kind: str
    where: str
    what: str


@dataclass(slots=True)
class CellSalvage:
    """One cell's salvage while it is planned: what it reads, what it changes, what it names."""

    rows: CellRows
    lost: Lost
    losses: list[Loss] = field(default_factory=list)
    changes: IndexChanges = field(default_factory=IndexChanges)
    skipped: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def name(self, kind: str, where: str, what: str) -> None:
        self.losses.append(Loss(kind, where, what))

    def is_newer(self, key: bytes) -> bool:
        """Return True if a round behind the last lost one wrote the row of the index: nothing of it is lost."""
        return key in self.lost.rewritten

    def put_row(self, key: bytes, value: bytes) -> None:
        """Set a row of the floors above the index."""
        self.changes.put(index_rows.ROW + key, value)

    def delete_row(self, key: bytes) -> None:
        self.changes.delete(index_rows.ROW + key)


class NewBlobs:
    """Blobs in the index, under a generation of their tablet that nobody had, or will have."""

    def __init__(self, salvage: CellSalvage, record: TabletRecord) -> None:
        """`record`: as the salvage leaves it."""
        self._salvage = salvage
        self._record = record
        self._cookie = 0

    def put(self, channel: int, content: bytes) -> BlobKey:
        key = self._key(channel, len(content))
        self._salvage.changes.put(index_rows.BLOB + key, index_rows.inline_row([content]))
        return key

    def put_unreadable(self, channel: int) -> BlobKey:
        """Put a blob that stands for lost records, and return its key; a reader finds it damaged."""
        key = self._key(channel, 1)
        self.make_unreadable(key)
        return key

    def make_unreadable(self, key: BlobKey) -> None:
        """Have a blob that is gone be a damaged one."""
        row = bytearray(index_rows.inline_row([bytes(BlobId.from_key(key).size)]))
        row[_CRC] = bytes(255 - byte for byte in row[_CRC])
        self._salvage.changes.put(index_rows.BLOB + key, bytes(row))

    def _key(self, channel: int, size: int) -> BlobKey:
        key = BlobId(self._record.tablet_id, channel, self._record.generation, 1, self._cookie, size).key()
        self._cookie += 1
        return key
