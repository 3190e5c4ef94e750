"""DescribeTopicPartitions."""

from collections.abc import Awaitable, Callable

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.conftest import Node
from tests.broker.wire import Client


async def describe(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    response: DescribeTopicPartitionsResponse = await client.ask(request)
    return response


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def cursor(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    found = response.next_cursor
    return (found.topic_name, found.partition_index) if found else None


@pytest.mark.spec("1.4.5")
async def test_a_topic_is_described_with_lists_that_are_empty_and_not_null(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t", partitions=2)
    response = await describe(client, "t")
    (topic,) = response.topics
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, topic_id, False)
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id, partition.leader_epoch >= 0) == (0, 1, True)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert partition.offline_replicas == []
    assert response.next_cursor is None


async def test_topics_come_in_the_order_of_their_names(node: Node, client: Client) -> None:
    for name in ("b", "a", "c"):
        await node.create_topic(name)
    assert shown(await describe(client)) == [("a", [0]), ("b", [0]), ("c", [0])]
    assert shown(await describe(client, "c", "a", "c")) == [("a", [0]), ("c", [0])]


async def test_pages_follow_one_another_without_gap_or_repeat(node: Node, client: Client) -> None:
    for name, count in (("a", 2), ("b", 3), ("c", 1)):
        await node.create_topic(name, partitions=count)
    seen: list[tuple[str | None, int]] = []
    at: tuple[str, int] | None = None
    pages = 0
    while pages == 0 or at is not None:
        response = await describe(client, limit=2, cursor=at)
        page = [(name, index) for name, indexes in shown(response) for index in indexes]
        assert len(page) == 2
        seen += page
        at = cursor(response)
        pages += 1
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == 3


async def test_the_cursor_stands_at_the_next_topic_when_a_page_is_just_full(node: Node, client: Client) -> None:
    for name in ("a", "b"):
        await node.create_topic(name, partitions=2)
    assert cursor(await describe(client, limit=2)) == ("b", 0)
    assert cursor(await describe(client, limit=3)) == ("b", 1)
    assert cursor(await describe(client, limit=4)) is None


async def test_a_limit_below_one_gives_one_partition(node: Node, client: Client) -> None:
    await node.create_topic("a", partitions=2)
    response = await describe(client, limit=0)
    assert (shown(response), cursor(response)) == ([("a", [0])], ("a", 1))


async def test_the_nodes_limit_holds_too(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(describe_partitions_max=2)
    await node.create_topic("a", partitions=5)
    response = await describe(await node.connect(), limit=4)
    assert (shown(response), cursor(response)) == ([("a", [0, 1])], ("a", 2))


async def test_a_cursor_at_what_is_gone_goes_on_behind_it(node: Node, client: Client) -> None:
    await node.create_topic("a", partitions=2)
    await node.create_topic("c")
    assert shown(await describe(client, cursor=("b", 7))) == [("c", [0])]
    response = await describe(client, cursor=("a", 5))
    assert shown(response) == [("a", []), ("c", [0])]


async def test_topics_that_are_not_there_have_an_error(node: Node, client: Client) -> None:
    await node.create_topic("a")
    response = await describe(client, "a", "b", "c d")
    codes = [(topic.name, topic.error_code) for topic in response.topics]
    assert codes == [
        ("a", 0),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("c d", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_a_negative_cursor_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("a")
    response = await describe(client, "a", cursor=("a", -1))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_a_cursor_at_a_topic_that_is_not_named_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("a")
    await node.create_topic("c")
    for name in ("", "b", "d"):
        response = await describe(client, "a", "c", cursor=(name, 0))
        codes = [(topic.name, topic.error_code, topic.partitions) for topic in response.topics]
        assert codes == [("a", ErrorCode.INVALID_REQUEST, []), ("c", ErrorCode.INVALID_REQUEST, [])]
    response = await describe(client, "a", "missing", cursor=("missing", 0))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
