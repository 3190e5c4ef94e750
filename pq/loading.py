"""What a partition finds of itself in its KV tablet at a start (semantics A.16); leftovers of a crash are deleted."""

from collections.abc import Iterable, Sequence

from pqbroker.pq import consumers, sources
from pqbroker.pq.consumers import ConsumerOffset
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
from pqbroker.storage.kv_commands import DeleteRange

_READ_ROWS = 10_000
"""Producer rows that one step of start reads."""


async def load_blobs(kv: KeyValueTablet, index: int) -> tuple[Recovered, Meta]:
    """The partition's blobs and meta row; keys that other keys contain and parts of unfinished batches go."""
    meta = None
    if kv.entry(meta_key(index)) is not None:
        meta = Meta.decode(_joined((await kv.read([(meta_key(index), 0, 0)]))[0]))
    stored = (
        StoredBlob(key, entry.size, entry.created_ms, entry.piece_count) for key, entry in kv.keys(*data_range(index))
    )
    recovered = recover(stored, meta)
    orphans = [*recovered.orphans, *(key for key, _ in kv.keys(*part_range(index)))]
    if orphans:
        await kv.execute([DeleteRange(key, True, key, True) for key in orphans])
    return recovered, meta or NO_META


async def load_producers(kv: KeyValueTablet, index: int) -> list[tuple[int, Producer]]:
    """What is remembered of producers, by id."""
    keys = [key for key, _ in kv.keys(*producer_range(index))]
    found: list[tuple[int, Producer]] = []
    for first in range(0, len(keys), _READ_ROWS):
        portion = keys[first : first + _READ_ROWS]
        values = await kv.read([(key, 0, 0) for key in portion])
        found += [
            (parse_producer_key(key), sources.decode(_joined(value)))
            for key, value in zip(portion, values, strict=True)
        ]
    return found


def stored_consumers(kv: KeyValueTablet, index: int) -> Iterable[tuple[str, ConsumerOffset]]:
    """How far groups have read, by group id; to be used up before anything is awaited."""
    return ((parse_consumer_key(key), consumers.decode(entry.value)) for key, entry in kv.keys(*consumer_range(index)))


def _joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)
