"""From the keys of a partition to its state (semantics A.16): overlaps resolved, body told from head, and the meta
row."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from pqbroker.pq.body import Bodies
from pqbroker.pq.head import Head, HeadBlob
from pqbroker.pq.keys import parse_data_key

_META = Struct(">Bqqi")
_EPOCH = Struct(">iq")
_VERSION = 1


class Meta(NamedTuple):
    """The meta row: where the log starts and at least ends, and the epochs that wrote it (epoch, start offset)."""

    start_offset: int
    end_offset: int
    epochs: list[tuple[int, int]]

    def encode(self) -> bytes:
        entries = [_EPOCH.pack(*entry) for entry in self.epochs]
        return b"".join((_META.pack(_VERSION, self.start_offset, self.end_offset, len(entries)), *entries))

    @classmethod
    def decode(cls, stored: bytes) -> "Meta":
        version, start_offset, end_offset, count = _META.unpack_from(stored)
        assert version == _VERSION, f"a partition's meta row of version {version}"
        epochs = [_EPOCH.unpack_from(stored, _META.size + number * _EPOCH.size) for number in range(count)]
        return cls(start_offset, end_offset, epochs)


class StoredBlob(NamedTuple):
    """What the KV tablet knows of a data key: bytes, creation time, number of stored pieces."""

    key: bytes
    size: int
    created_ms: int
    pieces: int


class Recovered(NamedTuple):
    """A partition's blobs after a start; `orphans` are keys to delete."""

    bodies: Bodies
    head: Head
    start_offset: int
    end_offset: int
    orphans: list[bytes]


NO_META = Meta(0, 0, [])


def recover(blobs: Iterable[StoredBlob], meta: Meta | None) -> Recovered:
    """Build the lists of blobs from data keys in key order. Without a meta row the log starts with the first."""
    kept, orphans = _resolve(blobs)
    bodies = Bodies()
    heads: list[HeadBlob] = []
    position = written_ms = 0
    end_offset = (meta or NO_META).end_offset
    for blob, offset, end, is_head in kept:
        if is_head:
            heads.append(HeadBlob(offset, end, position, blob.size, blob.pieces))
            position += blob.size
            written_ms = blob.created_ms
        else:
            assert not heads, f"body {blob.key!r} behind the head"
            bodies.append(offset, end, blob.size, blob.created_ms)
        end_offset = max(end_offset, end)
    start_offset = end_offset
    if kept:
        start_offset = kept[0][1] if meta is None else meta.start_offset
    return Recovered(bodies, Head(heads, written_ms), start_offset, end_offset, orphans)


def _resolve(blobs: Iterable[StoredBlob]) -> tuple[Sequence[tuple[StoredBlob, int, int, bool]], list[bytes]]:
    """Of blobs at one offset keep the one with most records; drop those that begin inside a kept one."""
    kept: list[tuple[StoredBlob, int, int, bool]] = []
    orphans: list[bytes] = []
    for blob in blobs:
        key = parse_data_key(blob.key)
        end = key.offset + key.records
        if kept and kept[-1][1] == key.offset and end > kept[-1][2]:
            orphans.append(kept.pop()[0].key)
        elif kept and key.offset < kept[-1][2]:
            orphans.append(blob.key)
            continue
        kept.append((blob, key.offset, end, key.is_head))
    return kept, orphans
