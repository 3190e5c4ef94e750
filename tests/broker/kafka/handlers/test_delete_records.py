"""DeleteRecords."""

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.conftest import Node, until
from tests.broker.wire import Client


async def delete(
    client: Client, *offsets: tuple[int, int], topic: str = "t", version: int = 2
) -> list[tuple[int, int]]:
    """Error code and low watermark of each (partition, offset) asked."""
    asked = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=asked)])
    answer = (await client.ask(request, version)).topics[0]
    assert answer.name == topic
    assert [each.partition_index for each in answer.partitions] == [index for index, _ in offsets]
    return [(each.error_code, each.low_watermark) for each in answer.partitions]


async def earliest(client: Client, partition: int = 0) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-2)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    offset: int = (await client.ask(request)).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", range(3))
async def test_records_before_an_offset_are_deleted(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", partitions=2)
    await node.produce("t", b"a", b"b", b"c")
    await node.produce("t", b"a", b"b", partition=1)
    assert await delete(client, (0, 2), (1, 1), version=version) == [(0, 2), (0, 1)]
    assert (await earliest(client), await earliest(client, 1)) == (2, 1)


async def test_minus_1_deletes_up_to_the_high_watermark(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    assert await delete(client, (0, -1)) == [(0, 3)]
    assert (await node.produce("t", b"d")).base_offset == 3


async def test_what_is_deleted_already_changes_nothing(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    await delete(client, (0, 2))
    assert await delete(client, (0, 1)) == [(0, 2)]


async def test_the_new_start_is_durable_when_it_is_told(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    await delete(client, (0, 2))
    node.engine.faults.lose_next()
    await node.produce("t", b"lost")
    await until(lambda: node.server.node.metrics.cell_openings == 2)
    assert await earliest(client) == 2


@pytest.mark.parametrize("offset", [4, -2])
async def test_an_offset_that_is_none_is_out_of_range(node: Node, client: Client, offset: int) -> None:
    await node.create_topic("t", partitions=2)
    await node.produce("t", b"a", b"b", b"c")
    assert await delete(client, (0, offset), (1, 0)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1), (0, 0)]


async def test_of_a_partition_named_twice_the_last_offset_counts(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    answer = await client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)]))
    assert [each.low_watermark for each in answer.topics[0].partitions] == [1]
    assert await earliest(client) == 1


async def test_an_unknown_partition_or_topic_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("t")
    assert await delete(client, (1, 0)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert await delete(client, (0, 0), topic="u") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_a_topic_that_only_compacts_keeps_its_records(node: Node, client: Client) -> None:
    await node.create_topic("t", cleanup_policy="compact")
    assert await delete(client, (0, 0)) == [(ErrorCode.POLICY_VIOLATION, -1)]


async def test_a_refused_commit_is_told(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a")
    node.engine.faults.refuse_next()
    assert await delete(client, (0, 1)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert await earliest(client) == 0
