"""AlterConfigs and IncrementalAlterConfigs."""

import asyncio
from typing import Any

import pytest

from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import alter_configs, incremental_alter_configs
from pqbroker.protocol.messages.alter_configs import AlterConfigsRequest
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.broker.conftest import Node, until
from tests.broker.wire import Client

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LIST = "leader.replication.throttled.replicas"


def stored(node: Node, name: str = "t") -> dict[str, str]:
    topic = node.server.node.cell.current.topics.get(name)
    assert topic is not None
    return dict(topic.record.config)


def resource(*changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "t") -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=config, config_operation=operation, value=value)
        for config, operation, value in changes
    ]
    return incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def change(client: Client, *resources: Any, version: int = 1, only: bool = False) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=only)
    response = await client.ask(request, version)
    answered = [(answer.resource_type, answer.resource_name) for answer in response.responses]
    assert answered == [(asked.resource_type, asked.resource_name) for asked in resources]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


async def replace(
    client: Client, texts: dict[str, str | None], version: int = 2, **fields: Any
) -> tuple[int, str | None]:
    configs = [alter_configs.AlterableConfig(name=name, value=value) for name, value in texts.items()]
    asked = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    answer = (await client.ask(AlterConfigsRequest(resources=[asked], **fields), version)).responses[0]
    assert (answer.resource_type, answer.resource_name) == (TOPIC, "t")
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", range(2))
async def test_single_configs_are_set_and_deleted_and_the_others_kept(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", retention_ms="60000", segment_ms="5")
    answers = await change(
        client, resource(("max.message.bytes", SET, "2000"), ("segment.ms", DELETE, None)), version=version
    )
    assert answers == [(0, None)]
    assert stored(node) == {"retention.ms": "60000", "max.message.bytes": "2000"}
    assert (await node.produce("t", b"x" * 3000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_list_is_appended_to_and_subtracted_from(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await change(client, resource(("cleanup.policy", APPEND, "compact,delete")))
    assert stored(node)["cleanup.policy"] == "delete,compact"
    await change(client, resource(("cleanup.policy", SUBTRACT, "delete"), (LIST, APPEND, "0:1")))
    assert stored(node) == {"cleanup.policy": "compact", LIST: "0:1"}


async def test_a_change_is_there_after_a_loss_of_the_cell(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await change(client, resource(("retention.ms", SET, "1")))
    before = node.server.node.cell.current.topics
    node.engine.faults.lose_next()
    await node.produce("t", b"lost")
    await until(lambda: node.server.node.cell.current.topics is not before)
    assert stored(node) == {"retention.ms": "1"}


async def test_changes_made_at_the_same_time_are_all_kept(node: Node, client: Client) -> None:
    await node.create_topic("t")
    others = [await node.connect() for _ in range(3)]
    names = ["retention.ms", "retention.bytes", "segment.ms"]
    await asyncio.gather(
        *(change(other, resource((name, SET, "9"))) for other, name in zip(others, names, strict=True))
    )
    assert stored(node) == dict.fromkeys(names, "9")


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_goes_back_to_its_default(node: Node, client: Client, version: int) -> None:
    await node.create_topic("t", retention_ms="60000", segment_ms="5")
    assert await replace(client, {"segment.ms": "6"}, version) == (0, None)
    assert stored(node) == {"segment.ms": "6"}


async def test_what_was_described_can_be_given_back_with_one_change(node: Node, client: Client) -> None:
    await node.create_topic("t", pq_partitions_per_tablet="2")
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)
    described = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results[0].configs
    texts = {config.name: config.value for config in described} | {"retention.ms": "7"}
    assert await replace(client, texts) == (0, None)
    assert stored(node)["retention.ms"] == "7"
    assert stored(node).keys() == {one.stored_name for one in declarations(TopicConfig).values()}


async def test_validate_only_changes_nothing(node: Node, client: Client) -> None:
    await node.create_topic("t")
    assert await change(client, resource(("retention.ms", SET, "1")), only=True) == [(0, None)]
    assert await replace(client, {"retention.ms": "1"}, validate_only=True) == (0, None)
    ((code, _),) = await change(client, resource(("retention.ms", SET, "x")), only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert stored(node) == {}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (resource(("no.such", SET, "1")), ErrorCode.INVALID_CONFIG),
        (resource(("no.such", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", SET, "-2")), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (resource(("cleanup.policy", APPEND, "burn")), ErrorCode.INVALID_CONFIG),
        (resource(("remote.storage.enable", SET, "true")), ErrorCode.INVALID_CONFIG),
        (resource(("pq.partitions.per.tablet", SET, "9")), ErrorCode.INVALID_CONFIG),
        (resource(("pq.partitions.per.tablet", DELETE, None)), ErrorCode.INVALID_CONFIG),
        (resource(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (resource(("retention.ms", 4, "1")), ErrorCode.INVALID_REQUEST),
        (resource(("", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)), ErrorCode.INVALID_REQUEST),
        (resource(name="nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(name=""), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_changed_is_refused_with_a_text(
    node: Node, client: Client, asked: Any, code: ErrorCode
) -> None:
    await node.create_topic("t", pq_partitions_per_tablet="2", retention_bytes="5")
    before = stored(node)
    ((answered, text),) = await change(client, asked)
    assert answered == code
    assert text
    assert stored(node) == before


@pytest.mark.parametrize("kind", [0, 77])
async def test_a_resource_of_no_known_type_is_refused(client: Client, kind: int) -> None:
    ((code, told),) = await change(client, resource(("x", SET, "1"), kind=kind, name="n"))
    asked = DescribeConfigsResource(resource_type=kind, resource_name="n", configuration_keys=None)
    (described,) = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results
    assert code == described.error_code == ErrorCode.INVALID_REQUEST
    assert told == described.error_message
    assert told is not None
    assert told.startswith(f"resource type {kind} is unknown")


async def test_what_is_not_set_is_deleted_without_a_word(node: Node, client: Client) -> None:
    await node.create_topic("t", retention_bytes="5")
    before = stored(node)
    unset = resource(("retention.ms", DELETE, None), ("no.such", DELETE, None))
    assert await change(client, unset) == [(0, None)]
    assert stored(node) == before


async def test_one_bad_change_keeps_the_resource_as_it_was_and_others_are_made(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    answers = await change(
        client,
        resource(("retention.ms", SET, "1"), ("retention.bytes", SET, "x")),
        resource(("retention.ms", SET, "2"), name="u"),
    )
    assert [code for code, _ in answers] == [ErrorCode.INVALID_CONFIG, 0]
    assert (stored(node), stored(node, "u")) == ({}, {"retention.ms": "2"})


async def test_a_resource_named_twice_is_refused_twice(node: Node, client: Client) -> None:
    await node.create_topic("t")
    answers = await change(client, resource(("retention.ms", SET, "1")), resource(("retention.ms", SET, "2")))
    assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert stored(node) == {}


async def test_a_value_that_is_missing_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("t")
    code, text = await replace(client, {"retention.ms": None})
    assert code == ErrorCode.INVALID_REQUEST
    assert text
    assert "retention.ms" in text


async def test_a_refused_commit_is_told(node: Node, client: Client) -> None:
    await node.create_topic("t")
    node.engine.faults.refuse_next()
    ((code, _),) = await change(client, resource(("retention.ms", SET, "1")))
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stored(node) == {}


async def store(node: Node, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]) -> None:
    """Have a topic be set to what this version does not take, as another one may leave it."""
    with monkeypatch.context() as unchecked:
        unchecked.setattr("pqbroker.pq.serving.topics.check_changed", lambda *_: None)
        await node.server.node.cell.current.topics.reconfigure("t", lambda _: texts)


async def test_stored_configs_that_cannot_be_are_shown_as_they_are(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t")
    await store(node, monkeypatch, {"retention.ms": "-7", "pq.new": "1"})
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
    (answer,) = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results
    (config,) = answer.configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "-7", 1)


async def test_stored_configs_that_cannot_be_are_mended_one_by_one(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t")
    await store(node, monkeypatch, {"retention.ms": "-7", "pq.new": "1", "pq.partitions.per.tablet": "0"})
    assert await change(client, resource(("segment.ms", SET, "5"))) == [(0, None)]
    for name in ("pq.new", "pq.partitions.per.tablet"):
        assert await change(client, resource((name, DELETE, None)), only=True) == [(0, None)]
        assert await change(client, resource((name, DELETE, None))) == [(0, None)]
    ((code, text),) = await change(client, resource(("retention.ms", SET, "-8")))
    assert (code, text) == (ErrorCode.INVALID_CONFIG, "retention.ms is -8; the least allowed is -1")
    assert await change(client, resource(("retention.ms", SET, "8"))) == [(0, None)]
    assert stored(node) == {"segment.ms": "5", "retention.ms": "8"}


async def test_a_topic_becomes_a_compacted_one_without_a_warning(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await node.create_topic("t")
    for policy in ("compact", "compact,delete", "delete"):
        assert await change(client, resource(("cleanup.policy", SET, policy))) == [(0, None)]
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


EARLIER, NOW = "pq.source.id.max.counts", "pq.producer.ids.max"


@pytest.mark.parametrize("name", [EARLIER, NOW])
async def test_a_renamed_config_is_taken_by_both_names_and_stored_by_the_earlier(
    node: Node, client: Client, name: str
) -> None:
    await node.server.node.cell.current.topics.create("t", 1, {name: "5"})
    assert stored(node) == {EARLIER: "5"}
    assert await change(client, resource((name, SET, "3"))) == [(0, None)]
    assert stored(node) == {EARLIER: "3"}
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.config.pq_producer_ids_max == 3
    assert await change(client, resource((name, DELETE, None))) == [(0, None)]
    assert stored(node) == {}
    assert await replace(client, {name: "4"}) == (0, None)
    assert stored(node) == {EARLIER: "4"}


@pytest.mark.parametrize("names", [(EARLIER, NOW), (NOW, EARLIER)])
async def test_of_both_names_of_a_config_the_new_one_wins(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture, names: tuple[str, str]
) -> None:
    await node.create_topic("t")
    texts = {EARLIER: "5", NOW: "6"}
    assert await change(client, resource(*((name, SET, texts[name]) for name in names))) == [(0, None)]
    assert stored(node) == {EARLIER: "6"}
    assert f"{EARLIER} is ignored: it is an earlier name of {NOW}, which is given too" in caplog.messages


async def test_a_bad_value_under_an_earlier_name_is_refused(node: Node, client: Client) -> None:
    await node.create_topic("t")
    [(code, message)] = await change(client, resource((EARLIER, SET, "0")))
    assert (code, message) == (ErrorCode.INVALID_CONFIG, f"{NOW} is 0; the least allowed is 1")


@pytest.mark.parametrize("name", ["pqbroker.compaction.dead.percent", "pqbroker.segment.emptying.dead.percent"])
async def test_a_renamed_setting_of_the_start_cannot_be_changed_by_either_name(client: Client, name: str) -> None:
    [(code, message)] = await change(client, resource((name, SET, "60"), kind=BROKER, name="1"))
    assert code == ErrorCode.INVALID_REQUEST
    assert f"Cannot update these configs dynamically: [{name}]" in (message or "")
