from collections.abc import Awaitable, Callable

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.conftest import Node
from tests.broker.wire import Client


async def ask(client: Client, *names: str, version: int = 13, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    response: MetadataResponse = await client.ask(
        MetadataRequest(topics=topics, allow_auto_topic_creation=create), version
    )
    return response


@pytest.mark.parametrize("version", range(14))
async def test_every_version_describes_a_topic(node: Node, client: Client, version: int) -> None:
    topic_id = await node.create_topic("t", 3)
    response = await ask(client, "t", version=version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [
        (1, "127.0.0.1", node.server.kafka_address.port)
    ]
    topic = response.topics[0]
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    assert all((each.leader_id, each.replica_nodes, each.isr_nodes) == (1, [1], [1]) for each in topic.partitions)
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert len(response.cluster_id or "") == 22
    if version >= 7:
        assert topic.partitions[0].leader_epoch >= 0


async def test_no_list_means_all_topics_and_an_empty_one_none_but_in_version_0(node: Node, client: Client) -> None:
    await node.create_topic("a")
    await node.create_topic("b")
    assert [topic.name for topic in (await client.ask(MetadataRequest(topics=None))).topics] == ["a", "b"]
    assert (await ask(client)).topics == []
    assert len((await ask(client, version=0)).topics) == 2


async def test_a_topic_is_found_by_id(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    asked = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, b"\7" * 16)]
    known, unknown = (await client.ask(MetadataRequest(topics=asked), 12)).topics
    assert (known.error_code, known.name) == (0, "t")
    assert (unknown.error_code, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"\7" * 16)


async def test_ids_are_refused_below_version_12(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    asked = [MetadataRequestTopic(topic_id=topic_id, name="t")]
    response = await client.ask(MetadataRequest(topics=asked), 11)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(10, 14))
@pytest.mark.parametrize("topic_id", [bytes(16), b"\7" * 16])
async def test_a_topic_without_a_name_is_answered_in_every_version(
    client: Client, version: int, topic_id: bytes
) -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=topic_id)]
    (topic,) = (await client.ask(MetadataRequest(topics=asked), version)).topics
    is_unknown = version >= 12 and topic_id != bytes(16)
    assert topic.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else ErrorCode.INVALID_REQUEST)
    assert topic.name == (None if version >= 12 else "")


async def test_an_unknown_topic_is_created_when_asked_to(node: Node, client: Client) -> None:
    assert (await ask(client, "t")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = (await ask(client, "t", create=True)).topics[0]
    assert (created.error_code, len(created.partitions)) == (0, 1)
    assert (await ask(client, "t")).topics[0].topic_id == created.topic_id


async def test_versions_below_4_always_create(node: Node, client: Client) -> None:
    assert (await ask(client, "t", version=3)).topics[0].error_code == 0


async def test_nothing_is_created_when_the_broker_may_not(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(auto_create_topics_enable=False)
    client = await node.connect()
    response = await ask(client, "t", create=True)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.ask(MetadataRequest(topics=None))).topics == []


async def test_two_clients_creating_one_topic_see_the_same(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(num_partitions=4)
    clients = [await node.connect() for _ in range(3)]
    for client in clients:
        client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    answers = [(await client.receive()).topics[0] for client in clients]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert len({answer.topic_id for answer in answers}) == 1
    assert len(answers[0].partitions) == 4


async def test_one_name_given_twice_is_created_and_answered_once(client: Client) -> None:
    assert [topic.error_code for topic in (await ask(client, "t", "t", create=True)).topics] == [0]


async def test_a_topic_that_cannot_be_stored_is_told_alone(node: Node, client: Client) -> None:
    await node.create_topic("t")
    node.engine.faults.refuse_next()
    response = await ask(client, "t", "u", create=True)
    assert [topic.error_code for topic in response.topics] == [0, ErrorCode.KAFKA_STORAGE_ERROR]


async def test_the_topics_of_a_request_are_created_together(node: Node, client: Client) -> None:
    cell = node.server.node.cell.current.cells.system.cell
    before = cell.stats().commits
    await ask(client, "one", create=True)
    of_one = cell.stats().commits - before
    answer = await ask(client, "one", *(f"t{number}" for number in range(30)), create=True)
    assert [topic.error_code for topic in answer.topics] == [0] * 31
    assert cell.stats().commits == before + 2 * of_one


async def test_of_names_that_collide_in_one_request_the_first_is_created(client: Client) -> None:
    answer = await ask(client, "a.b", "a_b", "c", create=True)
    assert [topic.error_code for topic in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


async def test_a_name_that_no_topic_may_have_is_told(client: Client) -> None:
    response = await ask(client, "a/b", create=True)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_advertised_address_is_told(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(advertised_listeners="PLAINTEXT://broker.example:19092")
    response = await ask(await node.connect())
    assert (response.brokers[0].host, response.brokers[0].port) == ("broker.example", 19092)


async def test_an_advertised_host_may_have_the_id_of_each_node(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(node_id=7, advertised_listeners="PLAINTEXT://node-{node}.example:19092")
    response = await ask(await node.connect())
    assert (response.brokers[0].host, response.brokers[0].port) == ("node-7.example", 19092)


async def test_an_advertised_port_may_be_the_one_that_the_listener_has(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(advertised_listeners="PLAINTEXT://broker.example:{port}")
    response = await ask(await node.connect())
    (listener,) = node.server.listeners
    assert listener.address.port > 0
    assert (response.brokers[0].host, response.brokers[0].port) == ("broker.example", listener.address.port)
