"""Configs of consumer groups, client metrics subscriptions and loggers."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pqbroker.conf.declare import declarations
from pqbroker.conf.named_resources import ClientMetricsConfig, GroupConfig
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.conftest import Node, until
from tests.broker.kafka.handlers.test_alter_configs import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    change,
    resource,
)
from tests.broker.wire import Client

SESSION = "consumer.session.timeout.ms"
CLASSIC = "pqbroker.broker.services.configs"


async def described(client: Client, kind: int, name: str) -> Any:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    (result,) = (await client.ask(request)).results
    return result


async def texts(client: Client, kind: int, name: str) -> dict[str, tuple[str, int]]:
    """Value and source by name."""
    return {one.name: (one.value, one.config_source) for one in (await described(client, kind, name)).configs}


async def listed(client: Client, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    response = await client.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


@pytest.mark.parametrize(
    ("kind", "source", "name", "text", "settings"),
    [(GROUP, 8, SESSION, "50000", GroupConfig), (CLIENT_METRICS, 7, "interval.ms", "60000", ClientMetricsConfig)],
)
async def test_what_is_set_for_a_named_resource_is_described_and_listed_until_it_is_deleted(
    node: Node, client: Client, kind: int, source: int, name: str, text: str, settings: type
) -> None:
    before = await texts(client, kind, "n")
    assert before.keys() == declarations(settings).keys()
    assert {found for _, found in before.values()} == {5}
    assert await change(client, resource((name, SET, text), kind=kind, name="n")) == [(0, None)]
    assert await change(client, resource((name, SET, text), kind=kind, name="N")) == [(0, None)]
    assert await texts(client, kind, "n") == {**before, name: (text, source)}
    assert await listed(client, kind) == [(kind, "N"), (kind, "n")]
    before_loss = node.server.node.cell.current
    node.engine.faults.lose_next()
    assert await change(client, resource((name, SET, text), kind=kind, name="lost")) != [(0, None)]
    await until(lambda: node.server.node.cell.current is not before_loss)
    assert await texts(client, kind, "n") == {**before, name: (text, source)}
    assert await change(client, resource((name, DELETE, None), kind=kind, name="n")) == [(0, None)]
    assert await texts(client, kind, "n") == before
    assert await listed(client, kind) == [(kind, "N")]


async def test_only_subscriptions_are_listed_by_version_0(client: Client) -> None:
    await change(client, resource(("metrics", SET, "org.apache"), kind=CLIENT_METRICS, name="m"))
    await change(client, resource((SESSION, SET, "50000"), kind=GROUP, name="g"))
    assert await listed(client, version=0) == [(CLIENT_METRICS, "m")]
    assert {(CLIENT_METRICS, "m"), (GROUP, "g"), (LOGGER, "1"), (BROKER, "1")} <= set(await listed(client))


async def test_items_are_appended_to_a_list_and_subtracted(client: Client) -> None:
    for operation, text in ((SET, "a,b"), (APPEND, "c"), (SUBTRACT, "a")):
        await change(client, resource(("metrics", operation, text), kind=CLIENT_METRICS, name="m"))
    assert (await texts(client, CLIENT_METRICS, "m"))["metrics"] == ("b,c", 7)


@pytest.mark.parametrize(
    ("kind", "name", "asked", "code"),
    [
        (GROUP, "g", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, SET, "0"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g" * 1025, (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("no.such", SET, "99"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("match", SET, "colour=red"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "", ("interval.ms", SET, "100"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ("root", SET, "debug"), ErrorCode.INVALID_CONFIG),
        (LOGGER, "1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ("root", APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ("no.such.logger", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_is_wrong_is_refused_with_a_text_and_changes_nothing(
    client: Client, kind: int, name: str, asked: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = await listed(client)
    ((answered, text),) = await change(client, resource(asked, kind=kind, name=name))
    assert (answered, bool(text)) == (code, True)
    assert await listed(client) == before


async def test_synonyms_of_a_groups_configs_are_settings_of_the_node(client: Client) -> None:
    async def synonyms(kind: int, name: str) -> list[tuple[str, int]]:
        configs = {one.name: one for one in (await described(client, kind, "n")).configs}
        return [(each.name, each.source) for each in configs[name].synonyms]

    assert await synonyms(GROUP, SESSION) == [(f"group.{SESSION}", 5)]
    assert await synonyms(CLIENT_METRICS, "interval.ms") == []
    await change(client, resource((SESSION, SET, "50000"), kind=GROUP, name="n"))
    await change(client, resource(("interval.ms", SET, "100"), kind=CLIENT_METRICS, name="n"))
    assert await synonyms(GROUP, SESSION) == [(SESSION, 8), (f"group.{SESSION}", 5)]
    assert await synonyms(CLIENT_METRICS, "interval.ms") == [("interval.ms", 7)]
    assert await synonyms(GROUP, "share.isolation.level") == [("share.isolation.level", 5)]


async def test_a_group_has_what_the_node_is_set_to_until_it_is_set_itself(start: Any) -> None:
    node = await start(group_consumer_session_timeout_ms=50_000)
    client = await node.connect()
    shown = await texts(client, GROUP, "g")
    assert (shown[SESSION], shown["consumer.heartbeat.interval.ms"]) == (("50000", 4), ("5000", 5))
    await change(client, resource(("group.consumer.assignment.interval.ms", SET, "7"), kind=BROKER, name="1"))
    assert (await texts(client, GROUP, "g"))["consumer.assignment.interval.ms"] == ("7", 2)


async def test_times_of_a_group_are_in_force_at_the_next_heartbeat(client: Client) -> None:
    async def interval_ms(epoch: int) -> tuple[int, int]:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=1000, subscribed_topic_names=[],
            topic_partitions=[],
        )  # fmt: skip
        answer = await client.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE
        return answer.heartbeat_interval_ms, answer.member_epoch

    shown, epoch = await interval_ms(0)
    assert shown == 5000
    asked = ("consumer.heartbeat.interval.ms", SET, "6000")
    assert await change(client, resource(asked, kind=GROUP, name="g")) == [(0, None)]
    assert (await interval_ms(epoch))[0] == 6000


async def test_validate_only_sets_nothing(client: Client) -> None:
    for kind, asked in ((GROUP, (SESSION, SET, "50000")), (CLIENT_METRICS, ("interval.ms", SET, "100"))):
        assert await change(client, resource(asked, kind=kind, name="n"), only=True) == [(0, None)]
    assert await listed(client, GROUP, CLIENT_METRICS) == []
    level = logging.getLogger().level
    await change(client, resource(("root", SET, "FATAL"), kind=LOGGER, name="1"), only=True)
    assert logging.getLogger().level == level


async def test_more_resources_than_the_limit_are_refused_and_set_ones_still_change(
    start: Any,
) -> None:
    node = await start(config_resources_max=2)
    client = await node.connect()
    asked = [resource((SESSION, SET, "50000"), kind=GROUP, name=name) for name in "abca"]
    answers = [(await change(client, one))[0][0] for one in asked]
    assert answers == [0, 0, ErrorCode.POLICY_VIOLATION, 0]
    assert await listed(client, GROUP) == [(GROUP, "a"), (GROUP, "b")]


@pytest.fixture
def levels() -> Iterator[None]:
    root, logger = logging.getLogger(), logging.getLogger(f"{CLASSIC}.node_settings")
    kept = root.level, logger.level
    yield
    root.setLevel(kept[0])
    logger.setLevel(kept[1])


@pytest.mark.usefixtures("levels")
async def test_the_level_of_a_logger_is_set_shown_and_taken_back(client: Client) -> None:
    name = f"{CLASSIC}.node_settings"
    logger = logging.getLogger(name)
    assert await change(client, resource(("root", SET, "WARN"), (name, SET, "DEBUG"), kind=LOGGER, name="1")) == [
        (0, None)
    ]
    assert (logging.getLogger().level, logger.level) == (logging.WARNING, logging.DEBUG)
    shown = await texts(client, LOGGER, "1")
    assert (shown["root"], shown[name]) == (("WARN", 6), ("DEBUG", 6))
    await change(client, resource((name, DELETE, None), kind=LOGGER, name="1"))
    assert logger.level == logging.NOTSET
    assert (await texts(client, LOGGER, "1"))[name] == ("WARN", 6)


async def test_loggers_of_another_node_are_refused(client: Client) -> None:
    result = await described(client, LOGGER, "7")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "expected 1 but received 7" in result.error_message
