"""Configs of a topic or a node: described and changed."""

from collections.abc import Mapping
from enum import IntEnum

from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.refusals import check
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

TOPIC, BROKER = 2, 4
"""Kinds of resources that have configs; a broker's name is its node id."""

_KINDS = {TOPIC: "topic", BROKER: "node"}
_SOURCES = {1: "topic", 2: "broker", 3: "brokers", 4: "settings", 5: "default", 6: "logger", 7: "client", 8: "group"}
_DEFAULT = 5
CHANGED = 2
"""Source of a node's setting that was changed while it ran."""


class _Operation(IntEnum):
    SET = 0
    UNSET = 1


def describe_configs(
    cluster: Cluster, kind: int, name: str, keys: list[str] | None = None, node: int | None = None
) -> list[DescribeConfigsResourceResult]:
    """All configs of a topic or node, or those of the names `keys`, by name, with what the broker says of them."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=keys is not None)
    result = cluster.ask(request, DescribeConfigsResponse, node).results[0]
    check(result.error_code, f"cannot look up the configs of {_KINDS[kind]} {name}", result.error_message)
    return sorted(result.configs, key=lambda each: each.name)


def alter_configs(
    cluster: Cluster, kind: int, name: str, changes: Mapping[str, str | None], node: int | None = None
) -> None:
    """Set configs, and unset those whose value is None; CommandError."""
    configs = [
        AlterableConfig(name=each, config_operation=_Operation.UNSET if value is None else _Operation.SET, value=value)
        for each, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)]
    )
    if node is None:
        answer = cluster.ask_controller(request, IncrementalAlterConfigsResponse)
    else:
        answer = cluster.ask(request, IncrementalAlterConfigsResponse, node)
    result = answer.responses[0]
    check(result.error_code, f"cannot change the configs of {_KINDS[kind]} {name}", result.error_message)


def source(each: DescribeConfigsResourceResult) -> str:
    """Return the source of a config's value."""
    return _SOURCES.get(each.config_source, "unknown")


def is_default(each: DescribeConfigsResourceResult) -> bool:
    """Return True if nobody has set the config."""
    return each.config_source == _DEFAULT
