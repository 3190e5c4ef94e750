"""Stores of groups of KIP-848: an answer is durable before it leaves, and a store that is refused loses nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.tablets.modern_group_rows import MODERN_ROWS
from tests.broker.conftest import Node, until
from tests.broker.services.coordination.modern.test_handlers import MINUTE_MS, beat, describe, join
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


@pytest.fixture
async def topic(node: Node) -> bytes:
    return await node.create_topic("t", 2)


def stored_rows(node: Node) -> int:
    """Return the count of rows of groups of KIP-848."""
    names = {rows.row_set for rows in MODERN_ROWS}
    tablets = node.server.node.cell.current.coordinators.tablets
    sets = (tablet.describe().row_sets or {} for tablet in tablets)
    return sum(count for found in sets for name, count in found.items() if name in names)


async def restart(node: Node) -> None:
    for tablet in COORDINATOR_IDS:
        await node.server.node.cell.current.host.restart(tablet)


async def test_a_join_whose_store_is_refused_is_to_be_tried_again(client: Client, topic: bytes, node: Node) -> None:
    node.engine.faults.refuse_next()
    assert (await join(client, "m")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stored_rows(node) == 0
    assert (await join(client, "m")).error_code == 0
    before = await describe(client)
    await restart(node)
    assert await describe(client) == before


async def test_what_a_refused_store_had_goes_with_the_next_request_of_any_member(
    client: Client, topic: bytes, node: Node
) -> None:
    await join(client, "a")
    node.clock.now_ms += MINUTE_MS
    await join(client, "b")
    node.engine.faults.refuse_next()
    owned = [TopicPartitions(topic_id=topic, partitions=[0, 1])]
    assert (await beat(client, "a", 2, topic_partitions=owned)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await beat(client, "b", 3)).error_code == 0  # it changes nothing itself
    before = await describe(client)
    assert {member.member_epoch for member in before.members} == {2, 3}
    await restart(node)
    after = await describe(client)
    for group in (before, after):
        group.members.sort(key=lambda member: member.member_id)
    assert after == before


async def test_a_heartbeat_waits_for_what_another_one_has_changed(client: Client, topic: bytes, node: Node) -> None:
    await join(client, "a")
    node.clock.now_ms += MINUTE_MS
    other, third = await node.connect(), await node.connect()
    node.engine.faults.hold()
    joining = asyncio.ensure_future(join(other, "b"))
    await until(lambda: node.engine.faults.is_holding)
    living = asyncio.ensure_future(beat(third, "a", 2))
    await describe(client, "nobody")
    assert not joining.done()
    assert not living.done()
    node.engine.faults.release()
    assert (await joining).error_code == 0
    assert (await living).error_code == 0


async def test_many_joins_share_stores(client: Client, topic: bytes, node: Node) -> None:
    clients = [await node.connect() for _ in range(12)]
    node.engine.faults.hold()
    commits = node.engine.faults.commits
    joins = [asyncio.ensure_future(join(each, f"m{number}")) for number, each in enumerate(clients)]
    await until(lambda: node.engine.faults.is_holding)
    node.engine.faults.release()
    assert {answer.error_code for answer in await asyncio.gather(*joins)} == {0}
    assert node.engine.faults.commits - commits < len(joins)


async def test_a_deletion_that_is_refused_leaves_the_group(client: Client, topic: bytes, node: Node) -> None:
    coordinators = node.server.node.cell.current.coordinators
    await join(client, "m")
    await beat(client, "m", -1)
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await coordinators.delete("g")
    assert (await describe(client)).group_state == "Empty"
    taken = coordinators.taken_bytes
    await coordinators.delete("g")
    assert (taken > 0, coordinators.taken_bytes, stored_rows(node)) == (True, 0, 0)
    with pytest.raises(KafkaError):
        await coordinators.delete("g")


async def test_a_group_that_is_made_again_has_none_of_the_earlier_members(
    client: Client, topic: bytes, node: Node
) -> None:
    await join(client, "a")
    await beat(client, "a", -1)
    deleting = asyncio.ensure_future(node.server.node.cell.current.coordinators.delete("g"))
    await join(client, "b")
    await deleting
    await restart(node)
    assert [member.member_id for member in (await describe(client)).members] == ["b"]


async def test_a_group_without_members_and_offsets_expires(client: Client, topic: bytes, node: Node) -> None:
    await join(client, "a")
    await beat(client, "a", -1)
    current = node.server.node.cell.current
    node.clock.now_ms += 7 * 24 * 60 * MINUTE_MS - 1
    await current.coordinators.expire(current.topics.offsets.has)
    assert (await describe(client)).group_state == "Empty"
    await restart(node)
    node.clock.now_ms += 1
    await current.coordinators.expire(current.topics.offsets.has)
    assert (await describe(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert stored_rows(node) == 0


async def test_members_that_wait_when_the_node_stops_are_told(client: Client, topic: bytes, node: Node) -> None:
    other = await node.connect()
    node.engine.faults.hold()
    joining = asyncio.ensure_future(join(other, "m"))
    await until(lambda: node.engine.faults.is_holding)
    node.server.node.cell.current.coordinators.close()
    assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
    assert (await join(client, "n")).error_code == ErrorCode.NOT_COORDINATOR
    node.engine.faults.release()


async def test_a_large_target_is_worked_out_in_slices(start: Start) -> None:
    node = await start(group_consumer_assignment_interval_ms=0, partitions_max=10_000)
    for number in range(4):
        await node.create_topic(f"t{number}", 500)
    client = await node.connect()
    names = [f"t{number}" for number in range(4)]
    joined = [await join(client, f"m{number}", *names) for number in range(60)]
    assert {answer.error_code for answer in joined} == {0}
    group = await describe(client)
    shares = [member.target_assignment.topic_partitions for member in group.members]
    targets = [sum(len(each.partitions) for each in share) for share in shares]
    assert (sum(targets), max(targets) - min(targets)) == (2000, 1)
