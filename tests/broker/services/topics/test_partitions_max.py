"""The limit on partitions of all topics together refuses growth, whatever asks for it, and nothing else."""

from collections.abc import Awaitable, Callable

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import Node
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


def creation(name: str, partitions: int, *, only: bool = False) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], validate_only=only)


async def test_a_topic_that_would_be_too_many_partitions_is_refused(start: Start) -> None:
    node = await start(partitions_max=3)
    await node.create_topic("t", partitions=2)
    client = await node.connect()
    for only in (True, False):
        refused = (await client.ask(creation("u", 2, only=only))).topics[0]
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert refused.error_message == (
            "2 more partitions are too many: this broker has 2 of at most 3; delete topics, or raise "
            "pqbroker.partitions.max"
        )
    assert (await client.ask(creation("u", 1))).topics[0].error_code == 0


async def test_a_topic_that_would_grow_too_far_is_refused(start: Start) -> None:
    node = await start(partitions_max=3)
    await node.create_topic("t", partitions=2)
    client = await node.connect()

    async def grow(count: int) -> int:
        topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
        code: int = (await client.ask(CreatePartitionsRequest(topics=[topic]))).results[0].error_code
        return code

    assert [await grow(count) for count in (4, 3)] == [ErrorCode.POLICY_VIOLATION, 0]


async def test_a_topic_that_metadata_would_create_is_refused_for_good(start: Start) -> None:
    node = await start(partitions_max=1)
    client = await node.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("a", "b")])
    codes = [topic.error_code for topic in (await client.ask(request)).topics]
    assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_what_is_deleted_makes_room(start: Start) -> None:
    node = await start(partitions_max=2)
    await node.create_topic("t", partitions=2)
    client = await node.connect()
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert (await client.ask(creation("u", 2))).topics[0].error_code == 0


async def test_a_directory_with_more_is_served(start: Start) -> None:
    node = await start()
    await node.create_topic("t", partitions=3)
    await node.server.stop()
    again = Server(BrokerSettings(partitions_max=1), node.engine, Address("127.0.0.1", 0), None, node.clock)
    await again.start()
    client = await Client.connect("127.0.0.1", again.kafka_address.port)
    metadata = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert len(metadata.topics[0].partitions) == 3
    assert (await client.ask(creation("u", 1))).topics[0].error_code == ErrorCode.POLICY_VIOLATION
    await client.close()
    await again.stop()
