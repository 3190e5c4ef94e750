"""What a partition finds of itself in its KV tablet at a start (semantics A.16); leftovers of a crash are deleted.

Everything is read and checked before anything is deleted: StoredUnreadable names the first row that no tablet of this
version writes, and leaves all rows as they are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pqbroker.pq import consumers, sources
from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.pq.epochs import check_epochs
from pqbroker.pq.keys import (
    consumer_range,
    data_range,
    meta_key,
    parse_consumer_key,
    parse_producer_key,
    part_range,
    producer_range,
)
from pqbroker.pq.recovery import NO_META, Meta, Recovered, StoredBlob, recover
from pqbroker.pq.sources import Producer
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_commands import DeleteRange, KeyRange
from pqbroker.storage.kv_reads import read_pairs
from pqbroker.storage.kv_rows import Entry
from pqbroker.storage.unreadable import StoredUnreadable

T = TypeVar("T")
K = TypeVar("K")
S = TypeVar("S")


class Stored(NamedTuple):
    """A partition as it is stored."""

    recovered: Recovered
    meta: Meta
    producers: list[tuple[int, Producer]]
    consumers: list[tuple[str, ConsumerOffset]]


async def load(kv: KeyValueTablet, index: int, generation: int) -> Stored:
    """Read a partition's rows, then delete keys that others contain and parts of unfinished batches.

    StoredUnreadable, before anything is deleted.
    """
    recovered, meta = await _load_blobs(kv, index, generation)
    producers = await _load_producers(kv, index)
    lo, hi = consumer_range(index)
    offsets = [_pair(key, parse_consumer_key, _decode_consumer, entry) for key, entry in kv.keys(lo, hi)]
    leftovers = [*recovered.orphans, *(key for key, _ in kv.keys(*part_range(index)))]
    if leftovers:
        await kv.execute([DeleteRange(key, True, key, True) for key in leftovers])
    return Stored(recovered, meta, producers, offsets)


def nothing_stored() -> Stored:
    """What stands in for a partition that cannot be read."""
    return Stored(recover([], NO_META), NO_META, [], [])


async def _load_blobs(kv: KeyValueTablet, index: int, generation: int) -> tuple[Recovered, Meta]:
    meta = None
    key = meta_key(index)
    if kv.entry(key) is not None:
        row = _joined((await kv.read([(key, 0, 0)]))[0])
        meta = _read(_place(key), Meta.decode, row)
    stored = [
        StoredBlob(key, entry.size, entry.created_ms, entry.piece_count) for key, entry in kv.keys(*data_range(index))
    ]
    keys = f"keys of partition {index}"
    recovered = _read(keys, lambda blobs: recover(blobs, meta), stored)
    if meta is not None:
        epochs = meta.epochs
        _read(_place(key), lambda end_offset: check_epochs(epochs, generation, end_offset), recovered.end_offset)
    return recovered, meta or NO_META


async def _load_producers(kv: KeyValueTablet, index: int) -> list[tuple[int, Producer]]:
    """What is remembered of producers, by id."""
    lo, hi = producer_range(index)
    return [
        _pair(pair.key, parse_producer_key, sources.decode, _joined(pair.buffers))
        async for pair in read_pairs(kv, KeyRange(lo, True, hi, False))
    ]


def _decode_consumer(entry: Entry) -> ConsumerOffset:
    if not entry.is_inline:
        raise ValueError("its value is a blob")
    return consumers.decode(entry.value)


def _pair(key: bytes, parse: Callable[[bytes], K], decode: Callable[[S], T], row: S) -> tuple[K, T]:
    return _read(_place(key), parse, key), _read(_place(key), decode, row)


def _read(place: str, decode: Callable[[S], T], stored: S) -> T:
    """What `decode` makes of the stored bytes; where it refuses them, StoredUnreadable names their place."""
    try:
        return decode(stored)
    except ValueError as cause:
        raise StoredUnreadable(place, str(cause)) from cause


def _place(key: bytes) -> str:
    return f"the row of key {key.decode('utf-8', 'backslashreplace')!r}"


def _joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)
