"""Configs of topics, brokers, groups and clients: showing and changing them."""

from pqbroker.broker.kafka.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from pqbroker.protocol.messages import alter_configs as whole
from pqbroker.protocol.messages import incremental_alter_configs as single
from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pqbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.kafka_comparison.scripts.topics import WRONG_TOPIC_CONFIGS
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
KINDS = {"topic": TOPIC, "broker": BROKER, "logger": LOGGER, "metrics": METRICS, "group": GROUP}


def describing(kind: int, name: str, keys: list[str] | None = None, **fields: bool) -> DescribeConfigsRequest:
    """Return a request for the configs of one resource."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[asked], **fields)


def setting(kind: int, name: str, key: str, value: str | None, operation: int = SET
            ) -> single.IncrementalAlterConfigsRequest:  # fmt: skip
    """Return a request to change one config."""
    config = single.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = single.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return single.IncrementalAlterConfigsRequest(resources=[resource])


@varied(describe_configs.API, fixed=("resources.resource_name", "resources.resource_type"))
def configs_of_a_topic(side: Side) -> DescribeConfigsRequest:
    return describing(TOPIC, SHARED, ["retention.ms", "cleanup.policy"])


@script(describe_configs.API)
def configs_of_resources(side: Side) -> None:
    for label, kind in KINDS.items():
        for name in ("", "1", "7", "x", "nobody", "a b"):
            side.compare(describing(kind, name, ["retention.ms", "log.retention.ms", "nonsense"]), f"{label} {name}")
    for kind in (0, 1, 3, 64, -1, 127):
        side.compare(describing(kind, "1"), f"kind {kind}")
    for name in ("1", "7"):
        side.compare(describing(BROKER, name, include_synonyms=True, include_documentation=True), f"broker {name}")
    for label, kind in (("metrics", METRICS), ("group", GROUP)):
        side.compare(describing(kind, side.name, include_synonyms=True), f"{label}, all")


@script(describe_configs.API)
def configs_of_a_topic_that_are_set(side: Side) -> None:
    for number, (name, value) in enumerate((
        ("min.insync.replicas", "1"), ("min.insync.replicas", "2"), ("retention.ms", "604800000"),
        ("segment.bytes", "2097152"), ("compression.type", "producer"),
    )):  # fmt: skip
        topic = side.topic(configs={name: value}, suffix=f"-{number}")
        for synonyms in (False, True):
            side.compare(describing(TOPIC, topic, [name], include_synonyms=synonyms), f"{name}={value} {synonyms}")
        side.ask(setting(TOPIC, topic, name, None, DELETE))
        side.settle()
        side.compare(describing(TOPIC, topic, [name], include_synonyms=True), f"{name}={value}, deleted")
        side.ask(setting(TOPIC, topic, name, value))
        side.settle()
        side.compare(describing(TOPIC, topic, [name], include_synonyms=True), f"{name}={value}, altered")


@script(describe_configs.API)
def configs_of_named_resources_that_are_set(side: Side) -> None:
    for label, kind in (("metrics", METRICS), ("group", GROUP)):
        key, value = CHANGES[kind]
        side.ask(setting(kind, side.name, key, value))
        side.settle()
        side.compare(describing(kind, side.name, [key], include_synonyms=True), label)
        side.ask(setting(kind, side.name, key, None, DELETE))


@varied(incremental_alter_configs.API, fixed=("resources.resource_name", "resources.resource_type"))
def a_config(side: Side) -> single.IncrementalAlterConfigsRequest:
    return setting(TOPIC, side.topic(), "retention.ms", "1000000")


@script(incremental_alter_configs.API)
def values(side: Side) -> None:
    topic = side.topic()
    for name, value in WRONG_TOPIC_CONFIGS:
        for operation in (SET, DELETE, APPEND, SUBTRACT):
            label = f"{name}={value} {operation}"
            side.compare(setting(TOPIC, topic, name, value, operation), label)


@script(incremental_alter_configs.API)
def lists(side: Side) -> None:
    topic = side.topic()
    for number, (operation, value) in enumerate((
        (APPEND, "compact"), (APPEND, "compact"), (SUBTRACT, "delete"), (SUBTRACT, "x"), (APPEND, "x"),
    )):  # fmt: skip
        side.compare(setting(TOPIC, topic, "cleanup.policy", value, operation), f"{number}: {operation} {value}")


@script(incremental_alter_configs.API)
def twice_in_a_request(side: Side) -> None:
    topic = side.topic()
    asked = setting(TOPIC, topic, "retention.ms", "1")
    asked.resources[0].configs += setting(TOPIC, topic, "retention.ms", "2").resources[0].configs
    side.compare(asked, "a name")
    asked = setting(TOPIC, topic, "retention.ms", "1")
    asked.resources += setting(TOPIC, topic, "retention.bytes", "2").resources
    side.compare(asked, "a resource")
    asked = setting(TOPIC, topic, "retention.ms", "1")
    asked.resources += setting(TOPIC, "nobody", "retention.bytes", "2").resources
    side.compare(asked, "one that is unknown beside one that is known")


CHANGES = {
    TOPIC: ("retention.ms", "1000"), BROKER: ("log.retention.ms", "600000"), LOGGER: ("kafka", "INFO"),
    METRICS: ("interval.ms", "60000"), GROUP: ("consumer.session.timeout.ms", "50000"),
}  # fmt: skip


@script(incremental_alter_configs.API)
def resources(side: Side) -> None:
    for label, kind in KINDS.items():
        key, value = CHANGES[kind]
        for name in ("", "1", "7", "x", "nobody", "a b"):
            side.compare(setting(kind, name, key, value), f"{label} {name}")
            side.compare(setting(kind, name, "nonsense", value), f"{label} {name} nonsense")
            side.compare(setting(kind, name, key, "-7"), f"{label} {name} a wrong value")
            side.ask(setting(kind, name, key, None, DELETE))
            side.ask(setting(kind, name, "nonsense", None, DELETE))
    for kind in (0, 1, 3, 64, -1, 127):
        side.compare(setting(kind, "1", "x", "1"), f"kind {kind}")


@script(incremental_alter_configs.API)
def configs_of_a_broker(side: Side) -> None:
    for key, value in (
        ("log.retention.ms", "x"), ("log.retention.ms", "-5"), ("node.id", "2"), ("listeners", "PLAINTEXT://:1"),
        ("log.dirs", "/x"), ("message.max.bytes", "1000000"), ("num.io.threads", "4"),
        ("max.connections", "100"), ("max.connections.per.ip", "-1"), ("compression.type", "zstd"),
        ("auto.create.topics.enable", "true"), ("group.max.size", "5"), ("log.segment.bytes", "100"),
        ("log.cleaner.threads", "2"), ("process.roles", "broker"), ("password", "x"), ("ssl.keystore.location", "/x"),
    ):  # fmt: skip
        for name in ("1", ""):
            side.compare(setting(BROKER, name, key, value), f"{name} {key}={value}")
            side.ask(setting(BROKER, name, key, None, DELETE))


@script(incremental_alter_configs.API)
def configs_of_client_metrics(side: Side) -> None:
    for key, value in (
        ("interval.ms", "99"), ("interval.ms", "3600001"), ("match", "colour=red"), ("match", "client_id=["),
        ("match", "client_id"), ("metrics", "a,b"), ("interval.ms", None),
    ):  # fmt: skip
        side.compare(setting(METRICS, "m", key, value), f"{key}={value}")
        side.ask(setting(METRICS, "m", key, None, DELETE))


@varied(alter_configs.API, fixed=("resources.resource_name", "resources.resource_type"))
def all_configs(side: Side) -> whole.AlterConfigsRequest:
    config = whole.AlterableConfig(name="retention.ms", value="1000000")
    resource = whole.AlterConfigsResource(resource_type=TOPIC, resource_name=side.topic(), configs=[config])
    return whole.AlterConfigsRequest(resources=[resource])


@script(alter_configs.API)
def resources_as_a_whole(side: Side) -> None:
    for label, kind in KINDS.items():
        key, value = CHANGES[kind]
        for name in ("", "1", "7", "x", "nobody", "a b"):
            for text in (value, "-7", None):
                config = whole.AlterableConfig(name=key, value=text)
                resource = whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
                side.compare(whole.AlterConfigsRequest(resources=[resource]), f"{label} {name} {text}")
            side.ask(setting(kind, name, key, None, DELETE))


@varied(list_config_resources.API)
def kinds_of_resources(side: Side) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=[BROKER])


@script(list_config_resources.API, since=1)
def every_kind_of_resource(side: Side) -> None:
    for kind in (0, 1, TOPIC, BROKER, LOGGER, METRICS, GROUP, 64, -1):
        side.compare(ListConfigResourcesRequest(resource_types=[kind]), str(kind))
    side.compare(ListConfigResourcesRequest(), "all")
    side.ask(setting(GROUP, "g", "consumer.session.timeout.ms", "50000"))
    side.ask(setting(METRICS, "m", "interval.ms", "60000"))
    side.settle()
    for kind in (METRICS, GROUP):
        side.compare(ListConfigResourcesRequest(resource_types=[kind]), f"{kind}, set")
    side.ask(setting(GROUP, "g", "consumer.session.timeout.ms", None, DELETE))
    side.ask(setting(METRICS, "m", "interval.ms", None, DELETE))
