"""A partition of which a write may be lost: unreadable bodies in the place of records that are known to be lost, and an
end behind all offsets that can have been given.

The head becomes bodies, since only bodies may have offsets missing between them. A body of lost records is read as any
damaged one: CORRUPT_MESSAGE, until the records are trimmed. The row of its last cleaning goes: a lost round may have
replaced bodies that are here again, so the next cleaning looks at all keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pqbroker.doctor.salvaging.losses import CellSalvage, Loss, NewBlobs
from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, encode_index
from pqbroker.pq.log.head import HeadBlob, content_of
from pqbroker.pq.log.keys import (
    COUNT_MAX,
    OFFSET_MAX,
    body_key,
    cleaned_key,
    meta_key,
)
from pqbroker.pq.log.start_state import NO_META, Meta, StoredBlob, resolve_overlaps
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BATCH_HEADER_BYTES
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.mending.salvage import Lost
from pqbroker.storage.engine import BlobCorrupt, BlobKey, BlobMissing
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import USER_CHANNEL

_RECORDS_OF_BATCH_MAX = 1 << 31
"""Records of one batch at most: its header can say no more, and compressed they may take almost no bytes."""
_ROUND_BYTES_MAX = 64 << 20
"""A batch may be four rounds large; nothing says more of a round that is cut off."""


@dataclass(frozen=True, slots=True)
class BlobRecords:
    """Records [offset, end) of one stored blob."""

    key: bytes
    entry: Entry
    offset: int
    end: int
    is_head: bool


def offsets_given_max(lost: Lost) -> int:
    """Return the most offsets that the lost rounds can have given in one partition."""
    size = lost.size_bytes or lost.rounds * _ROUND_BYTES_MAX
    return (size // BATCH_HEADER_BYTES + 1) * _RECORDS_OF_BATCH_MAX


def unreadable_records(name: str, offset: int, end: int, which: str) -> Loss:
    """The loss of `which` records of a partition's offsets."""
    what = f"{which} records with the offsets {offset} to {end - 1} are lost: CORRUPT_MESSAGE until a trim"
    return Loss("records", name, what)


@dataclass(slots=True)
class PartitionSalvage:
    """One partition. `entries`: its rows, by key; `prefix`: that of its tablet's rows."""

    salvage: CellSalvage
    blobs: NewBlobs
    prefix: bytes
    name: str
    index: int
    entries: Mapping[bytes, Entry]

    def plan(self) -> None:
        """Plan what makes the partition whole without what is lost, and name that."""
        if (cleaned := cleaned_key(self.index)) in self.entries:
            self.salvage.delete_row(self.prefix + cleaned)
        try:
            meta = self._meta()
            spans = self._spans()
        except ValueError as bad:
            self.salvage.name("records", self.name, f"its keys contradict each other, so it stays refused: {bad}")
            return
        end = max((meta or NO_META).end_offset, spans[-1].end if spans else 0)
        is_settled = self._is_settled(spans, end)
        holes = list(self._holes(spans, meta, end))
        self._name_missing_blobs(spans)
        is_ordered = all(earlier.is_head <= later.is_head for earlier, later in pairwise(spans))
        has_start = meta is not None or not spans
        if is_settled and not holes and is_ordered and has_start and len(spans) == self._data_keys():
            return
        if not has_start:
            what = f"where it begins, and its leader epochs, are lost: it begins with offset {spans[0].offset}"
            self.salvage.name("partitions", self.name, what)
            meta = Meta(spans[0].offset, end, [])
        for span in spans:
            if span.is_head:
                self._become_body(span)
        for offset, stop in holes:
            self._give_up(offset, stop)
        self._move_end(meta or NO_META, spans, end, is_settled)

    def _meta(self) -> Meta | None:
        entry = self.entries.get(meta_key(self.index))
        return None if entry is None else Meta.decode(bytes(entry.value))

    def _spans(self) -> list[BlobRecords]:
        stored = [
            StoredBlob(key, entry.size, entry.created_ms, entry.piece_count)
            for key, entry in sorted(self.entries.items())
            if key[:1] == b"d"
        ]
        kept, orphans = resolve_overlaps(stored)
        for key in orphans:
            self.salvage.delete_row(self.prefix + key)
        return [
            BlobRecords(blob.key, self.entries[blob.key], offset, end, is_head) for blob, offset, end, is_head in kept
        ]

    def _data_keys(self) -> int:
        return sum(key[:1] == b"d" for key in self.entries)

    def _is_newer(self, key: bytes) -> bool:
        return self.salvage.is_newer(index_rows.ROW + self.prefix + key)

    def _is_settled(self, spans: Sequence[BlobRecords], end: int) -> bool:
        """Return True if a later round says where the partition ended then: its end is the true one."""
        if self._is_newer(meta_key(self.index)):
            return True
        return bool(spans) and spans[-1].end == end and self._is_newer(spans[-1].key)

    def _holes(self, spans: Sequence[BlobRecords], meta: Meta | None, end: int) -> Iterator[tuple[int, int]]:
        """Offsets that no blob has, before something that a later round wrote. Older holes were left by a mirror."""
        following = meta.start_offset if meta is not None else spans[0].offset if spans else 0
        for span in spans:
            if span.offset > following and self._is_newer(span.key):
                yield following, span.offset
            following = max(following, span.end)
        if following < end and self._is_newer(meta_key(self.index)):
            yield following, end

    def _name_missing_blobs(self, spans: Sequence[BlobRecords]) -> None:
        for span in spans:
            missing = [blob for blob in span.entry.blobs() if self.salvage.rows.get([index_rows.BLOB + blob]) == [None]]
            for blob in missing:
                self.blobs.make_unreadable(blob)
            if missing:
                self._name_unreadable(span.offset, span.end, "some of the")

    def _become_body(self, span: BlobRecords) -> None:
        """Have a head blob be a body: by reference, with the index of its batches behind them."""
        entry = span.entry
        keys = [BlobKey(blob) for blob in entry.blobs()] or [self.blobs.put(USER_CHANNEL, bytes(entry.value))]
        index = self._index(span)
        if index is not None:
            keys.append(self.blobs.put(USER_CHANNEL, index))
        size = entry.size + len(index or b"")
        self.salvage.delete_row(self.prefix + span.key)
        row = Entry.chained(entry.created_ms, b"".join(keys), size, shared=entry.is_shared).row
        self.salvage.put_row(self.prefix + body_key(self.index, span.offset, span.end - span.offset), row)

    def _index(self, span: BlobRecords) -> bytes | None:
        """The index of a head blob's batches; None when they cannot be read, which a reader finds out too."""
        entry, blob = span.entry, HeadBlob(span.offset, span.end, 0, span.entry.size, 1)
        try:
            data = [bytes(self.salvage.rows.content(key)) for key in entry.blobs()] or [bytes(entry.value)]
            run = content_of([blob], [[b"".join(data)]])
        except (BlobCorrupt, BlobMissing, KafkaError):
            return None
        columns = run.index_between(0, run.end, span.offset, BODY_INDEX_GAP_BYTES)
        return encode_index(columns, run.end, span.end)

    def _give_up(self, offset: int, end: int) -> None:
        """Put unreadable bodies where records were."""
        self._name_unreadable(offset, end, "the")
        while offset < end:
            count = min(end - offset, COUNT_MAX)
            row = Entry.chained(0, self.blobs.put_unreadable(USER_CHANNEL), 1).row
            self.salvage.put_row(self.prefix + body_key(self.index, offset, count), row)
            offset += count

    def _name_unreadable(self, offset: int, end: int, which: str) -> None:
        self.salvage.losses.append(unreadable_records(self.name, offset, end, which))

    def _move_end(self, meta: Meta, spans: Sequence[BlobRecords], end: int, is_settled: bool) -> None:
        """Raise the end above all that can have been given."""
        start = meta.start_offset
        if not is_settled:
            jump = min(offsets_given_max(self.salvage.lost), (OFFSET_MAX - end) // 2)
            self.salvage.skipped.setdefault(self.name, []).append((end, end + jump))
            what = f"records with offsets from {end} on may be lost; new ones begin at offset {end + jump}"
            self.salvage.name("offsets", self.name, what)
            end += jump
        if not spans and start == meta.end_offset:
            start = end
        has_aborted = any(key[:1] == b"a" for key in self.entries)
        stored = Entry.inline(0, [Meta(min(start, end), end, meta.epochs, has_aborted).encode()], 0)
        self.salvage.put_row(self.prefix + meta_key(self.index), stored.row)
