"""Batches larger than a blob, stored in parts: whole or not at all (semantics A.4, A.5, G.7)."""

import asyncio

import pytest

from pqbroker.pq.log.blob_cycles import plan_batches
from pqbroker.pq.log.keys import part_range
from pqbroker.pq.log.levels import HEAD_BLOB_BYTES_MAX
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kv.commands import Concat, Piece, Write
from tests.pq.rig import MIB, START_MS, Node, batch, check_invariants, check_store, new_partition, read_all, write

CAP_BYTES = 125_829_120


async def stored_keys(node: Node, prefix: bytes) -> list[bytes]:
    topic = node.topics.get("t")
    assert topic is not None
    storage = node.cell.storage(topic.record.tablets[0])
    return [key for key, _ in await storage.scan(b"", None, 10_000) if key.startswith(prefix)]


async def parts_of(node: Node) -> list[bytes]:
    return await stored_keys(node, part_range(0)[0])


async def until_parts(node: Node, count: int) -> None:
    """Let the loop turn until so many parts are stored."""
    for _ in range(1000):
        if len(await parts_of(node)) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError("the parts never came")


async def refused(partition: PartitionServer, size: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        await partition.write(*batch(size=size))
    return refusal.value.code


@pytest.mark.spec("A.3")
def test_a_batch_over_eight_mib_is_cut_into_slices_of_at_most_eight_mib() -> None:
    partition = new_partition()
    cycle = plan_batches(partition, [batch(size=20 * MIB)], START_MS)
    parts = list(cycle.parts)
    assert [part.size for part in parts if isinstance(part, Write)] == [HEAD_BLOB_BYTES_MAX] * 2
    (concat,) = (command for command in cycle.commands if isinstance(command, Concat))
    assert concat.inputs[:2] == tuple(part.key for part in parts if isinstance(part, Write))
    assert isinstance(concat.inputs[2], Piece)
    assert concat.inputs[2].size < HEAD_BLOB_BYTES_MAX
    assert parts[1].key == b"x0000000000_00000000000000000000_00001_0000000000_00001"  # type: ignore[union-attr]
    assert concat.output == b"d0000000000_00000000000000000000_00000_0000000001_00000"


def test_a_batch_of_exactly_a_blob_is_stored_at_once() -> None:
    partition = new_partition()
    assert not plan_batches(partition, [batch(size=HEAD_BLOB_BYTES_MAX)], START_MS).parts


@pytest.mark.spec("A.4", "J.1")
async def test_the_largest_batch_comes_back_whole_also_after_a_restart() -> None:
    node = await Node().start()
    partition = await node.topic(config={"max.message.bytes": str(CAP_BYTES)})
    view, header = batch(size=CAP_BYTES)
    assert len(view) == CAP_BYTES
    commits = node.cell.stats().commits
    assert await write(partition, batch(b"a"), (view, header), batch(b"z")) == [
        Written(0, -1, 0), Written(1, -1, 0), Written(2, -1, 0)
    ]  # fmt: skip
    assert node.cell.stats().commits - commits == 1 + 15 + 1
    check_invariants(partition.state)
    await check_store(node, partition)
    for served in (partition, None):
        if served is None:
            await node.restart()
        found = await read_all(served or node.partition())
        assert [offset for offset, _ in found] == [0, 1, 2]
        assert found[1][1] is not None
        assert CAP_BYTES - 100 < len(found[1][1]) < CAP_BYTES


@pytest.mark.spec("A.5")
async def test_a_half_received_batch_is_never_seen_and_wiped_at_the_next_start() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"))
    node.engine.faults.hold()
    future = partition.write(*batch(size=30 * MIB))
    future.add_done_callback(lambda done: done.exception())
    node.engine.faults.release()
    await until_parts(node, 2)
    assert partition.end_offset == 1
    assert [value for _, value in await read_all(partition)] == [b"a"]
    await node.restart()
    assert await parts_of(node) == []
    assert await read_all(node.partition()) == [(0, b"a")]
    await check_store(node, node.partition())


@pytest.mark.spec("A.5")
@pytest.mark.parametrize("refused_commit", [0, 1, 2, 3])
async def test_refused_in_any_of_its_commits_it_leaves_nothing_that_the_next_writer_does_not_wipe(
    refused_commit: int,
) -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"))
    future = partition.write(*batch(size=30 * MIB))
    await until_parts(node, refused_commit)
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError) as refusal:
        await future
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.end_offset == 1
    check_invariants(partition.state)
    await write(partition, batch(b"b"))
    assert await parts_of(node) == []
    assert (await write(partition, batch(size=30 * MIB)))[0].base_offset == 2
    assert await parts_of(node) == []
    assert [offset for offset, _ in await read_all(partition)] == [0, 1, 2]
    await check_store(node, partition)


async def test_what_a_refused_one_left_is_wiped_before_the_next_large_one() -> None:
    node = await Node().start()
    partition = await node.topic()
    future = partition.write(*batch(size=30 * MIB))
    await until_parts(node, 2)
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError):
        await future
    assert (await write(partition, batch(size=20 * MIB)))[0].base_offset == 0
    assert await parts_of(node) == []
    await check_store(node, partition)


@pytest.mark.spec("A.5")
async def test_other_partitions_commit_between_the_parts() -> None:
    node = await Node().start()
    await node.topic(partitions=2)
    large = node.partition().write(*batch(size=40 * MIB))
    await until_parts(node, 1)
    assert await node.partition(index=1).write(*batch(b"a")) == Written(0, -1, 0)
    assert not large.done()
    assert await large == Written(0, -1, 0)


async def test_a_tablet_lost_between_two_parts_fails_the_batch() -> None:
    node = await Node().start()
    partition = await node.topic()
    future = partition.write(*batch(size=40 * MIB))
    await until_parts(node, 1)
    partition.stop()
    with pytest.raises(KafkaError) as lost:
        await future
    assert lost.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.end_offset == 0


async def test_a_retry_of_a_batch_in_parts_is_a_duplicate() -> None:
    node = await Node(write_queue_bytes_max=64 * MIB).start()
    partition = await node.topic()
    future = partition.write(*batch(b"v" * (20 * MIB), producer=(5, 0, 0)))
    await until_parts(node, 1)
    again = partition.write(*batch(b"v" * (20 * MIB), producer=(5, 0, 0)))
    assert (await future, await again) == (Written(0, -1, 0), Written(0, -1, 0))
    assert partition.end_offset == 1


async def test_a_batch_in_parts_shares_its_cycle_with_small_ones_before_and_behind() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.hold()
    first = partition.write(*batch(b"first"))
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    sizes = [MIB, 9 * MIB, 2 * MIB]
    outcomes = [partition.write(*batch(size=size)) for size in sizes]
    commits = node.cell.stats().commits
    node.engine.faults.release()
    await first
    assert [(await outcome).base_offset for outcome in outcomes] == [1, 2, 3]
    assert node.cell.stats().commits - commits == 3
    assert list(partition.state.bodies.spans()) == [(0, 2), (2, 3)]
    check_invariants(partition.state)
    await check_store(node, partition)
    await node.restart()
    assert [offset for offset, _ in await read_all(node.partition())] == [0, 1, 2, 3]
