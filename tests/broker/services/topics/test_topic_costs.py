"""A topic costs as much as the one before it, whatever exists: calls of the broker's functions, and bytes written."""

from collections.abc import Callable
from typing import Any

from pqbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.benchmarks.calls import counted
from tests.broker.conftest import Node
from tests.broker.wire import Client

FEW, MANY = 30, 300
TRIES = 5
CALLS_APART, BYTES_APART = 5, 2


def named(number: int) -> str:
    """Names that may collide, of one length."""
    return f"shop.orders_{number:03}"


def creation(number: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=named(number), num_partitions=1, replication_factor=1)])


def growth(number: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=named(number), count=2, assignments=None)])


def deletion(number: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=named(number))])


async def cost(node: Node, client: Client, request: Callable[[int], Any], first: int) -> tuple[int, int]:
    """Return the least calls and bytes of a few requests: the broker's periodic work is in none."""
    cell = node.server.node.cell.current.cells.system
    found = []
    for number in range(first, first + TRIES):
        before = cell.cell.stats().bytes_written
        with counted() as counter:
            await client.ask(request(number))
        await cell.reclaimed()
        found.append((counter.calls, cell.cell.stats().bytes_written - before))
    assert not client.codes
    return min(calls for calls, _ in found), min(written for _, written in found)


async def test_changes_of_a_topic_cost_the_same_among_many(node: Node, client: Client) -> None:
    made, costs = 0, []
    for count in (FEW, MANY):
        for number in range(made, count):
            await client.ask(creation(number))
        costs.append([await cost(node, client, change, count) for change in (creation, growth, deletion)])
        made = count + TRIES
    for few, many in zip(*costs, strict=True):
        assert abs(many[0] - few[0]) <= CALLS_APART
        assert abs(many[1] - few[1]) <= BYTES_APART
