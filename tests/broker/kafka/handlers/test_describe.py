"""ApiVersions, DescribeCluster, DescribeConfigs, InitProducerId and OffsetForLeaderEpoch."""

from collections.abc import Awaitable, Callable

import pytest

from pqbroker.broker.kafka.served import APIS
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.retention import Hold
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pqbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pqbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.conftest import Node, until
from tests.broker.wire import Client

SOFTWARE = {"client_software_name": "test-client", "client_software_version": "1.0"}
TOPIC, BROKER, LOGGER = 2, 4, 8
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
STRING, CLASS = 2, 8


@pytest.mark.parametrize("version", range(5))
async def test_what_is_advertised_is_what_is_served_and_produce_from_0(client: Client, version: int) -> None:
    response = await client.ask(ApiVersionsRequest(**SOFTWARE), version)
    advertised = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert advertised == {api.key: (0 if api.key == 0 else api.version_min, api.version_max) for api in APIS}
    assert set(advertised) >= {*range(4), *range(8, 17), 18, 19, 20, 22, 23, 32, 37, 42, 47, 60}
    assert ("transaction.version" in [each.name for each in response.finalized_features]) is (version >= 3)


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\n"])
async def test_software_that_has_no_proper_name_is_refused(client: Client, name: str) -> None:
    response = await client.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_this_broker(node: Node, client: Client, version: int) -> None:
    response = await client.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id, len(response.cluster_id)) == (0, 1, 22)
    port = node.server.kafka_address.port
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(1, "127.0.0.1", port)]


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_other_endpoints_are_refused(client: Client, endpoint: int, code: ErrorCode) -> None:
    response = await client.ask(DescribeClusterRequest(endpoint_type=endpoint))
    assert (response.error_code, response.brokers) == (code, [])


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    response = await client.ask(request, version)
    result: DescribeConfigsResult = response.results[0]
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_config_of_a_topic_is_described(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", retention_ms="60000")
    result = await describe(client, TOPIC, "t", version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    configs = {config.name: config for config in result.configs}
    assert configs.keys() == declarations(TopicConfig).keys()
    changed, kept = configs["retention.ms"], configs["max.message.bytes"]
    assert (changed.value, changed.config_source, changed.read_only) == ("60000", DYNAMIC_TOPIC, False)
    assert [(each.name, each.value, each.source) for each in changed.synonyms] == [
        ("retention.ms", "60000", DYNAMIC_TOPIC)
    ]
    assert (kept.value, kept.config_source) == ("1048588", DEFAULT)
    if version >= 3:
        assert all(config.documentation and config.config_type for config in result.configs)


async def test_min_insync_replicas_that_is_set_is_shown_set(node: Node, client: Client) -> None:
    """There is one replica, whatever it says: tools compare what they set."""
    await node.create_topic("t", min_insync_replicas="2")
    (config,) = (await describe(client, TOPIC, "t", ["min.insync.replicas"])).configs
    assert (config.value, config.config_source) == ("2", DYNAMIC_TOPIC)


async def test_retention_bytes_of_minus_2_are_taken_as_no_limit(node: Node, client: Client) -> None:
    await node.create_topic("t", retention_bytes="-2", retention_ms="-1")
    (config,) = (await describe(client, TOPIC, "t", ["retention.bytes"])).configs
    assert (config.value, config.config_source) == ("-2", DYNAMIC_TOPIC)
    assert (await node.produce("t", b"v" * 1000)).error_code == 0
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.partitions[0].retention.why_held().hold is Hold.UNLIMITED


@pytest.mark.parametrize(
    ("config", "value"),
    [("min_insync_replicas", "0"), ("segment_bytes", "x"), ("min_cleanable_dirty_ratio", "2"), ("preallocate", "yes")],
)
async def test_values_of_configs_without_effect_are_checked(client: Client, config: str, value: str) -> None:
    name = config.replace("_", ".")
    asked = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, configs=[CreatableTopicConfig(name=name, value=value)]
    )
    (created,) = (await client.ask(CreateTopicsRequest(topics=[asked]))).topics
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert name in (created.error_message or "")


async def test_a_nodes_default_for_topics_holds_and_is_named(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(message_max_bytes=3000)
    await node.create_topic("t")
    config = (await describe(await node.connect(), TOPIC, "t", ["max.message.bytes"])).configs[0]
    assert (config.value, config.config_source) == ("3000", STATIC_BROKER)
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("message.max.bytes", "3000", STATIC_BROKER),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert (await node.produce("t", b"x" * 4000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_nodes_setting_in_another_unit_is_told_in_both(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(log_retention_minutes=2, log_roll_hours=1)
    await node.create_topic("t")
    retention, segment = (await describe(await node.connect(), TOPIC, "t", ["retention.ms", "segment.ms"])).configs
    assert (retention.value, retention.config_source) == ("120000", STATIC_BROKER)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("log.retention.minutes", "2", STATIC_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert (segment.value, segment.config_source) == ("3600000", STATIC_BROKER)


async def test_what_is_not_set_is_null(client: Client) -> None:
    configs = (await describe(client, BROKER, "1", ["broker.rack", "client.quota.callback.class"])).configs
    assert [(config.value, config.config_source, config.synonyms) for config in configs] == [(None, DEFAULT, [])] * 2
    assert {config.name: config.config_type for config in configs} == {
        "broker.rack": STRING,
        "client.quota.callback.class": CLASS,
    }


async def test_a_config_that_is_fixed_at_creation_is_read_only(node: Node, client: Client) -> None:
    await node.create_topic("t")
    configs = (await describe(client, TOPIC, "t")).configs
    assert [config.name for config in configs if config.read_only] == ["pq.bundle", "pq.partitions.per.tablet"]


async def test_only_the_keys_asked_for_are_described(node: Node, client: Client) -> None:
    await node.create_topic("t")
    result = await describe(client, TOPIC, "t", ["retention.ms", "no.such"])
    assert [config.name for config in result.configs] == ["retention.ms"]


async def test_every_setting_of_the_broker_is_described(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(num_partitions=4)
    result = await describe(await node.connect(), BROKER, "1")
    configs = {config.name: config for config in result.configs}
    assert configs.keys() == declarations(BrokerSettings).keys()
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("4", STATIC_BROKER)
    assert configs["node.id"].config_source == DEFAULT


async def test_the_default_broker_has_no_dynamic_settings(client: Client) -> None:
    result = await describe(client, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_are_not_there_are_refused(client: Client, kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(client, kind, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_all_different(client: Client, version: int) -> None:
    responses = [await client.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in responses] == [(0, 0)] * 3
    assert len({each.producer_id for each in responses}) == 3


async def test_an_idempotent_producer_that_bumps_its_epoch_gets_a_new_id(client: Client) -> None:
    first = await client.ask(InitProducerIdRequest(transactional_id=None))
    request = InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=0)
    assert (await client.ask(request)).producer_id != first.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 0)])
async def test_a_producer_id_without_its_epoch_is_refused(client: Client, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    assert (await client.ask(request)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(7))
async def test_every_coordinator_is_this_node(
    node: Node, client: Client, version: int
) -> None:
    port = node.server.kafka_address.port
    expected = (0, 1, "127.0.0.1", port)
    for kind in (0, 1)[: 1 if version == 0 else 2]:
        request = FindCoordinatorRequest(key="x", key_type=kind, coordinator_keys=["x", "y"])
        response = await client.ask(request, version)
        found = response.coordinators if version >= 4 else [response]
        assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [expected] * len(found)
        if version >= 4:
            assert [each.key for each in found] == ["x", "y"]


async def test_another_kind_of_coordinator_is_refused(client: Client) -> None:
    response = await client.ask(FindCoordinatorRequest(key_type=7, coordinator_keys=["x"]))
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_who_gets_no_id_for_now_is_told_to_ask_again(node: Node, client: Client) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    node.engine.faults.refuse_next()
    assert (await client.ask(request)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.engine.faults.lose_next()
    assert (await client.ask(request)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups = node.server.node.cell.current.topics
    await until(lambda: node.server.node.cell.current.topics is not groups)
    assert (await client.ask(request)).error_code == 0


async def end_of_epoch(
    client: Client, epoch: int, index: int = 0, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
    topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
    answer = (await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), version)).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_present_epoch_ends_at_the_high_watermark(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t")
    await node.produce("t", b"a", b"b")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    epoch = topic.partitions[0].leader_epoch
    assert await end_of_epoch(client, epoch, version=version) == (0, epoch, 2)
    assert await end_of_epoch(client, epoch - 1, version=version) == (0, epoch - 1, 0)


async def test_epochs_of_unknown_partitions_and_wrong_leaders_are_refused(node: Node, client: Client) -> None:
    assert (await end_of_epoch(client, 1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await node.create_topic("t")
    assert (await end_of_epoch(client, 1, index=4))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await end_of_epoch(client, 1, current=99))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("key", ["pq.source.id.max.counts", "pq.producer.ids.max"])
async def test_a_renamed_config_is_described_by_its_new_name_whichever_is_asked_for(
    node: Node, client: Client, key: str
) -> None:
    await node.create_topic("t", pq_source_id_max_counts="5")
    [config] = (await describe(client, TOPIC, "t", [key])).configs
    assert (config.name, config.value, config.config_source) == ("pq.producer.ids.max", "5", DYNAMIC_TOPIC)
    assert [(each.name, each.value) for each in config.synonyms] == [("pq.producer.ids.max", "5")]
    assert "pq.source.id.max.counts" in (config.documentation or "")
