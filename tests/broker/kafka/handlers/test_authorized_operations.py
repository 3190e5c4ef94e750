"""Who asks what it may do is told Kafka's operations on the resource, as Apache Kafka tells without access control.

The numbers are Apache Kafka 4.3.1's.
"""

import pytest

from pqbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pqbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pqbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.schema import INT32_MIN
from tests.broker.conftest import Node
from tests.broker.wire import Client

ON_TOPIC, ON_GROUP, ON_CLUSTER = 3576, 3400, 8096
NOT_ASKED = INT32_MIN


@pytest.mark.parametrize("names", [None, ["t", "missing", "made"]])
@pytest.mark.parametrize("version", range(8, 14))
async def test_metadata_has_them_if_asked(node: Node, client: Client, version: int, names: list[str] | None) -> None:
    await node.create_topic("t")
    for is_asked in (True, False):
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=names is not None and is_asked,
            include_topic_authorized_operations=is_asked,
            include_cluster_authorized_operations=is_asked and version <= 10,
        )
        response = await client.ask(request, version)
        told = {topic.topic_authorized_operations for topic in response.topics}
        assert told == {ON_TOPIC if is_asked else NOT_ASKED}
        is_told = is_asked and version <= 10
        assert response.cluster_authorized_operations == (ON_CLUSTER if is_told else NOT_ASKED)


async def test_described_topics_have_them_always(node: Node, client: Client) -> None:
    await node.create_topic("t")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t"), TopicRequest(name="missing")])
    told = (await client.ask(request)).topics
    assert [topic.topic_authorized_operations for topic in told] == [ON_TOPIC, ON_TOPIC]


@pytest.mark.parametrize("version", range(3, 7))
async def test_groups_have_them_if_asked_and_without_an_error(node: Node, client: Client, version: int) -> None:
    for is_asked in (True, False):
        request = DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=is_asked)
        (group,) = (await client.ask(request, version)).groups
        is_told = is_asked and version < 6  # from then on an unknown group is an error
        assert group.authorized_operations == (ON_GROUP if is_told else NOT_ASKED)


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_has_them_if_asked(client: Client, version: int) -> None:
    for is_asked in (True, False):
        request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
        told = (await client.ask(request, version)).cluster_authorized_operations
        assert told == (ON_CLUSTER if is_asked else NOT_ASKED)
