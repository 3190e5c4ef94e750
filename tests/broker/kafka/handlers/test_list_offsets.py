import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.conftest import Node, until
from tests.broker.wire import Client

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


async def ask(
    client: Client, time: int, version: int = 11, index: int = 0, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch)
    response = await client.ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]), version
    )
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.mark.spec("4.28")
@pytest.mark.parametrize("version", range(1, 12))
async def test_the_ends_are_returned_in_every_version(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    latest, earliest = await ask(client, LATEST, version), await ask(client, EARLIEST, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 3, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)


@pytest.mark.spec("4.28")
async def test_a_time_gives_the_first_record_at_or_after_it(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b", timestamp_ms=1_000, codec=1)
    await node.produce("t", b"c", b"d", timestamp_ms=2_000)
    found = [(await ask(client, time)) for time in (0, 1_001, 1_002, 2_001)]
    assert [(each.offset, each.timestamp) for each in found] == [(0, 1_000), (1, 1_001), (2, 2_000), (3, 2_001)]
    none = await ask(client, 2_002)
    assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)


@pytest.mark.spec("4.28")
async def test_the_greatest_timestamp_is_found(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", timestamp_ms=9_000)
    await node.produce("t", b"b", timestamp_ms=1_000)
    greatest = await ask(client, MAX_TIMESTAMP)
    assert (greatest.offset, greatest.timestamp) == (0, 9_000)


async def test_without_tiers_the_local_start_is_the_start_and_nothing_is_tiered(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a")
    assert (await ask(client, EARLIEST_LOCAL)).offset == 0
    for time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer = await ask(client, time)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("time", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 11)],
)
async def test_a_time_the_version_does_not_know_is_refused(
    node: Node, client: Client, time: int, version: int
) -> None:
    await node.create_topic("t")
    assert (await ask(client, time, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_unknown_topics_and_partitions_are_refused(node: Node, client: Client) -> None:
    assert (await ask(client, LATEST)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await node.create_topic("t")
    assert (await ask(client, LATEST, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_each_offset_has_the_epoch_it_was_written_in(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a")
    first = (await ask(client, LATEST)).leader_epoch
    groups = node.server.node.cell.current.topics
    node.engine.crash()
    await until(lambda: node.server.node.cell.current.topics is not groups)
    assert (await node.produce("t", b"b", timestamp_ms=1_700_000_001_000)).error_code == 0
    epochs = [
        (await ask(client, time)).leader_epoch for time in (EARLIEST, EARLIEST_LOCAL, 0, MAX_TIMESTAMP, LATEST)
    ]
    assert epochs == [first, first, first, first + 1, first + 1]
    assert (await ask(client, LATEST_TIERED)).leader_epoch == -1


async def test_the_leader_epoch_is_checked(node: Node, client: Client) -> None:
    await node.create_topic("t")
    epoch = (await ask(client, LATEST)).leader_epoch
    assert (await ask(client, LATEST, epoch=epoch)).error_code == 0
    assert (await ask(client, LATEST, epoch=epoch - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(client, LATEST, epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
