"""Partitions over a tablet and the memory engine: acknowledgement, failure, loss, recovery, budgets."""

import asyncio
from dataclasses import replace

import pytest

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import DAY_MS, KIB, MIB, Node, batch, check_invariants, check_store, query, read_all, write


def ends_of(partition: PartitionServer, *epochs: int) -> list[tuple[int, int]]:
    """The end of each epoch, as OffsetForLeaderEpoch answers it."""
    return [partition.state.epochs.end_of(epoch, partition.end_offset) for epoch in epochs]


async def settled(*futures: Outcome[Written]) -> list[Written | ErrorCode]:
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [item.code if isinstance(item, KafkaError) else item for item in found]  # type: ignore[misc]


async def turns(count: int = 10) -> None:
    """Let the loop run what is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_write_is_acknowledged_and_readable_at_once() -> None:
    node = await Node().start()
    partition = await node.topic()
    assert await write(partition, batch(b"a"), batch(b"b", b"c")) == [Written(0, -1, 0), Written(1, -1, 0)]
    assert await read_all(partition) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.spec("A.1")
async def test_nothing_is_visible_or_acknowledged_before_it_is_durable() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.hold()
    future = partition.write(*batch(b"a"))
    await turns()
    assert not future.done()
    assert (partition.end_offset, partition.read(query(partition, 0, 1000))) == (0, Batches([], 0, 0))
    assert partition.reader.readable_bytes(0, partition.end_offset, 1000) == 0
    node.engine.faults.release()
    assert await future == Written(0, -1, 0)
    assert partition.reader.readable_bytes(0, partition.end_offset, 1000) > 0


@pytest.mark.spec("A.5.1", "A.5.2", "A.5.3")
async def test_writes_of_one_turn_are_one_cycle_and_those_that_come_during_it_share_the_next_one() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"first"))
    before = node.cell.stats().commits
    futures = [partition.write(*batch(b"%d" % number)) for number in range(20)]
    assert [item.base_offset for item in await asyncio.gather(*futures)] == list(range(1, 21))
    assert node.cell.stats().commits - before == 1
    node.engine.faults.hold()
    futures = [partition.write(*batch(b"%d" % number)) for number in range(10)]
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    futures += [partition.write(*batch(b"%d" % number)) for number in range(10)]
    node.engine.faults.release()
    assert [item.base_offset for item in await asyncio.gather(*futures)] == list(range(21, 41))
    assert node.cell.stats().commits - before == 3


@pytest.mark.spec("A.5.10")
async def test_a_refused_cycle_fails_and_so_does_all_that_waits() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"kept"))
    node.engine.faults.refuse_next()
    node.engine.faults.hold()
    futures = [partition.write(*batch(b"0", producer=(5, 0, 0)))]
    await turns()
    futures += [partition.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in (1, 2)]
    node.engine.faults.release()
    assert await settled(*futures) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert partition.end_offset == 1
    check_invariants(partition.state)
    again = [partition.write(*batch(b"%d" % number, producer=(5, 0, number))) for number in range(3)]
    assert [item.base_offset for item in await asyncio.gather(*again)] == [1, 2, 3]
    assert await read_all(partition) == [(0, b"kept"), (1, b"0"), (2, b"1"), (3, b"2")]


async def test_behind_a_refused_first_batch_nothing_of_its_producer_is_stored() -> None:
    """Were it, the refused batch would be out of order for ever."""
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.refuse_next()
    assert await settled(partition.write(*batch(b"0", producer=(5, 0, 0)))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    second = batch(b"1", producer=(5, 0, 1))
    assert await settled(partition.write(*second)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    await write(partition, batch(b"another", producer=(6, 0, 7)), batch(b"0", producer=(5, 0, 0)), second)
    assert await read_all(partition) == [(0, b"another"), (1, b"0"), (2, b"1")]


async def test_a_producer_that_begins_anew_is_not_held_to_what_was_refused() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.refuse_next()
    await settled(partition.write(*batch(b"0", producer=(5, 0, 0))))
    (written,) = await write(partition, batch(b"9", producer=(5, 1, 9)))
    assert written.base_offset == 0


async def test_a_duplicate_of_what_is_in_flight_is_acknowledged_with_it() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.hold()
    first = partition.write(*batch(b"a", producer=(5, 0, 0)))
    second = partition.write(*batch(b"a", producer=(5, 0, 0)))
    await turns()
    assert not second.done()
    node.engine.faults.release()
    assert await settled(first, second) == [Written(0, -1, 0)] * 2
    assert partition.end_offset == 1


async def test_a_duplicate_of_what_is_in_flight_fails_with_it() -> None:
    node = await Node().start()
    partition = await node.topic()
    node.engine.faults.refuse_next()
    futures = [partition.write(*batch(b"a", producer=(5, 0, 0))) for _ in range(2)]
    assert await settled(*futures) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert partition.end_offset == 0


async def test_a_lost_store_fails_everything_for_good() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"))
    calls = []
    partition.watchers.add(lambda: calls.append(1))
    node.engine.faults.lose_next()
    futures = [partition.write(*batch(b"b")) for _ in range(2)]
    assert await settled(*futures) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert await settled(partition.write(*batch(b"c"))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        partition.read(query(partition, 0, 100))
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        await partition.retention.delete_before(1)
    assert calls == [1]


async def test_too_much_in_flight_is_told_to_come_back() -> None:
    node = await Node(write_queue_bytes_max=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    futures = [partition.write(*batch(size=400 * KIB)) for _ in range(4)]
    assert futures[3].done()
    node.engine.faults.release()
    assert [type(item) for item in await settled(*futures)] == [Written] * 3 + [ErrorCode]
    assert (await settled(futures[3])) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.spec("A.8", "G.2")
async def test_a_batch_over_the_queues_limit_waits_in_line_and_refuses_nobody() -> None:
    node = await Node(write_queue_bytes_max=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    small = [partition.write(*batch(b"before %d" % number)) for number in range(2)]
    large = [partition.write(*batch(size=3 * MIB)) for _ in range(2)]
    small += [partition.write(*batch(size=600 * KIB)) for _ in range(2)]
    over = partition.write(*batch(b"over"))
    assert over.done()
    assert not any(item.done() for item in (*small, *large))
    node.engine.faults.release()
    assert [(await item).base_offset for item in (*small[:2], *large, *small[2:])] == list(range(6))
    assert (await settled(over)) == [ErrorCode.REQUEST_TIMED_OUT]
    assert (partition.writer.queue.in_flight_bytes, partition.writer.queue.bytes) == (0, 0)
    assert (await partition.write(*batch(b"after"))).base_offset == 6


async def test_a_steady_load_does_not_keep_a_large_batch_out() -> None:
    """Whatever its size, it is taken when any other would be."""
    node = await Node(write_queue_bytes_max=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    steady = [partition.write(*batch(size=400 * KIB)) for _ in range(2)]
    large = partition.write(*batch(size=900 * KIB))
    node.engine.faults.release()
    assert [(await item).base_offset for item in (*steady, large)] == [0, 1, 2]


async def test_a_watcher_is_called_once_per_advance_until_it_ends() -> None:
    node = await Node().start()
    partition = await node.topic()
    calls: list[int] = []
    unwatch = partition.watchers.add(lambda: calls.append(partition.end_offset))
    await write(partition, batch(b"a"), batch(b"b"))
    await partition.retention.delete_before(1)
    unwatch()
    await write(partition, batch(b"c"))
    assert calls == [1, 2, 2]


async def test_everything_acknowledged_is_there_after_a_restart() -> None:
    node = await Node().start()
    partition = await node.topic()
    values = [b"%d" % number + bytes(number * 37 % 3000) for number in range(300)]
    await write(partition, *(batch(value) for value in values))
    await node.restart()
    partition = node.partition()
    check_invariants(partition.state)
    assert await read_all(partition, bytes_max=20 * KIB) == list(enumerate(values))


@pytest.mark.spec("J.1")
async def test_duplicates_are_known_after_a_restart() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, *(batch(b"%d" % number, producer=(5, 0, number)) for number in range(7)))
    await node.restart()
    partition = node.partition()
    assert await write(partition, batch(b"6", producer=(5, 0, 6))) == [Written(6, -1, 0)]
    older = partition.write(*batch(b"0", producer=(5, 0, 0)))
    assert await settled(older) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await write(partition, batch(b"7", producer=(5, 0, 7))) == [Written(7, -1, 0)]
    assert [producer_id for producer_id, _ in partition.state.producers] == [5]


async def test_what_a_refusal_and_a_crash_took_is_not_half_there() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a", producer=(5, 0, 0)))
    node.engine.faults.hold()
    lost = partition.write(*batch(b"b", producer=(5, 0, 1)))
    await node.restart()
    assert await settled(lost) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition = node.partition()
    assert await write(partition, batch(b"b", producer=(5, 0, 1))) == [Written(1, -1, 0)]


@pytest.mark.spec("A.1")
async def test_numbering_goes_on_after_everything_was_deleted() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b"))
    assert await partition.retention.delete_before(2) == 2
    await node.restart()
    partition = node.partition()
    assert (partition.start_offset, partition.end_offset) == (2, 2)
    assert await write(partition, batch(b"c")) == [Written(2, -1, 2)]


async def test_deleting_before_an_offset_never_goes_back() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, *(batch(b"%d" % number) for number in range(10)))
    assert await partition.retention.delete_before(5) == 5
    assert await partition.retention.delete_before(3) == 5
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        await partition.retention.delete_before(11)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        partition.read(query(partition, 4, 100))
    await node.restart()
    assert await read_all(node.partition()) == [(number, b"%d" % number) for number in range(5, 10)]


async def test_deleting_waits_for_the_cycle_in_flight_and_goes_before_what_waits() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b"))
    first = partition.write(*batch(b"c"))
    deleting = asyncio.ensure_future(partition.retention.delete_before(2))
    await asyncio.sleep(0)
    second = partition.write(*batch(b"d"))
    assert await settled(first, second) == [Written(2, -1, 0), Written(3, -1, 2)]
    assert await deleting == 2


async def test_a_refused_deletion_changes_nothing() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a"), batch(b"b"))
    node.engine.faults.refuse_next()
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        await partition.retention.delete_before(1)
    assert partition.start_offset == 0
    assert await partition.retention.delete_before(1) == 1


async def test_each_generation_that_wrote_has_its_epoch() -> None:
    node = await Node().start()
    await node.topic()
    ends = []
    for number in range(3):
        await write(node.partition(), batch(b"%d" % number), batch(b"x"))
        ends.append((node.partition().leader_epoch, node.partition().end_offset))
        await node.restart()
        await node.restart()
    partition = node.partition()
    assert ends == [(1, 2), (3, 4), (5, 6)]
    assert ends_of(partition, 1, 2, 3, 5) == [(1, 2), (1, 2), (3, 4), (5, 6)]
    assert ends_of(partition, partition.leader_epoch) == [(7, 6)]
    assert ends_of(partition, 8) == [(-1, -1)]
    assert [partition.state.epochs.epoch_at(offset) for offset in (0, 2, 5)] == [1, 3, 5]
    await partition.retention.delete_before(4)
    assert ends_of(partition, 1, 3, 5) == [(1, 4), (3, 4), (5, 6)]
    await node.restart()
    assert ends_of(node.partition(), 1, 3, 5) == [(1, 4), (3, 4), (5, 6)]


async def test_a_write_after_a_restart_merges_what_it_has_to_load() -> None:
    node = await Node().start()
    partition = await node.topic()
    values = [b"%04d" % number + bytes(1500) for number in range(40)]
    await write(partition, *(batch(value) for value in values[:39]))
    await node.restart()
    partition = node.partition()
    assert not partition.state.head.is_warm
    await write(partition, batch(values[39]))
    check_invariants(partition.state)
    assert await read_all(partition) == list(enumerate(values))


async def test_a_head_dropped_for_room_is_loaded_for_a_read_and_for_a_write() -> None:
    node = await Node(head_bytes=MIB).start()
    await node.topic(partitions=8)
    values = [b"%03d" % number + bytes(5000) for number in range(60)]
    for value in values:
        for index in range(8):
            await write(node.partition(index=index), batch(value))
    heads = node.topics.memory.heads
    assert heads.drops > 0
    assert heads.size <= MIB
    for index in range(8):
        check_invariants(node.partition(index=index).state)
        assert await read_all(node.partition(index=index)) == list(enumerate(values))
        assert heads.size <= MIB


async def test_the_budget_counts_what_heads_hold() -> None:
    node = await Node().start()
    await node.topic(partitions=3)
    for _ in range(30):
        for index in range(3):
            await write(node.partition(index=index), batch(size=300 * KIB))
    held = sum(node.partition(index=index).state.head.run.held for index in range(3))
    assert node.topics.memory.heads.size == held


async def test_retention_walks_over_all_topics() -> None:
    node = await Node().start()
    await node.topic("short", config={"retention.ms": "1000"})
    await node.topic("long")
    for name in ("short", "long"):
        await write(node.partition(name), batch(b"a"))
    node.now_ms += 1000
    await node.topics.retain(nobody_knows)
    assert [node.partition(name).start_offset for name in ("short", "long")] == [1, 0]
    node.now_ms += 8 * DAY_MS
    await node.topics.retain(nobody_knows)
    assert node.partition("long").start_offset == 1


async def test_retention_forgets_idle_producers_for_good() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a", producer=(5, 0, 3)))
    await partition.retention.delete_before(1)
    node.now_ms += DAY_MS
    await node.topics.retain(nobody_knows)
    assert list(partition.state.producers) == []
    await node.restart()
    assert list(node.partition().state.producers) == []


async def test_how_long_producers_are_known_can_change_while_the_node_runs() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a", producer=(5, 0, 3)))
    await partition.retention.delete_before(1)
    shorter = replace(node.settings, producer_id_expiration_ms=60_000)
    await node.topics.configure_node("", {"producer.id.expiration.ms": "60000"}, shorter)
    node.now_ms += 59_999
    await node.topics.retain(nobody_knows)
    assert [known for known, _ in partition.state.producers] == [5]
    node.now_ms += 1
    await node.topics.retain(nobody_knows)
    assert list(partition.state.producers) == []


async def test_copy_mode_and_reference_mode_store_the_same_records() -> None:
    node = await Node().start()
    partition = await node.topic()
    values = [b"%03d" % number + bytes(90_000 + 1000 * number) for number in range(90)]
    await write(partition, *(batch(value) for value in values))
    assert len(partition.state.bodies) == 1
    await node.restart()
    assert await read_all(node.partition()) == list(enumerate(values))


async def test_new_data_joined_by_reference_to_a_cold_blob_leaves_the_old_part_to_load() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"old" + bytes(70_000)))
    await node.restart()
    partition = node.partition()
    await write(partition, batch(b"new" + bytes(70_000)))
    assert len(partition.state.head.blobs) == 1
    assert await read_all(partition) == [(0, b"old" + bytes(70_000)), (1, b"new" + bytes(70_000))]


@pytest.mark.spec("A.7", "H4", "K.1")
async def test_the_count_of_producers_holds_after_each_write_and_evictions_are_counted() -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.producer.ids.max": "3"})
    for producer_id in range(6):
        await write(partition, batch(b"a", producer=(producer_id, 0, 0)))
    assert [producer_id for producer_id, _ in partition.state.producers] == [3, 4, 5]
    assert partition.state.producers.evicted == 3
    assert (await write(partition, batch(b"a", producer=(4, 0, 0))))[0].base_offset == 4
    await node.restart()
    assert [producer_id for producer_id, _ in node.partition().state.producers] == [3, 4, 5]


@pytest.mark.spec("A.11")
@pytest.mark.parametrize("kept_ms", [-1, 1])
async def test_many_blobs_go_in_several_cycles(monkeypatch: pytest.MonkeyPatch, kept_ms: int) -> None:
    for module in ("trim_cycles", "retention"):
        monkeypatch.setattr(f"pqbroker.pq.log.{module}.TRIMMED_BLOBS_MAX", 3)
    node = await Node().start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "20000", "retention.ms": str(kept_ms)})
    await write(partition, *[batch(bytes(30_000)) for _ in range(8)], batch(b"head"))
    assert len(partition.state.bodies) == 8
    cycles = partition.writer.counters.cycles
    if kept_ms < 0:
        assert await partition.retention.delete_before(8) == 8
    else:
        node.now_ms += kept_ms
        await partition.retention.retain()
        assert partition.start_offset == 9
    assert partition.writer.counters.cycles - cycles == 3
    check_invariants(partition.state)
    await check_store(node, partition)


async def test_a_trim_to_where_a_blob_begins_leaves_nothing_of_those_before_it() -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.low.watermark.bytes": "20000"})
    await write(partition, *[batch(bytes(size)) for size in (30_000, 30_000, 30_000, 3_000, 3_000, 3_000)])
    assert (len(partition.state.bodies), len(partition.state.head.blobs)) == (3, 3)
    for offset in range(1, 7):
        assert await partition.retention.delete_before(offset) == offset
        check_invariants(partition.state)
        await check_store(node, partition)
