"""What a broker is set to while it runs: AlterConfigs, IncrementalAlterConfigs and DescribeConfigs of brokers.

Texts and sources that are compared word by word are Apache Kafka 4.3's.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.conf.dynamic import DYNAMIC
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import alter_configs
from pqbroker.protocol.messages.alter_configs import AlterConfigsRequest
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.conftest import Node, until
from tests.broker.wire import Client

TOPIC, BROKER = 2, 4
EVERY, THIS = "", "1"
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_ALL, AT_START, DEFAULT = 1, 2, 3, 4, 5


async def change(
    client: Client, name: str, *changes: tuple[str, int, str | None], only: bool = False
) -> tuple[int, str | None]:
    configs = [
        AlterableConfig(name=config, config_operation=operation, value=value) for config, operation, value in changes
    ]
    asked = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=configs)
    answer = (await client.ask(IncrementalAlterConfigsRequest(resources=[asked], validate_only=only))).responses[0]
    return answer.error_code, answer.error_message


async def replace(client: Client, name: str, texts: dict[str, str]) -> tuple[int, str | None]:
    configs = [alter_configs.AlterableConfig(name=config, value=value) for config, value in texts.items()]
    asked = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=configs)
    answer = (await client.ask(AlterConfigsRequest(resources=[asked]))).responses[0]
    return answer.error_code, answer.error_message


async def described(client: Client, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """Value and source of each config, then name, value and source of where it could come from."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    result = (await client.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True))).results[0]
    assert result.error_code == 0, result.error_message
    found = {}
    for config in result.configs:
        synonyms = [(each.name, each.value, each.source) for each in config.synonyms]
        found[config.name] = (config.value, config.config_source, synonyms)
    return found


async def test_what_is_set_for_this_broker_goes_over_what_is_set_for_all_over_its_start(
    start: Callable[..., Awaitable[Node]],
) -> None:
    client = await (await start(message_max_bytes=4000)).connect()
    assert await change(client, EVERY, ("message.max.bytes", SET, "3000")) == (0, None)
    assert await change(client, THIS, ("message.max.bytes", SET, "2000")) == (0, None)
    synonyms = [
        ("message.max.bytes", "2000", OF_BROKER),
        ("message.max.bytes", "3000", OF_ALL),
        ("message.max.bytes", "4000", AT_START),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    name = "message.max.bytes"
    assert await described(client, BROKER, THIS, name) == {name: ("2000", OF_BROKER, synonyms)}
    assert await described(client, BROKER, EVERY) == {name: ("3000", OF_ALL, synonyms[1:2])}
    assert await change(client, THIS, (name, DELETE, None)) == (0, None)
    assert await described(client, BROKER, THIS, name) == {name: ("3000", OF_ALL, synonyms[1:])}
    assert await change(client, EVERY, (name, DELETE, None)) == (0, None)
    assert await described(client, BROKER, THIS, name) == {name: ("4000", AT_START, synonyms[2:])}
    assert await described(client, BROKER, EVERY) == {}


async def test_topics_follow_at_once_where_they_leave_it_open(node: Node, client: Client) -> None:
    await node.create_topic("open")
    await node.create_topic("own", max_message_bytes="5000")
    await change(client, EVERY, ("message.max.bytes", SET, "2000"), ("log.retention.ms", SET, "7200000"))
    codes = [(await node.produce(topic, b"x" * 3000)).error_code for topic in ("open", "own")]
    assert codes == [ErrorCode.MESSAGE_TOO_LARGE, 0]
    assert await described(client, TOPIC, "open", "retention.ms") == {
        "retention.ms": (
            "7200000", OF_ALL, [("log.retention.ms", "7200000", OF_ALL), ("log.retention.hours", "168", DEFAULT)]
        )
    }  # fmt: skip
    own = await described(client, TOPIC, "own", "max.message.bytes")
    assert own["max.message.bytes"][:2] == ("5000", OF_TOPIC)
    await node.create_topic("new")
    assert (await node.produce("new", b"x" * 3000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_setting_that_was_not_set_is_told_with_its_coarser_units(client: Client) -> None:
    assert await described(client, BROKER, THIS, "log.retention.ms") == {"log.retention.ms": (None, DEFAULT, [])}
    await change(client, THIS, ("log.retention.ms", SET, "5"))
    synonyms = [("log.retention.ms", "5", OF_BROKER), ("log.retention.hours", "168", DEFAULT)]
    assert await described(client, BROKER, THIS, "log.retention.ms") == {"log.retention.ms": ("5", OF_BROKER, synonyms)}


async def test_a_change_is_there_after_a_loss_of_the_cell(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await change(client, THIS, ("message.max.bytes", SET, "2000"), ("num.io.threads", SET, "9"))
    before = node.server.node.cell.current.topics
    node.engine.faults.lose_next()
    await node.produce("t", b"lost")
    await until(lambda: node.server.node.cell.current.topics is not before)
    found = await described(client, BROKER, THIS, "message.max.bytes", "num.io.threads")
    assert [config[:2] for config in found.values()] == [("2000", OF_BROKER), ("9", OF_BROKER)]
    assert (await node.produce("t", b"x" * 3000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await change(client, THIS, ("message.max.bytes", SET, "4000")) == (0, None)
    assert (await node.produce("t", b"x" * 3000)).error_code == 0


async def set_by_another_version(node: Node, name: str, texts: dict[str, str]) -> None:
    """The scheme says so, and the cell is opened again."""
    opened = node.server._cell.current
    await opened.scheme.configure_node(name, texts)
    node.engine.faults.lose_next()
    await node.produce("t", b"lost")
    await until(lambda: node.server._cell.current is not opened)


async def test_what_another_version_set_and_cannot_be_is_told_and_shown_and_not_in_force(
    start: Callable[..., Awaitable[Node]], caplog: pytest.LogCaptureFixture
) -> None:
    node = await start(message_max_bytes=4000)
    client = await node.connect()
    await node.create_topic("t")
    await set_by_another_version(node, THIS, {"message.max.bytes": "many", "no.such": "a", "log.retention.bytes": "5"})
    await set_by_another_version(node, EVERY, {"num.io.threads": "few", "no.such": "b"})
    assert "node 1: message.max.bytes is 'many'; give a number; the value at the start is in force" in caplog.text
    assert "every node: unknown setting no.such; " in caplog.text
    assert (node.server.node.settings.message_max_bytes, node.server.node.settings.log_retention_bytes) == (4000, 5)
    assert (await node.produce("t", b"x" * 5000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await node.produce("t", b"x" * 3000)).error_code == 0
    found = await described(client, BROKER, THIS, "message.max.bytes", "num.io.threads", "no.such")
    assert {name: shown[:2] for name, shown in found.items()} == {
        "message.max.bytes": ("many", OF_BROKER), "num.io.threads": ("few", OF_ALL), "no.such": ("a", OF_BROKER),
    }  # fmt: skip
    assert found["no.such"][2] == [("no.such", "a", OF_BROKER), ("no.such", "b", OF_ALL)]
    assert (await described(client, BROKER, EVERY)).keys() == {"num.io.threads", "no.such"}


async def test_what_cannot_be_is_mended_or_deleted_one_after_the_other(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await set_by_another_version(node, THIS, {"message.max.bytes": "many", "num.io.threads": "few", "no.such": "a"})
    assert await change(client, THIS, ("log.retention.bytes", SET, "5")) == (0, None)
    assert await change(client, THIS, ("message.max.bytes", SET, "3000")) == (0, None)
    assert (await change(client, THIS, ("num.io.threads", SET, "none")))[0] == ErrorCode.INVALID_REQUEST
    assert await change(client, THIS, ("num.io.threads", DELETE, None)) == (0, None)
    assert await change(client, EVERY, ("no.such", DELETE, None)) == (0, None)
    assert await change(client, THIS, ("no.such", DELETE, None)) == (0, None)
    assert node.server._cell.current.scheme.settings[THIS] == {"log.retention.bytes": "5", "message.max.bytes": "3000"}
    assert node.server.node.settings.message_max_bytes == 3000


@pytest.mark.parametrize(
    ("of_all", "of_node", "kept_ms"),
    [
        ({"log.retention.ms": "2"}, {"log.retention.ms": "soon"}, -1),
        ({"log.retention.ms": "soon"}, {"log.retention.ms": "2"}, 2),
        ({"log.retention.ms": "2"}, {"log.cleanup.policy": "shred"}, -1),
        ({"log.retention.ms": "2"}, {"num.io.threads": "few"}, 2),
    ],
)
async def test_records_stay_where_nobody_can_say_for_how_long(
    node: Node, of_all: dict[str, str], of_node: dict[str, str], kept_ms: int
) -> None:
    await node.create_topic("t")
    await set_by_another_version(node, EVERY, of_all)
    await set_by_another_version(node, THIS, of_node)
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.config.retention_ms == kept_ms


async def test_a_list_is_appended_to_what_is_in_force(client: Client) -> None:
    await change(client, THIS, ("log.cleanup.policy", APPEND, "compact"))
    assert (await described(client, BROKER, THIS, "log.cleanup.policy"))["log.cleanup.policy"][0] == "delete,compact"
    await change(client, THIS, ("log.cleanup.policy", SUBTRACT, "delete"))
    assert (await described(client, BROKER, THIS, "log.cleanup.policy"))["log.cleanup.policy"][0] == "compact"


async def test_what_is_not_named_any_more_goes_back(client: Client) -> None:
    await change(client, THIS, ("message.max.bytes", SET, "2000"), ("log.retention.bytes", SET, "7"))
    assert await replace(client, THIS, {"log.retention.bytes": "8"}) == (0, None)
    found = await described(client, BROKER, THIS, "message.max.bytes", "log.retention.bytes")
    assert {name: config[:2] for name, config in found.items()} == {
        "message.max.bytes": ("1048588", DEFAULT),
        "log.retention.bytes": ("8", OF_BROKER),
    }


async def test_a_lower_limit_on_connections_holds_from_the_next_one_on(node: Node, client: Client) -> None:
    second = await node.connect()
    assert await change(client, THIS, ("max.connections", SET, "2")) == (0, None)
    third = await node.connect()
    with pytest.raises((EOFError, ConnectionError)):
        await described(third, BROKER, THIS)
    assert await described(second, BROKER, THIS)


async def test_validate_only_changes_nothing(client: Client) -> None:
    assert await change(client, THIS, ("message.max.bytes", SET, "2000"), only=True) == (0, None)
    code, _ = await change(client, THIS, ("message.max.bytes", SET, "x"), only=True)
    assert code == ErrorCode.INVALID_REQUEST
    assert (await described(client, BROKER, THIS, "message.max.bytes"))["message.max.bytes"][:2] == ("1048588", DEFAULT)


async def test_a_refused_commit_changes_nothing(node: Node, client: Client) -> None:
    node.engine.faults.refuse_next()
    code, _ = await change(client, THIS, ("message.max.bytes", SET, "2000"))
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await described(client, BROKER, THIS, "message.max.bytes"))["message.max.bytes"][:2] == ("1048588", DEFAULT)


@pytest.mark.parametrize(
    ("name", "changes", "code", "text"),
    [
        (THIS, [("num.partitions", SET, "3")], 42, "Cannot update these configs dynamically: [num.partitions]"),
        (EVERY, [("num.partitions", SET, "3")], 42, "Cannot update these configs dynamically: [num.partitions]"),
        (
            THIS, [("num.partitions", SET, "3"), ("node.id", SET, "4")], 42,
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        (
            THIS, [("ssl.keystore.location", SET, "k")], 42,
            "These security configs can be dynamically updated only per-listener using the listener prefix",
        ),
        (THIS, [("ssl.client.auth", SET, "maybe")], 42, "ssl.client.auth is 'maybe'; choose from none, requested"),
        (THIS, [("principal.builder.class", SET, "x")], 42, "principal.builder.class cannot be set: this broker does"),
        (
            EVERY, [("listener.name.plaintext.ssl.keystore.location", SET, "k")], 42,
            "Cannot update these configs at default cluster level, broker id must be specified",
        ),
        (
            THIS, [("listener.security.protocol.map", SET, "PLAINTEXT:SSL")], 42,
            "listener.security.protocol.map cannot be changed: the listener PLAINTEXT is PLAINTEXT until",
        ),
        (THIS, [("listeners", SET, "PLAINTEXT://:1")], 42, "listeners cannot be changed: this node listens on"),
        (THIS, [("listeners", APPEND, "OTHER://:1")], 42, "listeners cannot be changed: this node listens on"),
        (
            EVERY, [("ssl.cipher.suites", SET, "a"), ("sasl.kerberos.kinit.cmd", SET, "a")], 42,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[sasl.kerberos.kinit.cmd, ssl.cipher.suites]",
        ),
        ("7", [("message.max.bytes", SET, "1")], 42, "Unexpected broker id, expected 1"),
        ("x", [("message.max.bytes", SET, "1")], 42, "Broker id must be an integer, but it is: x"),
        (THIS, [("message.max.bytes", SET, "x")], 42, "message.max.bytes is 'x'; give a number"),
        (
            THIS, [("message.max.bytes", APPEND, "1")], 40,
            "Config value append is not allowed for config key: message.max.bytes",
        ),
        (THIS, [("log.flush.interval.ms", SET, "-5")], 42, "flush.ms is -5; the least allowed is 0"),
        (THIS, [("no.such", SET, "1")], 40, "no.such is no setting of a broker"),
        (THIS, [("message.max.bytes", SET, None)], 42, "message.max.bytes has no value"),
    ],
)  # fmt: skip
async def test_what_cannot_be_changed_is_refused_and_nothing_with_it(
    client: Client, name: str, changes: list[tuple[str, int, str | None]], code: int, text: str
) -> None:
    answered, told = await change(client, name, ("log.retention.bytes", SET, "7"), *changes)
    assert answered == code
    assert told is not None
    assert told.startswith(text)
    assert (await described(client, BROKER, THIS, "log.retention.bytes"))["log.retention.bytes"][:2] == ("-1", DEFAULT)


async def test_what_can_be_changed_is_told_by_not_being_read_only(client: Client) -> None:
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=THIS, configuration_keys=None)
    configs = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results[0].configs
    assert {config.name for config in configs if not config.read_only} == DYNAMIC


async def test_what_is_not_set_is_deleted_without_a_word(client: Client) -> None:
    names = ("leader.replication.throttled.rate", "num.partitions", "no.such", "log.retention.ms", "ssl.key.password")
    for node in (THIS, EVERY):
        assert await change(client, node, *((name, DELETE, None) for name in names)) == (0, None)
    assert await described(client, BROKER, EVERY) == {}


async def test_what_promises_nothing_is_taken_with_a_warning(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    taken = [
        ("sasl.login.refresh.window.factor", "0.7"), ("ssl.provider", "x"), ("ssl.protocol", "TLSv1.2"),
        ("ssl.client.auth", "none"), ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OTHER:SSL"),
        ("leader.replication.throttled.rate", "5"), ("config.providers", "file"),
    ]  # fmt: skip
    assert await change(client, THIS, *((name, SET, value) for name, value in taken)) == (0, None)
    found = await described(client, BROKER, THIS, *(name for name, _ in taken))
    assert {name: (value, source) for name, (value, source, _) in found.items()} == {
        name: (value, OF_BROKER) for name, value in taken
    }
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "without effect" in warning
    assert "sasl.login.refresh.window.factor" in warning
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=THIS, configuration_keys=["ssl.provider"])
    (config,) = (
        (await client.ask(DescribeConfigsRequest(resources=[asked], include_documentation=True))).results[0].configs
    )
    assert "no effect in this broker" in config.documentation


async def test_a_nodes_places_are_described_as_they_are(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start()
    client = await node.connect()
    listening = f"PLAINTEXT://{node.server.kafka_address}"
    found = await described(client, BROKER, THIS, "listeners", "advertised.listeners", "log.dirs")
    assert found["listeners"] == (
        listening, AT_START, [("listeners", listening, AT_START), ("listeners", "PLAINTEXT://:9092", DEFAULT)]
    )  # fmt: skip
    assert found["advertised.listeners"][:2] == (listening, AT_START)
    assert found["log.dirs"] == (":memory:", AT_START, [("log.dirs", ":memory:", AT_START)])
    assert await change(client, THIS, ("listeners", SET, listening)) == (0, None)
    assert (await change(client, THIS, ("listeners", SUBTRACT, listening)))[0] == ErrorCode.INVALID_REQUEST
    assert (await described(client, BROKER, THIS, "listeners"))["listeners"] == found["listeners"]


@pytest.mark.parametrize(
    ("http", "settings", "advertised"),
    [
        (None, {"advertised_http": "web.example:80"}, ""),
        (Address("127.0.0.1", 0), {}, "127.0.0.1:PORT"),
        (Address("0.0.0.0", 0), {"advertised_listeners": "broker.example:9094"}, "broker.example:PORT"),
        (Address("127.0.0.1", 0), {"advertised_http": "https://web.example:80"}, "https://web.example:80"),
    ],
)
async def test_the_http_address_is_described_as_clients_reach_it(
    start: Callable[..., Awaitable[Node]], http: Address | None, settings: dict[str, str], advertised: str
) -> None:
    node = await start(http=http, **settings)
    found = await described(await node.connect(), BROKER, THIS, "pqbroker.advertised.http")
    port = "" if node.server.http_address is None else str(node.server.http_address.port)
    assert found["pqbroker.advertised.http"][0] == advertised.replace("PORT", port)


async def test_what_clients_are_told_to_connect_to_is_described(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(advertised_listeners="broker.example:9094")
    found = await described(await node.connect(), BROKER, THIS, "advertised.listeners")
    assert found["advertised.listeners"][:2] == ("PLAINTEXT://broker.example:9094", AT_START)
