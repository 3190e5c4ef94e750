"""`pqbroker topic config`: look at a topic's configs, set and unset them."""

from collections.abc import Mapping
from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster, settled
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import Broker, Json, TopicName, assignments
from pqbroker.broker.cli.output import say, show_json, show_table
from pqbroker.broker.cli.refusals import WrongInput, check, near
from pqbroker.broker.cli.telling import tell
from pqbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE = 2
_SET, _UNSET = 0, 1
_SOURCES = {1: "topic", 2: "broker", 3: "brokers", 4: "settings", 5: "default", 6: "logger", 7: "client", 8: "group"}
_TOPIC_SOURCE = 1
_POLICY = "cleanup.policy"
_COMPACT = "compact"
_NOT_YET = "does not compact yet"
"""In the documentation with which a broker of ours describes `cleanup.policy`."""


def add_config(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "config", "pqbroker topic config orders --set retention.ms=3600000 --unset cleanup.policy")(config)


def config(
    topic: TopicName,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set; repeatable.")] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Back to the default; repeatable.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show what has its default too.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Show a topic's configs; with --set or --unset change them."""
    changes: dict[str, str | None] = {**assignments("--set", set_ or [], "retention.ms=3600000")}
    for name in unset or []:
        if changes.get(name) is not None:
            raise WrongInput(f"{name} is both set and unset; choose one")
        changes[name] = None
    with Cluster(broker) as cluster:
        cluster.topic(topic)
        before = described(cluster, topic)
        if changes:
            _check_names(changes, before)
            _alter(cluster, topic, changes)
            tell_no_compaction(cluster, topic, changes)
        now = settled(lambda: described(cluster, topic), lambda after: _have_come(changes, before, after))
    found = [each for each in now if every or is_own(each)]
    if json:
        configs = {each.name: {"value": each.value, "source": source(each)} for each in found}
        show_json({"topic": topic, "configs": configs})
    elif found:
        show_table(("config", "value", "source"), [(each.name, each.value, source(each)) for each in found])
    else:
        say(f"topic {topic} has every config from the broker; --all shows them")


def described(cluster: Cluster, topic: str) -> list[DescribeConfigsResourceResult]:
    """All configs of a topic, by name."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    result = cluster.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results[0]
    check(result.error_code, f"cannot look up the configs of {topic}", result.error_message)
    return sorted(result.configs, key=lambda each: each.name)


def tell_no_compaction(cluster: Cluster, topic: str, given: Mapping[str, str | None]) -> None:
    """A line on standard error where a topic was given `compact` and the broker says that it does not compact."""
    if _COMPACT not in (given.get(_POLICY) or "").split(","):
        return
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_POLICY]
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    result = cluster.ask(request, DescribeConfigsResponse).results[0]
    for each in result.configs:
        if _NOT_YET in (each.documentation or ""):
            tell(f"topic {topic}: {_POLICY}: {each.documentation}")


def is_own(each: DescribeConfigsResourceResult) -> bool:
    """Whether a config was set at the topic."""
    return each.config_source == _TOPIC_SOURCE


def source(each: DescribeConfigsResourceResult) -> str:
    """Where a config's value comes from."""
    return _SOURCES.get(each.config_source, "unknown")


def _check_names(changes: dict[str, str | None], known: list[DescribeConfigsResourceResult]) -> None:
    names = [each.name for each in known]
    for name in changes:
        if name not in names:
            hint = near(name, names) or "`pqbroker topic config TOPIC --all` shows what there is"
            raise WrongInput(f"unknown config {name}; {hint}")


def _have_come(
    changes: dict[str, str | None],
    before: list[DescribeConfigsResourceResult],
    after: list[DescribeConfigsResourceResult],
) -> bool:
    """Whether a broker says what it has taken: Apache Kafka does so a little later. It may write a value otherwise."""
    earlier = {each.name: each.value for each in before}
    return all(
        is_own(each) == (changes[each.name] is not None)
        and (not is_own(each) or each.value == changes[each.name] or each.value != earlier[each.name])
        for each in after
        if each.name in changes
    )


def _alter(cluster: Cluster, topic: str, changes: dict[str, str | None]) -> None:
    configs = [
        AlterableConfig(name=name, config_operation=_UNSET if value is None else _SET, value=value)
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    result = cluster.ask_controller(request, IncrementalAlterConfigsResponse).responses[0]
    check(result.error_code, f"cannot change the configs of {topic}", result.error_message)
