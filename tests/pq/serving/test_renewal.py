"""A tablet whose blob ids are nearly used up is started again, and nobody notices; a plan that fails is a loss, never a
wait without end."""

import asyncio
from collections.abc import Awaitable

import pytest

from pqbroker.pq.log.partition import Partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.blobs.blob_id import STEP_MAX, BlobId
from pqbroker.storage.engine import Batch, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Write
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.kv.plan import Planner
from pqbroker.storage.kv.tablet import KeyValueTablet
from tests.pq.rig import KIB, Node, batch, check_invariants, check_store, read_all, write

LARGE = b"v" * (9 * KIB)


async def restart_worn(node: Node) -> list[TabletId]:
    worn = node.cell.worn()
    for tablet in worn:
        await node.host.restart(tablet)
    return worn


async def test_a_tablet_is_worn_after_its_commits_and_begins_to_count_again() -> None:
    node = await Node(tablet_commits_max=100).start()
    partition = await node.topic()
    await write(partition, *(batch(b"%d" % number) for number in range(99)))
    assert node.cell.worn() == []
    await write(partition, batch(b"99"))
    assert len(await restart_worn(node)) == 1
    assert node.cell.worn() == []
    later = node.partition()
    assert (later.leader_epoch, later.end_offset) == (partition.leader_epoch + 1, 100)
    await write(later, batch(b"100"))
    assert [value for _, value in await read_all(later)] == [b"%d" % number for number in range(101)]
    check_invariants(later.state)
    await check_store(node, later)


async def test_writes_wait_for_the_next_instance_and_reads_do_not() -> None:
    node = await Node().start()
    earlier = await node.topic()
    await write(earlier, batch(b"0", producer=(5, 0, 0)))
    node.engine.faults.hold()
    writes = [earlier.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in (1, 2, 3)]
    topic = node.topics.get("t")
    assert topic is not None
    restart = asyncio.ensure_future(node.host.restart(topic.record.tablets[0]))
    await asyncio.sleep(0)
    writes.append(earlier.write(*batch(b"4", producer=(5, 0, 4))))
    assert await read_all(earlier) == [(0, b"0")]
    woken: list[bool] = []
    earlier.watchers.add(lambda: woken.append(earlier.is_lost))
    node.engine.faults.release()
    await restart
    assert [(await one).base_offset for one in writes] == [1, 2, 3, 4]
    later = node.partition()
    assert later is not earlier
    assert (later.writer.queue.in_flight_bytes, later.writer.queue.bytes) == (0, 0)
    assert woken[-1], "who waits for data looks at the next instance"
    assert [value for _, value in await read_all(later)] == [b"%d" % number for number in range(5)]
    assert (await later.write(*batch(b"4", producer=(5, 0, 4)))).base_offset == 4


async def test_what_is_held_fails_when_the_cell_is_lost_meanwhile() -> None:
    node = await Node().start()
    partition = await node.topic()
    await partition.hold()
    waiting = partition.write(*batch(b"a"))
    assert not waiting.done()
    partition.stop()
    with pytest.raises(KafkaError) as lost:
        await waiting
    assert lost.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_without_a_step_left_a_tablet_is_blocked_and_lives_again_once_it_is_started_again() -> None:
    """At 2^32 the partition hung for ever."""
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(LARGE))
    topic = node.topics.get("t")
    assert topic is not None
    (tablet,) = topic.record.tablets
    storage = node.cell.storage(tablet)
    storage._step = STEP_MAX
    assert BlobId.from_key(storage.put_blob(Batch(), 2, [b"x"], 1)).step == STEP_MAX
    await write(partition, batch(LARGE))
    with pytest.raises(KafkaError) as refused:
        await partition.write(*batch(LARGE))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await restart_worn(node) == [tablet]
    assert [item.base_offset for item in await write(node.partition(), batch(LARGE))] == [2]


async def test_a_cycle_that_cannot_be_planned_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.hold()
    first = partition.write(*batch(b"stored"))
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    waiting = [partition.write(*batch(b"%d" % number)) for number in range(2)]
    job = asyncio.ensure_future(partition.retention.delete_before(0))

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Partition, "no_change", fail)
    await asyncio.sleep(0)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    node.engine.faults.release()
    assert (await first).base_offset == 0
    failed: list[Awaitable[object]] = [*waiting, job]
    for outcome in failed:
        with pytest.raises(KafkaError) as lost:
            await outcome
        assert lost.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.undo()
    assert len(await restart_worn(node)) == 1
    assert await read_all(node.partition()) == [(0, b"stored")]
    assert (await node.partition().write(*batch(b"again"))).base_offset == 1


@pytest.mark.parametrize("together", [False, True])
async def test_a_kv_request_that_cannot_be_planned_fails_all_that_waits(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await Node().start()
    await node.topic("t")
    await node.topic("u")
    one, other = (node.partition(name)._kv for name in "tu")
    node.engine.faults.hold()
    stored = one.execute([Write(b"k", (b"1",), 1)])
    waiting = [one.execute([Write(b"k", (b"2",), 1)])]
    if together:
        waiting.append(execute_together([(one, [Write(b"k", (b"3",), 1)]), (other, [Write(b"k", (b"3",), 1)])]))

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Planner, "plan", fail)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    node.engine.faults.release()
    await stored
    for outcome in waiting:
        with pytest.raises(ShardLost):
            await outcome
    with pytest.raises(ShardLost):
        await one.execute([Write(b"k", (b"4",), 1)])
    monkeypatch.undo()
    assert len(await restart_worn(node)) == 1
    again: KeyValueTablet = node.partition()._kv
    await again.execute([Write(b"k", (b"5",), 1)])
