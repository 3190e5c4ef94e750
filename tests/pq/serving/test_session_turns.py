"""Batches and changes of sessions, looked up before another one wrote: a partition refuses them in its turn."""

import asyncio

import pytest

from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.sessions import Fence, ProducerState, SessionBatch
from pqbroker.pq.log.staged_rows import Piece, Total, decision
from pqbroker.pq.log.transacted_cycles import plan_beside
from pqbroker.pq.serving.joint_write import Share, write_together
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.session_writes import forget_session, write_session
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.pq.rig import START_MS, Node, batch, read_all

FENCE = Fence("s", 7)
OWNED = Fence("s", 7, ProducerState(3))


async def one() -> tuple[Node, PartitionServer]:
    node = await Node().start()
    await node.topic(partitions=1)
    return node, node.partition()


async def values(partition: PartitionServer) -> list[bytes | None]:
    return [value for _, value in await read_all(partition)]


def late(fence: Fence, **changed: object) -> Fence:
    return fence._replace(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [FENCE, late(FENCE, sequence=6), late(OWNED, sequence=8, producer=ProducerState(2))])
async def test_a_batch_that_comes_late_is_not_written(after: Fence) -> None:
    node, partition = await one()
    first = OWNED if after.producer else FENCE
    writing = [
        asyncio.ensure_future(write_together([Share(partition, [batch(value)])], fence, node.clock))
        for value, fence in ((b"first", first), (b"late", after))
    ]
    await writing[0]
    with pytest.raises(KafkaError, match="the session has changed since it was looked up: retry") as refusal:
        await writing[1]
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    prepared = PreparedBatches(after, [batch(b"late")], [None])
    assert isinstance(plan_beside(partition.state, prepared, START_MS), KafkaError)
    assert await values(partition) == [b"first"]
    await write_together([Share(partition, [batch(b"next")])], late(first, sequence=8), node.clock)
    assert await values(partition) == [b"first", b"next"]


async def test_a_session_is_changed_and_forgotten_only_as_it_was_seen() -> None:
    node, partition = await one()
    first = SessionBatch(-1, START_MS, 0, 0, producer=ProducerState(0))
    second = first._replace(producer=ProducerState(1))
    await write_session(partition, "s", first, None)
    for seen in (None, second):
        with pytest.raises(KafkaError, match="retry"):
            await write_session(partition, "s", second, seen)
    await write_session(partition, "s", second, first)
    with pytest.raises(KafkaError, match="retry"):
        await forget_session(partition, "s", first, START_MS)
    assert partition.state.sessions.get("s") == second
    await forget_session(partition, "s", second, START_MS)
    await forget_session(partition, "s", second, START_MS)
    await node.restart()
    assert node.partition().state.sessions.get("s") is None


async def test_a_piece_that_two_write_at_once_is_written_once() -> None:
    _, partition = await one()
    key = Piece(0, Total(1, 5), "0" * 16).key("s", 1)
    await partition.staged.add(key, batch(b"piece")[0])
    rows = await partition.staged.read(key)
    await asyncio.gather(*(partition.staged.write(key, rows, None) for _ in range(2)))
    assert await values(partition) == [b"piece"]
    assert (partition.staged.bytes, partition.staged.count) == (0, 0)


async def test_a_decision_that_two_end_is_ended_once_and_takes_no_session_back() -> None:
    _, partition = await one()
    staged = partition.staged
    decided = [decision("s", sequence, [Piece(0, Total(1, 5), "0" * 16)]) for sequence in (1, 2)]
    await staged.decide(decided[0])
    await asyncio.gather(*(staged.end(decided[0]) for _ in range(2)))
    assert staged.decision_count == 0
    await staged.decide(decided[1])
    await staged.end(decided[1])
    for late_end in (staged.end, staged.retract):
        await late_end(decided[0])
    known = partition.state.sessions.get("s")
    assert known is not None
    assert (known.sequence, staged.decision_count) == (2, 0)
