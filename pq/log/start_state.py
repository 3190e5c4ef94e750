"""State of a partition, made from its keys (semantics A.16): overlaps resolved, bodies apart from the head, and the
meta row."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.cleaned_log import NEVER_CLEANED, CleanedLog
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.head import Head, HeadBlob
from pqbroker.pq.log.keys import OFFSET_MAX, parse_data_key
from pqbroker.pq.log.levels import HEAD_BLOB_BYTES_MAX
from pqbroker.pq.log.producer_transactions import AbortedSpan
from pqbroker.pq.log.producers import Producer
from pqbroker.pq.log.row_facts import BlobFacts, RowFacts
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedHead
from pqbroker.storage.unreadable import check_version

_META = Struct(">Bqqi")
_EPOCH = Struct(">iq")
_VERSION = 1
_ABORTED_VERSION = 2
"""Meta row of a log with aborted transactions: earlier releases, which would show their records, refuse it."""


class Meta(NamedTuple):
    """The meta row: where the log starts and at least ends, the epochs that wrote it (epoch, start offset), and whether
    it has aborted Kafka transactions."""

    start_offset: int
    end_offset: int
    epochs: list[tuple[int, int]]
    has_aborted: bool = False

    def encode(self) -> bytes:
        entries = [_EPOCH.pack(*entry) for entry in self.epochs]
        version = _ABORTED_VERSION if self.has_aborted else _VERSION
        return b"".join((_META.pack(version, self.start_offset, self.end_offset, len(entries)), *entries))

    @classmethod
    def decode(cls, stored: bytes) -> "Meta":
        """ValueError for what no `encode` of this version writes."""
        has_aborted = stored[:1] == b"\2"
        if not has_aborted:
            check_version(stored, _VERSION)
        if len(stored) < _META.size:
            raise ValueError(f"it has {len(stored)} bytes")
        _, start_offset, end_offset, count = _META.unpack_from(stored)
        if len(stored) != _META.size + count * _EPOCH.size:
            raise ValueError(f"it has {len(stored)} bytes and counts {count} epochs")
        if not 0 <= start_offset <= OFFSET_MAX or not 0 <= end_offset <= OFFSET_MAX:
            raise ValueError(f"it goes from offset {start_offset} to {end_offset}")
        return cls(start_offset, end_offset, list(_EPOCH.iter_unpack(stored[_META.size :])), has_aborted)


class StoredBlob(NamedTuple):
    """The KV tablet's facts of a data key: bytes, creation time, number of stored pieces."""

    key: bytes
    size: int
    created_ms: int
    pieces: int


class StartState(NamedTuple):
    """A partition's blobs after a start; `orphans` are keys to delete."""

    bodies: Bodies
    head: Head
    start_offset: int
    end_offset: int
    orphans: list[bytes]


class StoredTransactions(NamedTuple):
    """The state of transactions in a partition: whose rows wait for a decision, and the decisions made here."""

    prepared: PreparedHead | None
    decisions: Sequence[CommitDecision]


class StoredPartition(NamedTuple):
    """All that is stored of a partition."""

    start_state: StartState
    meta: Meta
    producers: Sequence[tuple[int, Producer]] = ()
    consumers: Sequence[tuple[str, ConsumerOffset]] = ()
    sessions: Sequence[tuple[str, SessionBatch]] = ()
    facts: Sequence[tuple[BlobFacts, RowFacts | None]] = ()
    """Facts of blobs, as `PartitionFacts` takes them."""
    transactions: StoredTransactions | None = None
    """None: no transaction has left anything, the usual case."""
    cleaned: CleanedLog = NEVER_CLEANED
    aborted: Sequence[AbortedSpan] = ()
    """Aborted Kafka transactions, in the order of their markers."""


NO_META = Meta(0, 0, [])


def build_start_state(blobs: Iterable[StoredBlob], meta: Meta | None) -> StartState:
    """Build the lists of blobs from data keys in key order. Without a meta row the log starts with the first.

    ValueError for keys that no tablet leaves: nothing may be served or deleted by them.
    """
    kept, orphans = resolve_overlaps(blobs)
    bodies = Bodies()
    heads: list[HeadBlob] = []
    position = written_ms = 0
    end_offset = (meta or NO_META).end_offset
    for blob, offset, end, is_head in kept:
        if is_head:
            if blob.size >= HEAD_BLOB_BYTES_MAX:
                raise ValueError(f"head blob {blob.key!r} has {blob.size} bytes")
            heads.append(HeadBlob(offset, end, position, blob.size, blob.pieces))
            position += blob.size
            written_ms = blob.created_ms
        else:
            if heads:
                raise ValueError(f"body {blob.key!r} lies behind the head")
            bodies.append(offset, end, blob.size, blob.created_ms)
        end_offset = max(end_offset, end)
    start_offset = end_offset
    if kept:
        start_offset = kept[0][1] if meta is None else meta.start_offset
    if start_offset > end_offset:
        raise ValueError(f"it starts at offset {start_offset}, behind its end {end_offset}")
    return StartState(bodies, Head(heads, written_ms), start_offset, end_offset, orphans)


def resolve_overlaps(blobs: Iterable[StoredBlob]) -> tuple[Sequence[tuple[StoredBlob, int, int, bool]], list[bytes]]:
    """Keep, of blobs at one offset, the one with most records; drop those that lie inside a kept one."""
    kept: list[tuple[StoredBlob, int, int, bool]] = []
    orphans: list[bytes] = []
    for blob in blobs:
        key = parse_data_key(blob.key)
        end = key.offset + key.records
        if kept and kept[-1][1] == key.offset and end > kept[-1][2]:
            orphans.append(kept.pop()[0].key)
        elif kept and key.offset < kept[-1][2]:
            if end > kept[-1][2]:
                raise ValueError(f"{blob.key!r} begins inside {kept[-1][0].key!r} and ends behind it")
            orphans.append(blob.key)
            continue
        kept.append((blob, key.offset, end, key.is_head))
    return kept, orphans
