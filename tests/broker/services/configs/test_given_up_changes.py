"""A client that goes while what it asked for becomes durable: a change is made whole all the same."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from pqbroker.broker.services.configs.changes import Resource
from pqbroker.broker.services.configs.operations import Operation
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest
from pqbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.conftest import Node, until
from tests.broker.wire import Client


async def give_up(node: Node, client: Client, request: Any) -> None:
    """Ask, and be gone before the commit that this needs is durable."""
    faults, other = node.engine.faults, await node.connect()
    connections = node.server.node.metrics.connections
    faults.hold()
    client.send(request)
    client.expect_nothing()
    await other.ask(ApiVersionsRequest(), 0)
    client.abort()
    await until(lambda: node.server.node.metrics.connections == connections - 1)
    faults.release()


async def soon(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something holds, and nothing that the node does from time to time make it so."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


def altering(kind: Resource, resource: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=name, config_operation=Operation.SET, value=value)
    asked = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[asked])


async def test_a_topic_is_served_whose_creator_has_gone(node: Node, client: Client) -> None:
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    await give_up(node, client, CreateTopicsRequest(topics=[topic]))
    await soon(lambda: node.server.node.cell.current.topics.get("t") is not None)


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_refusal_that_nobody_waits_for_is_no_defect(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture, steps_before: int
) -> None:
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    node.engine.faults.refuse_next(after=steps_before)
    await give_up(node, client, CreateTopicsRequest(topics=[topic]))
    await until(lambda: bool(caplog.records))
    gc.collect()
    assert [record.levelname for record in caplog.records] == ["WARNING"], caplog.text
    assert node.server.node.cell.current.topics.get("t") is None


async def test_a_topic_is_gone_whose_deleter_has_gone(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await give_up(node, client, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    await soon(lambda: node.server.node.cell.current.topics.get("t") is None)


async def test_a_topic_grows_when_who_asked_has_gone(node: Node, client: Client) -> None:
    await node.create_topic("t")
    asked = CreatePartitionsTopic(name="t", count=2, assignments=None)
    await give_up(node, client, CreatePartitionsRequest(topics=[asked], timeout_ms=0))
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await soon(lambda: len(topic.partitions) == 2)


async def test_a_topics_config_is_in_force_when_who_set_it_has_gone(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await give_up(node, client, altering(Resource.TOPIC, "t", "retention.ms", "60000"))
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    await soon(lambda: topic.config.retention_ms == 60_000)


@pytest.mark.parametrize("name", ["", "1"])
async def test_a_nodes_setting_is_in_force_when_who_set_it_has_gone(node: Node, client: Client, name: str) -> None:
    await give_up(node, client, altering(Resource.BROKER, name, "log.retention.ms", "60000"))
    await soon(lambda: node.server.node.settings.log_retention_ms == 60_000)
