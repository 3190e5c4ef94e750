"""Stored rows that no tablet of this version writes: their partition is refused, all others are served, and nothing is
deleted."""

import pytest

from pqbroker.pq.log import consumers, producers
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.keys import (
    aborted_key,
    body_key,
    cleaned_key,
    consumer_key,
    head_key,
    meta_key,
    part_key,
    producer_key,
)
from pqbroker.pq.log.producer_transactions import AbortedSpan
from pqbroker.pq.log.producers import Producer, StoredBatch, TransactionalState
from pqbroker.pq.log.start_state import Meta
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kv.commands import INLINE, Write
from tests.pq.rig import Node, batch, query, read_all, write

PRODUCER = producers.encode(Producer(0, 0, 1, (StoredBatch(0, 0, 0, -1),)))
HALF_OPEN = Producer(0, 0, 1, (StoredBatch(0, 0, 0, -1),), -1, TransactionalState(0, 0, open_offset=1))
TRANSACTIONAL = producers.encode(HALF_OPEN._replace(transactional=TransactionalState(0, 0)))
SPAN = AbortedSpan(3, 7, 1, 4).encode()
CONSUMER = consumers.encode(ConsumerOffset(1))
CLEANED = CleanedLog(1, 1).encode()
META = Meta(0, 1, [(1, 0)]).encode()
DATA = bytes(100)

BAD_ROWS = {
    "a count of eleven digits": (b"d0000000000_00000000000000000001_00000_12345678901_00000|", DATA),
    "a count of nothing": (b"d0000000000_00000000000000000001_00000_0000000000_00000|", DATA),
    "an offset above all offsets": (body_key(0, (1 << 63) - 1, 1), DATA),
    "a key cut off": (b"d0000000000_000000000", DATA),
    "a key with a sign": (b"d0000000000_+0000000000000000001_00000_0000000001_00000|", DATA),
    "a body behind the head": (body_key(0, 5, 1), DATA),
    "a key that begins in one and ends behind it": (head_key(0, 3, 5), DATA),
    "a meta row of another version": (meta_key(0), b"\3" + META[1:]),
    "an empty meta row": (meta_key(0), b""),
    "a meta row cut off": (meta_key(0), META[:-1]),
    "a start behind the end": (meta_key(0), Meta(9, 1, []).encode()),
    "an epoch of the future": (meta_key(0), Meta(0, 1, [(99, 0)]).encode()),
    "epochs out of order": (meta_key(0), Meta(0, 1, [(2, 0), (1, 1)]).encode()),
    "a producer's row of another version": (producer_key(0, 7), b"\4" + PRODUCER[1:]),
    "a transactional producer's row cut off": (producer_key(0, 7), TRANSACTIONAL[:-1]),
    "an open transaction without its time": (producer_key(0, 7), producers.encode(HALF_OPEN)),
    "an aborted transaction of another version": (aborted_key(0, 3), b"\2" + SPAN[1:]),
    "an aborted transaction behind the end": (aborted_key(0, 4), SPAN),
    "an aborted transaction that ends before it begins": (aborted_key(0, 1), SPAN),
    "an aborted transaction at no offset": (aborted_key(0, 3)[:-1] + b"x", SPAN),
    "a producer's row cut off": (producer_key(0, 7), PRODUCER[:-1]),
    "a producer without batches": (producer_key(0, 7), producers.encode(Producer(0, 0, 1, ()))),
    "a producer's id that is no number": (producer_key(0, 7)[:-1] + b"x", PRODUCER),
    "a cleaning of another version": (cleaned_key(0), b"\2" + CLEANED[1:]),
    "a cleaning cut off": (cleaned_key(0), CLEANED[:-1]),
    "a cleaning up to no offset": (cleaned_key(0), CleanedLog(-1, 1).encode()),
    "a consumer's row of another version": (consumer_key(0, "g"), b"\2" + CONSUMER[1:]),
    "a consumer's row cut off": (consumer_key(0, "g"), CONSUMER[:9]),
    "a consumer's metadata that is no text": (consumer_key(0, "g"), CONSUMER + b"\xff"),
    "a consumer's id that is no text": (consumer_key(0, "g") + b"\xff", CONSUMER),
}
"""What is wrong, and a row that has it, beside a head blob of the records [0, 4)."""


@pytest.fixture
async def node() -> Node:
    """A topic with two partitions in one tablet, and four records in each, which merged into one head blob."""
    node = await Node().start()
    await node.topic(partitions=2)
    for index in range(2):
        await write(node.partition(index=index), batch(b"a", b"b"), batch(b"c" * 100), batch(b"d" * 3000))
    return node


async def put(node: Node, key: bytes, value: bytes) -> None:
    await node.partition()._kv.execute([Write(key, (value,), len(value), INLINE)])


@pytest.mark.parametrize("name", BAD_ROWS)
async def test_an_unreadable_row_costs_its_partition_only(name: str, node: Node) -> None:
    key, value = BAD_ROWS[name]
    orphan = part_key(0, 3, 0)
    await put(node, orphan, b"half a batch")
    await put(node, key, value)
    rows = list(node.partition()._kv.keys())
    await node.restart()
    refused, served = node.partition(), node.partition(index=1)
    assert [(key, entry.row) for key, entry in refused._kv.keys()] == [(key, entry.row) for key, entry in rows]
    assert refused.state.unreadable is not None
    with pytest.raises(KafkaError) as unread:
        refused.read(query(refused, 0, 1000))
    assert unread.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as unwritten:
        await refused.write(*batch(b"e"))
    assert unwritten.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert str(refused.state.unreadable) in unwritten.value.message
    assert await read_all(served) == [(0, b"a"), (1, b"b"), (2, b"c" * 100), (3, b"d" * 3000)]
    assert (await served.write(*batch(b"e"))).base_offset == 4
