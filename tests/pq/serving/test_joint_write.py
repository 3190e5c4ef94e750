"""Batches for several partitions as one commit: all of them or none, whatever becomes of one partition."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pqbroker.conf.storage import ChannelProfile
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.joint_write import Share, batches_taken, write_together
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.tablet import USER_CHANNEL
from tests.pq.rig import MIB, START_MS, Node, batch, check_invariants, read_all, write
from tests.storage.blobs.test_channel_limits import put

TIMEOUT_S = 20.0
FENCE = Fence("spark/0", 7)


async def three(config: dict[str, str] | None = None) -> tuple[Node, Sequence[PartitionServer]]:
    """Partitions of a tablet each."""
    node = await Node().start()
    await node.topic(partitions=3, config={"pq.partitions.per.tablet": "1", **(config or {})})
    return node, partitions_of(node)


def partitions_of(node: Node) -> Sequence[PartitionServer]:
    return [node.partition(index=index) for index in range(3)]


def shares(partitions: Sequence[PartitionServer], *values: bytes) -> list[Share]:
    return [Share(partition, [batch(value)]) for partition, value in zip(partitions, values, strict=True)]


async def contents(node: Node) -> list[list[bytes | None]]:
    for partition in partitions_of(node):
        check_invariants(partition.state)
    return [[value for _, value in await read_all(partition)] for partition in partitions_of(node)]


async def until_all_write(partitions: Sequence[PartitionServer]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not all(partition.state.is_writing for partition in partitions):  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0)


async def test_all_are_written_by_one_commit_and_are_there_after_a_restart() -> None:
    node, partitions = await three()
    await write(partitions[1], batch(b"before"))
    commits = node.cell.stats().commits
    written = await write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock)
    assert node.cell.stats().commits == commits + 1
    assert written == [[Written(0, -1, 0)], [Written(1, -1, 0)], [Written(0, -1, 0)]]
    await node.restart()
    assert await contents(node) == [[b"a"], [b"before", b"b"], [b"c"]]
    assert batches_taken(partitions_of(node), "spark/0") == {
        0: SessionBatch(7, START_MS, 0, 1), 1: SessionBatch(7, START_MS, 1, 1), 2: SessionBatch(7, START_MS, 0, 1),
    }  # fmt: skip
    assert batches_taken(partitions_of(node), "spark/1") == {}


async def test_several_batches_of_one_partition_follow_one_another() -> None:
    node, partitions = await three()
    (written,) = await write_together([Share(partitions[0], [batch(b"a", b"b"), batch(b"c")])], FENCE, node.clock)
    assert [one.base_offset for one in written] == [0, 2]
    assert batches_taken(partitions, "spark/0") == {0: SessionBatch(7, START_MS, 0, 3)}


async def test_one_that_is_refused_refuses_all() -> None:
    node, partitions = await three({"pq.inactive.partitions": "1"})
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock), TIMEOUT_S)
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION
    assert await contents(node) == [[], [], []]
    assert batches_taken(partitions, "spark/0") == {}
    await write(partitions[0], batch(b"later"))
    assert await contents(node) == [[b"later"], [], []]


async def test_a_refused_commit_leaves_nothing_and_the_next_is_taken() -> None:
    node, partitions = await three()
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError) as refusal:
        await write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await contents(node) == [[], [], []]
    await write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock)
    assert await contents(node) == [[b"a"], [b"b"], [b"c"]]


async def test_one_that_is_refused_in_part_is_planned_again_from_where_it_was() -> None:
    node, partitions = await three()
    in_order, gap = batch(b"a", producer=(7, 0, 0)), batch(b"b", producer=(7, 0, 5))
    with pytest.raises(KafkaError) as refusal:
        await write_together([Share(partitions[0], [in_order, gap])], FENCE, node.clock)
    assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await write(partitions[0], in_order) == [Written(0, -1, 0)]
    assert await contents(node) == [[b"a"], [], []]


async def test_one_that_was_lost_before_refuses_all() -> None:
    node, partitions = await three()
    partitions[1].stop()
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock), TIMEOUT_S)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await write(partitions[0], batch(b"later"))
    await node.restart()
    assert await contents(node) == [[b"later"], [], []]


async def test_one_whose_parts_are_stored_after_another_was_refused_is_refused_too() -> None:
    node, partitions = await three({"pq.inactive.partitions": "2"})
    large = [Share(partitions[0], [batch(size=20 * MIB)]), *shares(partitions[1:], b"b", b"c")]
    call = asyncio.ensure_future(write_together(large, FENCE, node.clock))
    await until_all_write(partitions[1:2])
    writes = [asyncio.ensure_future(write(partition, batch(b"later"))) for partition in partitions[:2] for _ in "12"]
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(call, TIMEOUT_S)
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION
    await asyncio.gather(*writes)
    await node.restart()
    assert await contents(node) == [[b"later"] * 2, [b"later"] * 2, []]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_cell_that_is_lost_ends_all_partitions(stored: bool) -> None:
    node, partitions = await three()
    node.engine.faults.lose_next(stored=stored)
    with pytest.raises(KafkaError) as refusal:
        await write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [partition.is_lost for partition in partitions] == [True] * 3
    await node.restart()
    assert await contents(node) == ([[b"a"], [b"b"], [b"c"]] if stored else [[], [], []])


async def test_a_tablet_that_is_restarted_while_the_request_waits_is_lost_alone() -> None:
    """The request waits behind the rate of a channel."""
    node = Node()
    node.profile = {("persqueue", USER_CHANNEL): ChannelProfile("main", operations=1)}
    await node.start()
    await node.topic(partitions=3, config={"pq.partitions.per.tablet": "1"})
    partitions, topic = partitions_of(node), node.topics.get("t")
    assert topic is not None
    for _ in range(3):
        put(node.cell.storage(topic.record.tablets[0]))
    call = asyncio.ensure_future(write_together(shares(partitions, b"a", b"b", b"c"), None, node.clock))
    await until_all_write(partitions)
    await node.cell.restart_tablet(topic.record.tablets[1])
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(call, TIMEOUT_S)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [partition.is_lost for partition in partitions] == [False, True, False]


async def test_calls_over_the_same_partitions_and_ordinary_writes_do_not_wait_in_a_circle() -> None:
    node, partitions = await three()
    calls: list[asyncio.Future[Any]] = []
    for number in range(20):
        order = [partitions[(number + shift) % 3] for shift in (0, 2, 1)]
        text = b"%d" % number
        calls.append(asyncio.ensure_future(write_together(shares(order, text, text, text), None, node.clock)))
        calls += [asyncio.ensure_future(write(partition, batch(b"w"))) for partition in partitions]
    await asyncio.gather(*calls)
    found = await contents(node)
    joint = [[value for value in values if value != b"w"] for values in found]
    assert joint[0] == joint[1] == joint[2] == [b"%d" % number for number in range(20)]
    assert [len(values) for values in found] == [40, 40, 40]


@pytest.mark.parametrize("held", [0, 1, 2])
async def test_a_partition_that_is_held_gives_the_call_up(held: int) -> None:
    node, partitions = await three()
    node.engine.faults.hold()
    first = partitions[(held + 1) % 3].write(*batch(b"before"))  # its writer is busy: the others wait for it
    call = asyncio.ensure_future(write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock))
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.wait_for(partitions[held].hold(), TIMEOUT_S)
    node.engine.faults.release()
    await first
    partitions[held].stop()
    with pytest.raises(KafkaError) as refusal:
        await asyncio.wait_for(call, TIMEOUT_S)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not any(one.state.is_writing for one in partitions if one.index != held)
    with pytest.raises(KafkaError):
        batches_taken(partitions, "spark/0")
    await node.restart()
    values = [value for some in await contents(node) for value in some]
    assert values == [b"before"]


@pytest.mark.parametrize("end", ["held", "lost"])
async def test_a_partition_that_leaves_is_too_late_once_the_request_is_on_its_way(end: str) -> None:
    node, partitions = await three()
    node.engine.faults.hold()
    call = asyncio.ensure_future(write_together(shares(partitions, b"a", b"b", b"c"), FENCE, node.clock))
    await until_all_write(partitions)
    leaving = asyncio.ensure_future(partitions[1].hold())
    await asyncio.sleep(0)
    if end == "lost":
        partitions[1].stop()
    for _ in range(20):
        await asyncio.sleep(0)
    assert [one.state.is_writing for one in partitions] == [True] * 3
    node.engine.faults.release()
    assert await asyncio.wait_for(call, TIMEOUT_S) == [[Written(0, -1, 0)]] * 3
    await asyncio.wait_for(leaving, TIMEOUT_S)
    await write(partitions[0], batch(b"later"))
    await node.restart()
    assert await contents(node) == [[b"a", b"later"], [b"b"], [b"c"]]


async def test_batches_in_parts_are_together_too() -> None:
    node, partitions = await three()
    large = [Share(partitions[0], [batch(size=20 * MIB)]), Share(partitions[1], [batch(b"b")])]
    await write_together(large, FENCE, node.clock)
    await node.restart()
    assert [len(values) for values in await contents(node)] == [1, 1, 0]


async def test_the_head_is_loaded_where_it_is_needed() -> None:
    node, partitions = await three()
    for _ in range(3):
        await write(partitions[0], batch(size=1000))
    await node.restart()
    await write_together(shares(partitions_of(node), b"a", b"b", b"c"), FENCE, node.clock)
    assert [len(values) for values in await contents(node)] == [4, 1, 1]


async def test_over_the_limit_the_oldest_sessions_of_a_partition_are_forgotten() -> None:
    node, partitions = await three({"pq.sessions.max": "2"})
    for number in range(4):
        await write_together(shares(partitions[:1], b"a"), Fence(str(number), 1), node.clock)
    await node.restart()
    assert [name for name, _ in node.partition().state.sessions] == ["2", "3"]


async def test_retention_forgets_sessions_whose_rows_are_gone() -> None:
    node, partitions = await three()
    await write_together(shares(partitions[:1], b"a"), FENCE, node.clock)
    await partitions[0].retention.delete_before(1)
    await partitions[0].retention.retain()
    assert len(partitions[0].state.sessions) == 1
    node.now_ms += node.settings.producer_id_expiration_ms
    await partitions[0].retention.retain()
    assert len(partitions[0].state.sessions) == 0
    await node.restart()
    assert len(node.partition().state.sessions) == 0
