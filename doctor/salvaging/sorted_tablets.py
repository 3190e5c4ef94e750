"""Sorted tablets of which something is lost: rows of the log, chunks, or work that is undone; named by keys.

A log of which a value is lost is served without it: each value is whole in itself. A chunk of which pieces are lost
stays, and readers of those keys find it damaged. Undone work does no harm: rows stand in the log and in a chunk.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.doctor.sorted_tablets import ServedSorted
from pqbroker.storage.blobs.blob_id import blob_size
from pqbroker.storage.disk import index_rows
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing
from pqbroker.storage.kv.rows import Entry
from pqbroker.tables.serving.chunk_records import ChunkRecord
from pqbroker.tables.serving.stored_keys import (
    CHUNK_DATA_KEYS,
    CHUNK_KEYS,
    LOG_KEYS,
    PREPARED_KEYS,
    chunk_data_key,
    piece_key,
    read_chunk_key,
)
from pqbroker.tables.sorted.rows import show_key

GIVEN_UP: Final = 0
"""Number of a task that there never is: pieces of it are blobs that a salvage gave up."""


@dataclass(frozen=True, slots=True)
class SortedSalvage:
    """One sorted tablet. `prefix`: that of its rows; `entries`: those that are readable, by key."""

    salvage: CellSalvage
    blobs: NewBlobs
    prefix: bytes
    served: ServedSorted
    entries: Mapping[bytes, Entry]
    _known: dict[BlobKey, bool] = field(default_factory=dict)
    _given_up: list[bytes] = field(default_factory=list)
    """Keys of rows whose blobs became staged pieces."""

    def plan(self) -> None:
        """Plan what lets the tablet be served without what is lost, and name that."""
        if self.salvage.lost.rounds:
            what = "rows written or deleted by what is lost are as before; flushes and compactions may be undone"
            self.salvage.name("sorted rows", self.served.name, what)
        for key, entry in self.entries.items():
            if key.startswith(LOG_KEYS):
                self._plan_logged(key, entry)
            elif key.startswith(PREPARED_KEYS):
                self._plan_prepared(key, entry)
            elif key.startswith(CHUNK_KEYS):
                self._plan_chunk(key, entry)
            elif key.startswith(CHUNK_DATA_KEYS) and CHUNK_KEYS + key[1:] not in self.entries:
                self._give_up(key, self.entries[key])
                self._name(f"chunk {key[1:].hex()} is removed: the record of its keys is lost")

    def _plan_logged(self, key: bytes, entry: Entry) -> None:
        blobs = [BlobKey(blob) for blob in entry.blobs()]
        kept = [blob for blob in blobs if self._is_readable(blob)]
        if len(kept) == len(blobs):
            return
        lost = sum(blob_size(blob) for blob in blobs if blob not in kept)
        self._name(f"{lost} bytes of rows in its log are lost")
        self._give_up(key, entry, kept)
        if kept:
            row = Entry.chained(entry.created_ms, b"".join(kept), 0, shared=entry.is_shared).row
            self.salvage.put_row(self.prefix + key, row)

    def _plan_prepared(self, key: bytes, entry: Entry) -> None:
        if all(self._is_readable(BlobKey(blob)) for blob in entry.blobs()):
            return
        self._name(f"rows that transaction {key[1:].hex()} has prepared are lost, be it committed or not")
        self._give_up(key, entry)

    def _plan_chunk(self, key: bytes, entry: Entry) -> None:
        try:
            number, record = read_chunk_key(key), ChunkRecord.decode(bytes(entry.value))
        except ValueError as bad:
            self._name(f"it stays refused: the record of chunk {key[1:].hex()} is unreadable: {bad}")
            return
        data = self.entries.get(chunk_data_key(number))
        keys = f"rows with keys from {self._shown(record.first_key)} to {self._shown(record.last_key)}"
        if data is None:
            self.salvage.delete_row(self.prefix + key)
            self._name(f"{keys} are lost with chunk {number}")
            return
        unreadable = [BlobKey(blob) for blob in data.blobs() if not self._is_readable(BlobKey(blob))]
        for blob in unreadable:
            if not self._exists(blob):
                self.blobs.make_unreadable(blob)
        if unreadable:
            self._name(f"some of the {keys} are unreadable, in chunk {number}")

    def _give_up(self, key: bytes, entry: Entry, kept: Sequence[BlobKey] = ()) -> None:
        """Remove a row. The blobs that it held alone become a staged piece, which the next start removes."""
        self.salvage.delete_row(self.prefix + key)
        held = [blob for blob in map(BlobKey, entry.blobs()) if blob not in kept and self._exists(blob)]
        if held:
            row = Entry.chained(entry.created_ms, b"".join(held), 0, shared=entry.is_shared).row
            self.salvage.put_row(self.prefix + piece_key(GIVEN_UP, len(self._given_up)), row)
            self._given_up.append(key)

    def _is_readable(self, blob: BlobKey) -> bool:
        """Return False for a blob that is gone, or that a torn round has spoiled."""
        if blob not in self._known:
            self._known[blob] = self._exists(blob) and not (blob in self.salvage.lost.torn and self._is_torn(blob))
        return self._known[blob]

    def _exists(self, blob: BlobKey) -> bool:
        return self.salvage.rows.get([index_rows.BLOB + blob]) != [None]

    def _is_torn(self, blob: BlobKey) -> bool:
        try:
            self.salvage.rows.content(blob)
        except (BlobCorrupt, BlobMissing):
            return True
        return False

    def _shown(self, key: str) -> str:
        if self.served.schema is not None:
            try:
                return json.dumps(show_key(self.served.schema, bytes.fromhex(key)))
            except ValueError:
                pass
        return key

    def _name(self, what: str) -> None:
        self.salvage.name("sorted rows", self.served.name, what)
