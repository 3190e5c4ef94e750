"""CreateTopics, DeleteTopics and CreatePartitions."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pqbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.storage.tablets.scheme import Scheme
from tests.broker.conftest import Node
from tests.broker.wire import Client

TIERED = CreatableTopicConfig(name="remote.storage.enable", value="true")


def creatable(name: str = "t", partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def assigned(*indexes: int, broker: int = 1) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[broker]) for index in indexes]
    return creatable(partitions=-1, factor=-1, assignments=assignments)


async def create(client: Client, *topics: CreatableTopic, version: int = 7, only: bool = False) -> CreatableTopicResult:
    response = await client.ask(CreateTopicsRequest(topics=list(topics), validate_only=only), version)
    result: CreatableTopicResult = response.topics[0]
    return result


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_in_every_version(node: Node, client: Client, version: int) -> None:
    result = await create(client, creatable(partitions=3), version=version)
    assert result.error_code == 0
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert len(topic.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        sources = {config.name: config.config_source for config in result.configs or []}
        assert sources["retention.ms"] == 5
    if version >= 7:
        assert result.topic_id == topic.record.topic_id


@pytest.mark.spec("G.4")
async def test_configs_are_stored_and_shown_with_their_source(node: Node, client: Client) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="60000")]
    result = await create(client, creatable(configs=configs))
    shown = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert shown["retention.ms"] == ("60000", 1)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.config.retention_ms == 60_000


async def test_counts_of_minus_1_are_the_brokers_defaults(client: Client) -> None:
    result = await create(client, creatable(partitions=-1, factor=-1))
    assert (result.error_code, result.num_partitions) == (0, 1)


async def test_an_assignment_to_this_broker_is_taken(client: Client) -> None:
    result = await create(client, assigned(1, 0))
    assert (result.error_code, result.num_partitions) == (0, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (creatable("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (creatable(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (creatable(partitions=2_000_000_000), ErrorCode.INVALID_PARTITIONS),
        (creatable(factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(configs=[CreatableTopicConfig(name="no.such", value="1")]), ErrorCode.INVALID_CONFIG),
        (creatable(configs=[CreatableTopicConfig(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (creatable(configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (creatable(configs=[TIERED]), ErrorCode.INVALID_CONFIG),
        (creatable("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (assigned(1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned(0, broker=9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("only", [True, False])
async def test_what_cannot_be_is_refused_with_a_text(
    node: Node, client: Client, topic: CreatableTopic, code: ErrorCode, only: bool
) -> None:
    result = await create(client, topic, only=only)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []
    assert not list(node.server.node.cell.current.topics.names())


async def test_an_assignment_beside_a_count_is_refused(client: Client) -> None:
    topic = assigned(0)
    topic.num_partitions = 1
    assert (await create(client, topic)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_name_that_exists_or_comes_twice_is_refused(node: Node, client: Client) -> None:
    assert (await create(client, creatable(), creatable())).error_code == ErrorCode.INVALID_REQUEST
    assert (await create(client, creatable())).error_code == 0
    assert (await create(client, creatable())).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("only", [True, False])
@pytest.mark.parametrize(
    "topic",
    [creatable(factor=3), assigned(5), creatable(configs=[CreatableTopicConfig(name="retention.ms", value=None)])],
)
async def test_a_topic_that_exists_is_told_so_whatever_else_is_asked(
    client: Client, topic: CreatableTopic, only: bool
) -> None:
    assert (await create(client, creatable())).error_code == 0
    assert (await create(client, topic, only=only)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("only", [True, False])
async def test_a_name_that_differs_in_dots_and_underscores_alone_is_refused(
    node: Node, client: Client, only: bool
) -> None:
    await node.create_topic("a.b_c")
    for name in ("a_b.c", "a.b.c", "a_b_c"):
        result = await create(client, creatable(name), only=only)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "collides with topic a.b_c" in (result.error_message or "")
    assert (await create(client, creatable("a-b-c"))).error_code == 0
    assert (await create(client, creatable("a.b_c"))).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_compacted_topic_is_created_without_a_warning(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for name, policy in (("t", "compact"), ("u", "delete"), ("v", "compact,delete")):
        config = CreatableTopicConfig(name="cleanup.policy", value=policy)
        assert (await create(client, creatable(name, configs=[config]))).error_code == 0
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


async def test_validate_only_creates_nothing(node: Node, client: Client) -> None:
    result = await create(client, creatable(partitions=2), only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, bytes(16))
    assert node.server.node.cell.current.topics.get("t") is None


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_topic_is_deleted_by_name_in_every_version(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    request = DeleteTopicsRequest(topic_names=["t", "u"], topics=[DeleteTopicState(name=name) for name in ("t", "u")])
    response = await client.ask(request, version)
    assert [(each.name, each.error_code) for each in response.responses] == [("t", 0), ("u", 3)]
    assert node.server.node.cell.current.topics.get("t") is None


async def test_a_topic_is_deleted_by_id_and_made_anew_under_another(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    asked = [DeleteTopicState(name=None, topic_id=each) for each in (topic_id, b"\7" * 16)]
    known, unknown = (await client.ask(DeleteTopicsRequest(topics=asked))).responses
    assert (known.error_code, known.name) == (0, "t")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert await node.create_topic("t") != topic_id


async def test_deleting_by_name_and_id_or_by_neither_is_refused(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    asked = [DeleteTopicState(name="t", topic_id=topic_id), DeleteTopicState()]
    response = await client.ask(DeleteTopicsRequest(topics=asked))
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert node.server.node.cell.current.topics.get("t") is not None


@pytest.mark.parametrize("version", [5, 6])
async def test_a_topic_asked_for_twice_is_not_deleted(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    names = ["t", "t", "u"]
    request = DeleteTopicsRequest(topic_names=names, topics=[DeleteTopicState(name=name) for name in names])
    response = await client.ask(request, version)
    assert [(each.name, each.error_code) for each in response.responses] == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]
    assert list(node.server.node.cell.current.topics.names()) == ["t"]


async def test_a_topic_id_asked_for_twice_is_not_deleted(node: Node, client: Client) -> None:
    asked = DeleteTopicState(name=None, topic_id=await node.create_topic("t"))
    response = await client.ask(DeleteTopicsRequest(topics=[asked, asked]))
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST]
    assert node.server.node.cell.current.topics.get("t") is not None


async def test_a_topic_asked_for_by_name_and_by_id_is_not_deleted(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    asked = [DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic_id)]
    response = await client.ask(DeleteTopicsRequest(topics=asked))
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert node.server.node.cell.current.topics.get("t") is not None


async def test_the_topics_of_a_request_are_deleted_together(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(30)]
    for name in names:
        await node.create_topic(name)
    change, changes = Scheme.change, []

    async def counted(scheme: Scheme, plan: Callable[..., Any]) -> Any:
        changes.append(plan)
        return await change(scheme, plan)

    monkeypatch.setattr(Scheme, "change", counted)
    states = [DeleteTopicState(name=name) for name in (*names, "unknown")]
    response = await client.ask(DeleteTopicsRequest(topics=states))
    assert [each.error_code for each in response.responses] == [0] * 30 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await node.server.node.cell.current.cells.system.reclaimed()
    assert len(changes) == 2, "the names go, then the tombstones"


async def test_a_refused_deletion_deletes_none_of_a_request(node: Node, client: Client) -> None:
    for name in ("t", "u"):
        await node.create_topic(name)
    node.engine.faults.refuse_next()
    states = [DeleteTopicState(name=name) for name in ("t", "u")]
    response = await client.ask(DeleteTopicsRequest(topics=states))
    assert [each.error_code for each in response.responses] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert list(node.server.node.cell.current.topics.names()) == ["t", "u"]
    assert [each.error_code for each in (await client.ask(DeleteTopicsRequest(topics=states))).responses] == [0, 0]
    assert node.server.node.cell.current.topics.partition_count == 0


@pytest.mark.parametrize("version", range(1, 7))
async def test_nothing_is_deleted_where_deletion_is_turned_off(
    start: Callable[..., Awaitable[Node]], version: int
) -> None:
    node = await start(delete_topic_enable=False)
    await node.create_topic("t")
    client = await node.connect()
    names = ["t", "unknown"]
    request = DeleteTopicsRequest(topic_names=names, topics=[DeleteTopicState(name=name) for name in names])
    response = await client.ask(request, version)
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert [(each.name, each.error_code) for each in response.responses] == [(name, code) for name in names]
    assert bool(response.responses[0].error_message) is (version >= 5)
    assert node.server.node.cell.current.topics.get("t") is not None


async def grow(client: Client, count: int, only: bool = False, **fields: Any) -> CreatePartitionsTopicResult:
    topics = [CreatePartitionsTopic(name="t", count=count, assignments=fields.get("assignments"))]
    response = await client.ask(CreatePartitionsRequest(topics=topics, validate_only=only), fields.get("version", 3))
    assert len(response.results) == 1
    result: CreatePartitionsTopicResult = response.results[0]
    return result


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows_and_keeps_its_offsets(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", 3)
    await node.produce("t", b"a", partition=2)
    assert (await grow(client, 5, version=version)).error_code == 0
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert [partition.end_offset for partition in topic.partitions] == [0, 0, 1, 0, 0]
    assert (await node.produce("t", b"b", partition=4)).base_offset == 0


@pytest.mark.parametrize("count", [3, 2, 0, -1, 2_000_000_000])
async def test_a_topic_does_not_shrink_or_stay_or_burst(node: Node, client: Client, count: int) -> None:
    await node.create_topic("t", 3)
    result = await grow(client, count)
    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert result.error_message


async def test_growth_of_an_unknown_topic_is_refused(client: Client) -> None:
    assert (await grow(client, 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_growth_can_be_checked_only_and_assigned_to_this_broker(node: Node, client: Client) -> None:
    await node.create_topic("t", 1)
    assert (await grow(client, 2, only=True)).error_code == 0
    elsewhere = [CreatePartitionsAssignment(broker_ids=[9])]
    assert (await grow(client, 2, assignments=elsewhere)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    here = [CreatePartitionsAssignment(broker_ids=[1])]
    assert (await grow(client, 3, assignments=here)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (await grow(client, 2, assignments=here)).error_code == 0


async def test_a_topic_named_twice_is_not_grown(node: Node, client: Client) -> None:
    await node.create_topic("t", 1)
    topics = [CreatePartitionsTopic(name="t", count=count) for count in (2, 3)]
    response = await client.ask(CreatePartitionsRequest(topics=topics))
    assert [result.error_code for result in response.results] == [ErrorCode.INVALID_REQUEST]
