"""Groups are listed in steps, by name, whatever their number."""

from collections.abc import Generator

import pytest

from pqbroker.broker.services.coordination import consumer_groups
from pqbroker.broker.services.coordination.consumer_groups import list_groups
from pqbroker.broker.services.coordination.coordinators import ListedGroup
from pqbroker.pq.log.consumers import ConsumerOffset
from tests.broker.conftest import Node

COUNT = 50


async def test_groups_are_listed_by_name_with_a_step_for_each(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "_SORTED_AT_ONCE", 7)
    await node.create_topic("t")
    names = [f"g{number * 37 % COUNT}" for number in range(COUNT)]
    for name in names:
        await node.server.node.cell.current.topics.offsets.commit(name, {("t", 0): ConsumerOffset(0)})
    steps = 0

    def counted() -> Generator[None, None, list[ListedGroup]]:
        nonlocal steps
        listing = list_groups(node.server.node)
        while True:
            try:
                next(listing)
            except StopIteration as done:
                found: list[ListedGroup] = done.value
                return found
            steps += 1
            yield

    found = await node.server.node.turns.finish(counted())
    assert [group.group_id for group in found] == sorted(names)
    assert steps > 2 * COUNT


async def test_a_group_that_goes_while_groups_are_listed_is_left_out_or_listed(node: Node) -> None:
    await node.create_topic("t")
    offsets = node.server.node.cell.current.topics.offsets
    for name in ("a", "b", "c"):
        await offsets.commit(name, {("t", 0): ConsumerOffset(0)})
    listing = list_groups(node.server.node)
    next(listing)
    await consumer_groups.delete_group(node.server.node, "b")
    found = await node.server.node.turns.finish(listing)
    assert {"a", "c"} <= {group.group_id for group in found} <= {"a", "b", "c"}
