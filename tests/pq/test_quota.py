"""The write quotas as numbers, the limits on what is in flight and on reads (semantics A.8, A.9, A.13, G.5)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.quota import PAUSE_MS_MAX, TokenBucket, write_quota
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.reading.reader import Reader
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.pq.rig import KIB, MIB, Node, batch, read_all, write


def test_a_burst_is_free_and_what_is_owed_is_waited_for() -> None:
    bucket = TokenBucket(1000, 5000, 0)
    assert bucket.take(5000, 0) == 0
    assert bucket.take(1000, 0) == 1001
    assert bucket.take(0, 1000) == 0


def test_no_more_than_a_burst_is_saved_up() -> None:
    bucket = TokenBucket(1000, 5000, 0)
    assert bucket.take(5000, 1_000_000) == 0
    assert bucket.take(500, 1_000_000) == 501


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket = TokenBucket(1000, 1000, 10_000)
    assert bucket.take(1000, 5000) == 0
    assert bucket.take(1000, 6000) == 0


def test_the_pause_is_bounded_and_the_rest_stays_owed() -> None:
    bucket = TokenBucket(1, 1, 0)
    assert bucket.take(1_000_000, 0) == PAUSE_MS_MAX
    assert bucket.take(0, PAUSE_MS_MAX) == PAUSE_MS_MAX


@pytest.mark.spec("A.13", "G.2", "G.5")
@given(st.integers(10_000, 10**9), st.lists(st.integers(1, 10**7), min_size=1, max_size=20))
def test_a_writer_that_pauses_as_told_keeps_to_the_speed(speed: int, sizes: list[int]) -> None:
    bucket = TokenBucket(speed, speed, 0)
    now_ms = 0
    for size in sizes:
        pause_ms = bucket.take(size, now_ms)
        now_ms += pause_ms
        while pause_ms == PAUSE_MS_MAX:
            pause_ms = bucket.take(0, now_ms)
            now_ms += pause_ms
    assert sum(sizes) <= speed + now_ms * speed / 1000


@pytest.mark.spec("A.13", "G.2", "G.5")
def test_a_write_is_held_to_both_quotas_and_the_longer_pause_counts() -> None:
    config = TopicConfig(
        pq_write_speed_bytes=1000, pq_write_burst_bytes=1000, pq_write_speed_messages=10, pq_write_burst_messages=20
    )
    quota = write_quota(config, 0)
    assert quota is not None
    assert quota.take(500, 20, 0) == 0
    assert quota.take(500, 5, 0) == 501, "five records are owed, no bytes"
    assert quota.take(1000, 0, 0) == 1001, "a thousand bytes are owed"
    assert quota.take(0, 0, 1000) == 0


def test_a_quota_on_records_alone_leaves_bytes_alone() -> None:
    quota = write_quota(TopicConfig(pq_write_speed_messages=10), 0)
    assert quota is not None
    assert quota.take(10**12, 10, 0) == 0, "the burst is that of one second"
    assert quota.take(0, 1, 0) == 101


def test_by_default_there_is_no_quota() -> None:
    assert write_quota(TopicConfig(), 0) is None
    assert write_quota(TopicConfig(pq_write_speed_messages=-1), 0) is None


async def test_a_topic_without_a_quota_pauses_nobody_and_gets_one_by_its_config() -> None:
    node = await Node().start()
    partition = await node.topic()
    assert partition.throttle_ms(100 * MIB, 10**9) == 0
    await node.topics.reconfigure("t", lambda _: {"pq.write.speed.bytes": "1000", "pq.write.burst.bytes": "4000"})
    assert partition.throttle_ms(4000, 1) == 0
    assert partition.throttle_ms(1000, 1) == 1001
    await node.topics.reconfigure("t", lambda _: {"pq.write.speed.bytes": "1000"})
    assert partition.throttle_ms(1000, 1) == 0
    assert partition.throttle_ms(2000, 1) == 2001
    await node.topics.reconfigure("t", lambda _: {"pq.write.speed.messages": "10"})
    assert partition.throttle_ms(100 * MIB, 10) == 0
    assert partition.throttle_ms(100 * MIB, 1) == 101
    await node.topics.reconfigure("t", lambda _: {})
    assert partition.throttle_ms(100 * MIB, 10**9) == 0


@pytest.mark.spec("A.8", "G.2")
async def test_above_the_border_writers_pause_and_above_the_limit_they_come_back() -> None:
    node = await Node(write_queue_bytes_max=3 * MIB, write_border_bytes=MIB).start()
    partition = await node.topic()
    node.engine.faults.hold()
    futures = [partition.write(*batch(size=MIB))]
    assert partition.throttle_ms(MIB, 1) == 0
    futures += [partition.write(*batch(size=MIB)) for _ in range(2)]
    assert partition.throttle_ms(MIB, 1) > 0
    with pytest.raises(KafkaError) as refused:
        await partition.write(*batch(size=KIB))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    node.engine.faults.release()
    assert [(await future).base_offset for future in futures] == [0, 1, 2]
    assert partition.throttle_ms(MIB, 1) == 0
    assert partition.writer.queue.bytes == 0


@pytest.mark.spec("A.9", "K.1")
async def test_reads_from_the_store_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node(partition_reads_max=2, cache_bytes=0).start()
    partition = await node.topic()
    values = [b"%d" % number + bytes(MIB) for number in range(7)]
    await write(partition, *(batch(value) for value in values))
    await node.restart()
    partition = node.partition()
    reading, worst = 0, 0
    load = Reader._load

    async def counted(reader: Reader, query: ReadQuery) -> Batches:
        nonlocal reading, worst
        reading += 1
        worst = max(worst, reading)
        try:
            return await load(reader, query)
        finally:
            reading -= 1

    monkeypatch.setattr(Reader, "_load", counted)
    found = await asyncio.gather(*(read_all(partition, offset) for offset in range(6)))
    assert [len(items) for items in found] == [7, 6, 5, 4, 3, 2]
    assert worst == 2
