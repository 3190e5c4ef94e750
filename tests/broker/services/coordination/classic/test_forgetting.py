"""When a group is forgotten: deleted by somebody, or left empty for long enough. The clock is moved by hand."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.coordinator_rows import GROUP_ROWS
from pqbroker.storage.tablets.hosting import Tablet
from tests.broker.conftest import ENGINE_BYTES, Clock, Node, until
from tests.broker.services.coordination.classic.test_handlers import describe, form, join_request
from tests.broker.wire import Client

KEPT_MINUTES = 10
KEPT_MS = KEPT_MINUTES * 60_000


@pytest.fixture
async def node(start: Callable[..., Awaitable[Node]]) -> Node:
    """A node that looks for what has expired all the time."""
    return await start(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1, retention_check_interval_ms=1,
        offsets_retention_minutes=KEPT_MINUTES,
    )  # fmt: skip


def group_ids(node: Node) -> list[str]:
    return [group.group_id for group in node.server.node.cell.current.coordinators.groups()]


async def look(node: Node) -> None:
    """Look once for groups that have expired."""
    parts = node.server.node
    await parts.cell.current.coordinators.expire(parts.cell.current.topics.offsets.has)


async def form_and_leave(client: Client) -> None:
    joined = await form(client)
    await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)


async def commit(client: Client, offset: int = 1) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    assert (await client.ask(request, 9)).topics[0].partitions[0].error_code == 0


async def test_a_group_left_empty_is_forgotten_when_its_time_is_over(node: Node, client: Client) -> None:
    await form_and_leave(client)
    node.clock.now_ms += KEPT_MS - 1
    await look(node)
    assert group_ids(node) == ["g"]
    node.clock.now_ms += 1
    await until(lambda: group_ids(node) == [])
    assert (await describe(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await form(client)).generation_id == 1


async def test_a_group_that_has_offsets_stays_until_they_expire(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await form_and_leave(client)
    node.clock.now_ms += KEPT_MS - 1
    await commit(client)
    node.clock.now_ms += KEPT_MS - 1
    await look(node)
    assert group_ids(node) == ["g"]
    node.clock.now_ms += 1
    await until(lambda: group_ids(node) == [])
    assert list(node.server.node.cell.current.topics.offsets.groups()) == []


async def test_a_group_with_members_stays_and_its_time_begins_when_they_are_gone(node: Node, client: Client) -> None:
    joined = await form(client)
    node.clock.now_ms += 2 * KEPT_MS
    await look(node)
    assert group_ids(node) == ["g"]
    await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    await look(node)
    assert group_ids(node) == ["g"]


async def test_a_group_that_somebody_is_about_to_join_stays(node: Node, client: Client) -> None:
    await form_and_leave(client)
    told = await client.ask(join_request())
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    node.clock.now_ms += 2 * KEPT_MS
    await look(node)
    assert (await client.ask(join_request(told.member_id))).generation_id == 3


async def test_a_refused_store_leaves_the_group_to_the_next_look(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1, offsets_retention_minutes=KEPT_MINUTES
    )
    await form_and_leave(await node.connect())
    await node.create_topic("behind-what-is-stored-of-the-group")
    node.clock.now_ms += KEPT_MS
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await look(node)
    assert group_ids(node) == ["g"]
    await look(node)
    assert group_ids(node) == []


async def test_a_forgotten_group_stays_forgotten_and_time_counts_over_a_restart() -> None:
    engine, clock = MemoryEngine(ENGINE_BYTES), Clock()
    settings = BrokerSettings(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=KEPT_MINUTES)
    found: list[list[str]] = []
    for _ in range(3):
        server = Server(settings, engine, Address("127.0.0.1", 0), None, clock)
        await server.start()
        parts = server.node
        if not found:
            client = await Client.connect("127.0.0.1", server.kafka_address.port)
            await form_and_leave(client)
            await client.close()
        clock.now_ms += KEPT_MS // 2
        await parts.cell.current.coordinators.expire(parts.cell.current.topics.offsets.has)
        found.append([group.group_id for group in parts.cell.current.coordinators.groups()])
        await server.stop()
    assert found == [["g"], [], []]


def coordinators_of(node: Node) -> list[Tablet]:
    ids = COORDINATOR_IDS
    found = [node.server._cell.current.host.tablet(tablet_id) for tablet_id in ids]
    return [tablet for tablet in found if tablet is not None]


def stored_groups(tablets: list[Tablet]) -> int:
    """How many groups the coordinators have stored."""
    return sum((tablet.describe().row_sets or {}).get(GROUP_ROWS.row_set, 0) for tablet in tablets)


async def test_a_group_deleted_in_the_turn_that_its_last_member_leaves_in_is_not_stored(
    node: Node, client: Client
) -> None:
    member_id = (await form(client)).member_id
    tablets = coordinators_of(node)
    assert (len(tablets), stored_groups(tablets)) == (len(COORDINATOR_IDS), 1)
    coordinators = node.server.node.cell.current.coordinators
    assert coordinators.leave("g", [Leaver(member_id, None)]) == [ErrorCode.NONE]
    await coordinators.delete("g")
    await coordinators.stop()
    assert stored_groups(tablets) == 0


async def test_a_deletion_whose_caller_is_cancelled_is_stored(node: Node, client: Client) -> None:
    await form_and_leave(client)
    node.engine.faults.hold()
    deleting = asyncio.ensure_future(node.server.node.cell.current.coordinators.delete("g"))
    deleting.cancel()
    node.engine.faults.release()
    await until(lambda: stored_groups(coordinators_of(node)) == 0)


async def test_a_group_deleted_while_somebody_is_about_to_join_leaves_no_timer(node: Node, client: Client) -> None:
    client.send(join_request(session_timeout_ms=20))
    client.send(DeleteGroupsRequest(groups_names=["g"]))  # in the same turn: the id given out is still good
    assert (await client.receive()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await client.receive()).results[0].error_code == 0
    joined = await client.ask(join_request(), 3)  # a group of the same name; the first one's timer would end it
    other = await client.ask(join_request(group_id="other", session_timeout_ms=40))
    assert other.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await until(lambda: group_ids(node) == ["g"])
    assert (await describe(client)).members[0].member_id == joined.member_id
