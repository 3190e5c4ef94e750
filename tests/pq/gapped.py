"""Bodies as a cleaner leaves them, made by hand: offsets are missing before, between and behind batches, and batches
hold no record."""

import random
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pqbroker.pq.log.batch_run import GrowingRun
from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, Columns, encode_index
from pqbroker.pq.log.keys import body_key, meta_key
from pqbroker.pq.log.start_state import Meta
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.cleaned_batches import batch_of, empty_batch, place_records
from pqbroker.protocol.records import LOG_APPEND_TIME, Record, encode_batch, read_header, stamp_log_append_time
from pqbroker.storage.kv.commands import Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from tests.pq.rig import START_MS, Node

VALUE = b"value %06d"


class GappedBody(NamedTuple):
    """The offsets [offset, end), the batches in it, and the offsets that have a record: their times."""

    offset: int
    end: int
    batches: Sequence[bytes]
    times: Mapping[int, int]

    @property
    def value(self) -> bytes:
        """The stored value, with its index."""
        data = b"".join(self.batches)
        return data + encode_index(columns_of(self.batches), len(data), self.end)


def columns_of(batches: Sequence[bytes]) -> Columns:
    """The sparse index of batches end to end."""
    run = GrowingRun(0)
    for batch in batches:
        header = read_header(batch)
        run.append(memoryview(batch), header.base_offset, header.max_timestamp, not run.end)
    return run.index_between(0, run.end, run.offsets[0], BODY_INDEX_GAP_BYTES) if batches else (array("q"),) * 3


def gapped_batch(base: int, last: int, kept: Mapping[int, int], *, fill: int = 0, attributes: int = 0) -> bytes:
    """A batch of the offsets [base, last], with records at `kept`, which says their times; `fill`: bytes of each."""
    records = [
        Record(0, kept.get(offset, START_MS), b"k", VALUE % offset + bytes(fill)) for offset in range(base, last + 1)
    ]
    whole = encode_batch(records, base_offset=base, leader_epoch=1, codec=attributes & 7)
    if attributes & LOG_APPEND_TIME:
        stamp_log_append_time(memoryview(whole), max(kept.values(), default=START_MS))
    if not kept:
        return empty_batch(read_header(whole), base, last)
    placed = place_records(memoryview(bytes(whole)), 1 << 30)
    return batch_of(placed, [record for record in placed.records if record.offset in kept], None)


def gapped_bodies(chance: random.Random, count: int) -> list[GappedBody]:
    """Bodies at random, one behind the other; the last batch of the last one ends where it does."""
    found, offset = [], 0
    for number in range(count):
        start, batches = offset, []
        times: dict[int, int] = {}
        offset += chance.choice((0, 0, 3, 40))
        for _ in range(chance.choice((1, 2, 5, 30))):
            last = offset + chance.choice((0, 0, 5, 20))
            left = [each for each in range(offset, last + 1) if chance.random() < 0.5]
            kept = {each: START_MS + chance.randrange(1000) for each in left}
            fill = chance.choice((0, 10, 3000))
            batches.append(gapped_batch(offset, last, kept, fill=fill, attributes=chance.choice((0, 0, 3))))
            times |= kept
            offset = last + 1 + chance.choice((0, 0, 1, 50))
        end = offset if number < count - 1 else read_header(batches[-1]).last_offset + 1
        found.append(GappedBody(start, end, batches, times))
    return found


async def with_bodies(
    node: Node, bodies: Sequence[GappedBody], config: Mapping[str, str] | None = None
) -> PartitionServer:
    """The partition t-0 of a started node that has exactly these bodies."""
    await node.topic(config={"retention.ms": "-1", **(config or {})})
    topic = node.topics.get("t")
    assert topic is not None
    await put_bodies(topic.tablets[topic.record.tablets[0]].kv, bodies)
    await node.restart()
    return node.partition()


async def put_bodies(kv: KeyValueTablet, bodies: Sequence[GappedBody]) -> None:
    """Store the bodies of partition 0, and the meta row that goes with them."""
    meta = Meta(0, bodies[-1].end, [(1, 0)]).encode()
    rows = [(body_key(0, body.offset, body.end - body.offset), body.value) for body in bodies]
    await kv.execute([Write(key, [value], len(value)) for key, value in [*rows, (meta_key(0), meta)]])


def records_from(bodies: Sequence[GappedBody], offset: int) -> list[int]:
    """Offsets of the records at or behind an offset."""
    return sorted(each for body in bodies for each in body.times if each >= offset)
