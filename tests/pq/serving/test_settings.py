"""A partition has one idea of its settings: what is changed while it runs holds at the next write cycle."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import KIB, MIB, START_MS, Node, batch, write

Change = Callable[[PartitionServer], Awaitable[object]]


async def refusal(partition: PartitionServer, *values: bytes) -> str:
    """What a batch is refused with; "" when it is stored."""
    try:
        await partition.write(*batch(*values, timestamps=[START_MS - 50] * len(values)))
    except KafkaError as error:
        return error.message
    return ""


async def kept_after_retention(partition: PartitionServer) -> int:
    await write(partition, batch(b"old"))
    await partition.retention.retain()
    return partition.end_offset - partition.start_offset


async def producers_after_retention(partition: PartitionServer) -> int:
    await write(partition, batch(b"a", producer=(5, 0, 0)), batch(b"a", producer=(6, 0, 0)))
    await partition.retention.delete_before(2)
    await partition.retention.retain()
    return len(dict(partition.state.producers))


async def append_time(partition: PartitionServer) -> int:
    (written,) = await write(partition, batch(b"a"))
    return written.log_append_time_ms


async def bodies(partition: PartitionServer) -> int:
    await write(partition, batch(size=200 * KIB))
    return len(partition.state.bodies)


async def pause_ms(partition: PartitionServer) -> bool:
    return partition.throttle_ms(MIB, 1) > 0


@pytest.mark.parametrize(
    ("changed", "seen", "before", "after"),
    [
        ({"retention_ms": 0}, kept_after_retention, 1, 0),
        ({"retention_ms": 0, "cleanup_policy": ("compact",)}, kept_after_retention, 1, 1),
        ({"message_timestamp_type": "LogAppendTime"}, append_time, -1, START_MS),
        ({"pq_low_watermark_bytes": 100 * KIB}, bodies, 0, 1),
        ({"pq_write_speed_bytes": 1, "pq_write_burst_bytes": 1}, pause_ms, False, True),
        ({"pq_write_speed_messages": 1, "pq_write_burst_messages": 0}, pause_ms, False, True),
        ({"pq_producer_ids_max": 1}, producers_after_retention, 2, 1),
    ],
)
async def test_what_a_topic_is_set_to_holds_at_the_next_cycle(
    changed: dict[str, object], seen: Change, before: object, after: object
) -> None:
    for change, expected in (({}, before), (changed, after)):
        partition = await (await Node().start()).topic()
        assert await write(partition, batch(size=0))
        await partition.retention.delete_before(1)
        settings = partition.state.settings
        partition.configure(replace(settings, topic=replace(settings.topic, **change)))  # type: ignore[arg-type]
        assert await seen(partition) == expected


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"message_timestamp_before_max_ms": 10}, "message.timestamp.before.max.ms"),
        ({"message_timestamp_after_max_ms": -100}, "message.timestamp.after.max.ms"),
        ({"pq_max_count_in_partition": 1}, "pq.max.count.in.partition=1"),
        ({"pq_max_size_in_partition": 1}, "pq.max.size.in.partition=1"),
        ({"pq_inactive_partitions": ("0",)}, "pq.inactive.partitions"),
    ],
)
async def test_what_a_topic_refuses_is_refused_at_the_next_cycle(changed: dict[str, object], cause: str) -> None:
    partition = await (await Node().start()).topic()
    assert await refusal(partition, b"a") == ""
    settings = partition.state.settings
    partition.configure(replace(settings, topic=replace(settings.topic, **changed)))  # type: ignore[arg-type]
    assert cause in await refusal(partition, b"a")
    partition.configure(settings)
    assert await refusal(partition, b"a") == ""


async def test_the_code_of_a_full_partition_follows_its_setting() -> None:
    partition = await (await Node().start()).topic(config={"pq.max.count.in.partition": "0"})
    settings = partition.state.settings
    for name in ("POLICY_VIOLATION", "KAFKA_STORAGE_ERROR"):
        partition.configure(replace(settings, topic=replace(settings.topic, pq_partition_full_error=name)))
        with pytest.raises(KafkaError) as full:
            await partition.write(*batch(b"a"))
        assert full.value.code is ErrorCode[name]


async def test_how_long_producers_are_known_follows_the_node() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, batch(b"a", producer=(5, 0, 0)))
    await partition.retention.delete_before(1)
    await partition.retention.retain()
    assert dict(partition.state.producers)
    settings = partition.state.settings
    partition.configure(replace(settings, node=replace(settings.node, producer_id_expiration_ms=1)))
    node.now_ms += settings.topic.pq_producer_id_lifetime_ms + 1
    await partition.retention.retain()
    assert not dict(partition.state.producers)


async def test_the_limits_of_writing_follow_the_node() -> None:
    node = await Node().start()
    partition = await node.topic()
    settings = partition.state.settings
    limits = replace(settings.node, write_cycle_bytes_max=MIB, write_border_bytes=MIB, write_queue_bytes_max=4 * MIB)
    partition.configure(replace(settings, node=limits))
    node.engine.faults.hold()
    written: list[Outcome[object]] = [partition.write(*batch(size=MIB)) for _ in range(5)]  # type: ignore[misc]
    assert partition.throttle_ms(0, 0) > 0
    with pytest.raises(KafkaError) as refused:
        await written.pop()
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    node.engine.faults.release()
    for outcome in written:
        await outcome
    assert partition.writer.counters.cycles == 4
