"""Time that a partition counts: with batches that wait, with a full write buffer, of pauses (semantics A.8, A.13)."""

import asyncio

import pytest
import uvloop

from pqbroker.pq.counters import Stopwatch
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from tests.pq.rig import MIB, Node, batch, write


def test_a_stopwatch_adds_up_stretches_and_tells_of_the_one_that_runs() -> None:
    watch = Stopwatch()
    assert watch.total(5.0) == 0
    watch.start(10.0)
    watch.start(12.0)
    assert (watch.is_running, watch.total(13.0)) == (True, 3.0)
    watch.stop(14.0)
    assert (watch.is_running, watch.total(99.0)) == (False, 4.0)
    watch.stop(100.0)
    watch.start(200.0)
    assert watch.total(201.0) == 5.0


def times(partition: PartitionServer) -> tuple[float, float]:
    """Seconds with batches that waited, seconds with a full buffer."""
    now = asyncio.get_running_loop().time()
    return partition.writer.counters.waiting.total(now), partition.writer.counters.full.total(now)


@pytest.mark.spec("A.8", "G.8")
async def test_time_is_counted_while_batches_wait_and_while_the_buffer_is_full() -> None:
    node = await Node(write_border_bytes=3 * MIB).start()
    partition = await node.topic()
    begun = asyncio.get_running_loop().time()
    node.engine.faults.hold()
    futures = [partition.write(*batch(size=MIB))]
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    assert times(partition) == (0, 0), "the only batch is in its cycle"
    futures.append(partition.write(*batch(size=MIB)))
    waited, full = times(partition)
    assert (waited > 0, full) == (True, 0)
    futures += [partition.write(*batch(size=MIB)) for _ in range(2)]
    assert partition.writer.queue.in_flight_bytes == pytest.approx(4 * MIB, rel=0.01)
    waited_longer, full = times(partition)
    assert waited_longer > waited
    assert full > 0
    node.engine.faults.release()
    await asyncio.gather(*futures)
    ended = times(partition)
    assert times(partition) == ended, "nothing waits, nothing is in flight"
    assert full < ended[1] < ended[0] < asyncio.get_running_loop().time() - begun
    assert partition.writer.queue.in_flight_bytes == 0


async def test_what_one_cycle_leaves_over_waits_on() -> None:
    node = await Node(write_cycle_bytes_max=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    first, *others = [partition.write(*batch(size=MIB)) for _ in range(3)]
    node.engine.faults.release()
    await first
    assert len(partition.writer.queue) == 1
    waited = times(partition)[0]
    assert times(partition)[0] > waited
    await asyncio.gather(*others)
    assert times(partition)[0] == times(partition)[0]


async def test_batches_wait_while_the_head_is_loaded() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(size=100_000))
    await node.restart()
    partition = node.partition()
    future = partition.write(*batch(size=7 * MIB))
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    assert times(partition)[0] > 0
    await future
    assert times(partition)[0] == times(partition)[0]


async def test_nothing_waits_when_all_that_is_queued_has_failed() -> None:
    node = await Node(write_border_bytes=MIB).start()
    partition = await node.topic()
    node.engine.faults.refuse_next()
    futures = [partition.write(*batch(size=MIB)) for _ in range(3)]
    await asyncio.gather(*futures, return_exceptions=True)
    ended = times(partition)
    assert times(partition) == ended
    assert partition.throttle_ms(0, 0) == 0


async def test_a_lost_partition_asks_nobody_to_pause() -> None:
    node = await Node(write_border_bytes=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    futures = [partition.write(*batch(size=MIB))]
    await asyncio.sleep(0)  # a cycle is planned at the end of the turn
    futures += [partition.write(*batch(size=MIB)) for _ in range(2)]
    assert partition.throttle_ms(0, 0) > 0
    await node.stop()
    assert partition.throttle_ms(0, 0) == 0
    ended = times(partition)
    assert times(partition) == ended
    node.engine.faults.release()
    failed = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(failure, KafkaError) for failure in failed[1:])


def test_cycles_are_measured_finer_than_the_loop_tells_the_time() -> None:
    async def cycles_s() -> float:
        node = await Node().start()
        partition = await node.topic()
        await write(partition, *(batch(b"a") for _ in range(5)))
        return node.topics.memory.cycles.total

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        milliseconds = 1000 * runner.run(cycles_s())
    assert milliseconds != pytest.approx(round(milliseconds), abs=1e-6)


async def test_pauses_that_quotas_ask_for_add_up() -> None:
    node = await Node().start()
    partition = await node.topic(config={"pq.write.speed.bytes": "1000"})
    told = [partition.throttle_ms(size, 1) for size in (1000, 500, 500)]
    assert told == [0, 501, 1001]
    assert partition.writer.counters.quota_wait_ms == 1502
