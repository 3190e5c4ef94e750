"""The group APIs over a socket, and groups that outlive their node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pqbroker.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES, Clock, Node, until
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    defaults: dict[str, Any] = {
        "group_id": "g", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"wants")],
    }  # fmt: skip
    return JoinGroupRequest(member_id=member_id, **(defaults | fields))


def sync_request(member_id: str, generation: int, **shares: bytes) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in shares.items()]
    return SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member_id, assignments=assignments,
        protocol_type="consumer", protocol_name="range",
    )  # fmt: skip


async def form(client: Client, version: int = 9, **fields: Any) -> JoinGroupResponse:
    """A stable group of one; its assignment is b"all"."""
    joined = await client.ask(join_request(**fields), version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await client.ask(join_request(joined.member_id, **fields), version)
    assert joined.error_code == 0
    request = sync_request(joined.member_id, joined.generation_id, **{joined.member_id: b"all"})
    request.group_instance_id = fields.get("group_instance_id")
    request.protocol_type, request.protocol_name = joined.protocol_type or "consumer", joined.protocol_name
    synced: SyncGroupResponse = await client.ask(request)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined  # type: ignore[no-any-return]


async def beat(client: Client, member_id: str, generation: int, version: int = 4) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    code: int = (await client.ask(request, version)).error_code
    return code


async def describe(client: Client, group_id: str = "g", version: int = 6) -> DescribedGroup:
    found: DescribedGroup = (await client.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups[0]
    return found


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_heartbeats_and_leaves_in_every_version(client: Client, version: int) -> None:
    joined = await form(client, version)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [member.metadata for member in joined.members] == [b"wants"]
    for heartbeat_version in range(5):
        assert await beat(client, joined.member_id, 1, heartbeat_version) == 0
    left = await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), min(version, 2))
    assert left.error_code == 0
    assert (await describe(client)).group_state == "Empty"


async def test_a_dynamic_member_is_told_its_id_from_version_4(client: Client) -> None:
    first = await client.ask(join_request(), 4)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("test-")
    assert (await client.ask(join_request(first.member_id), 4)).error_code == 0


async def test_a_parked_join_holds_its_connection_and_no_other(node: Node, client: Client) -> None:
    leader = await form(client)
    parked = await node.connect()
    parked.send(join_request(), 3)
    parked.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="later"))
    other = await node.connect()
    while await beat(other, leader.member_id, 1) != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    client.send(join_request(leader.member_id))
    assert (await parked.receive()).generation_id == 2
    assert (await parked.receive()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.receive()).generation_id == 2


async def test_followers_get_their_assignment_with_the_leaders(node: Node, client: Client) -> None:
    leader = await form(client)
    other = await node.connect()
    other.send(join_request(), 3)
    while await beat(client, leader.member_id, 1) != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    joined = await client.ask(join_request(leader.member_id))
    follower = await other.receive()
    assert (len(joined.members), follower.members, follower.leader) == (2, [], leader.member_id)
    other.send(sync_request(follower.member_id, 2))
    await client.ask(sync_request(leader.member_id, 2, **{leader.member_id: b"0", follower.member_id: b"1"}))
    assert (await other.receive()).assignment == b"1"
    found = await describe(client)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert [(member.member_assignment, member.client_host) for member in found.members] == [
        (b"0", "/127.0.0.1"),
        (b"1", "/127.0.0.1"),
    ]


async def test_a_closed_connection_removes_nobody_but_the_session_does(node: Node, client: Client) -> None:
    gone = await Client.connect("127.0.0.1", node.server.kafka_address.port)
    joined = await form(gone, session_timeout_ms=150)
    await gone.close()
    assert [member.member_id for member in (await describe(client)).members] == [joined.member_id]
    async with asyncio.timeout(10):
        while (await describe(client)).group_state != "Empty":
            pass


async def test_members_leave_together_each_with_its_result(client: Client) -> None:
    await form(client, group_instance_id="i")
    members = [MemberIdentity(member_id="", group_instance_id="i"), MemberIdentity(member_id="nobody")]
    left = await client.ask(LeaveGroupRequest(group_id="g", members=members))
    assert left.error_code == 0
    assert [(member.group_instance_id, member.error_code) for member in left.members] == [
        ("i", 0),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]


async def test_a_group_needs_an_id(client: Client) -> None:
    requests = (
        join_request(group_id=""),
        SyncGroupRequest(
            group_id="", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        HeartbeatRequest(group_id="", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id=""),
    )
    for request in requests:
        assert (await client.ask(request)).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.UNKNOWN_MEMBER_ID), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
)
@pytest.mark.parametrize("left_out", ["protocol_type", "protocol_name"])
async def test_a_sync_of_version_5_names_the_protocol_and_its_type(
    client: Client, version: int, code: ErrorCode, left_out: str
) -> None:
    request = sync_request("m", 1)
    setattr(request, left_out, None)
    assert (await client.ask(request, version)).error_code == code


async def test_a_group_that_is_not_there_has_no_members(client: Client) -> None:
    assert await beat(client, "m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.ask(join_request("m"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.ask(sync_request("m", 1))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = await client.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]))
    assert left.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.ask(ListGroupsRequest())).groups == []


@pytest.mark.parametrize("version", range(7))
async def test_an_unknown_group_is_dead_and_an_error_from_version_6(client: Client, version: int) -> None:
    found = await describe(client, "nobody", version)
    assert found.group_state == "Dead"
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize(
    ("states", "types", "count"),
    [([], [], 1), (["stable"], [], 1), (["Empty"], [], 0), ([], ["Classic"], 1), ([], ["consumer"], 0), (["?"], [], 0)],
)
async def test_groups_are_listed_by_state_and_type(
    client: Client, states: list[str], types: list[str], count: int
) -> None:
    await form(client)
    listed = (await client.ask(ListGroupsRequest(states_filter=states, types_filter=types))).groups
    assert len(listed) == count
    for group in listed:
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        assert (group.group_state, group.group_type) == ("Stable", "classic")


async def test_a_group_with_members_is_not_deleted_and_one_without_is(client: Client) -> None:
    joined = await form(client)
    request = DeleteGroupsRequest(groups_names=["g", "nobody"])
    codes = [result.error_code for result in (await client.ask(request)).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    assert (await client.ask(request)).results[0].error_code == 0
    assert (await describe(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("group_id", ["g", ""])
async def test_a_group_that_only_has_offsets_is_empty_and_deleted_with_them(
    node: Node, client: Client, group_id: str
) -> None:
    await node.create_topic("t")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    commit = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    assert (await client.ask(commit, 9)).topics[0].partitions[0].error_code == 0
    (described,) = (await client.ask(DescribeGroupsRequest(groups=[group_id]))).groups
    assert described.group_state == "Empty"
    listed = (await client.ask(ListGroupsRequest())).groups
    assert [(group.group_id, group.protocol_type) for group in listed] == [(group_id, "")]
    assert (await client.ask(DeleteGroupsRequest(groups_names=[group_id]))).results[0].error_code == 0
    assert node.server.node.cell.current.topics.offsets.of(group_id) == {}


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_this_node_at_the_address_that_was_asked(
    node: Node, client: Client, version: int
) -> None:
    found = await client.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]), version)
    answers = found.coordinators if version >= 4 else [found]
    assert [answer.key for answer in found.coordinators] == (["g", "h"] if version >= 4 else [])
    for answer in answers:
        assert (answer.error_code, answer.node_id) == (0, 1)
        assert (answer.host, answer.port) == ("127.0.0.1", node.server.kafka_address.port)


async def test_stopping_answers_a_parked_join(node: Node, client: Client) -> None:
    await form(client)
    parked = await node.connect()
    parked.send(join_request(), 3)
    group = node.server.node.cell.current.coordinators
    await until(lambda: [each.members for each in group.groups()] == [2])
    stopping = asyncio.ensure_future(node.server.stop())
    assert (await parked.receive()).error_code == ErrorCode.NOT_COORDINATOR
    await stopping


async def test_members_go_on_in_their_generation_on_a_node_that_starts_anew() -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    settings = BrokerSettings(group_initial_rebalance_delay_ms=0)
    before = Server(settings, engine, Address("127.0.0.1", 0), None, Clock())
    await before.start()
    client = await Client.connect("127.0.0.1", before.kafka_address.port)
    joined = await form(client)
    described = await describe(client)
    await client.close()
    after = Server(settings, engine, Address("127.0.0.1", 0), None, Clock())
    await after.start()  # takes over, as after a kill: the first node has stored nothing at its end
    client = await Client.connect("127.0.0.1", after.kafka_address.port)
    assert await describe(client) == described
    assert await beat(client, joined.member_id, 1) == 0
    assert (await client.ask(sync_request(joined.member_id, 1))).assignment == b"all"
    await client.close()
    await after.stop()
    await before.stop()


async def test_a_deleted_group_stays_deleted_and_an_empty_one_counts_on() -> None:
    engine = MemoryEngine(ENGINE_BYTES)
    settings = BrokerSettings(group_initial_rebalance_delay_ms=0)
    for generation in (1, 3):
        server = Server(settings, engine, Address("127.0.0.1", 0), None, Clock())
        await server.start()
        client = await Client.connect("127.0.0.1", server.kafka_address.port)
        joined = await form(client)
        assert joined.generation_id == generation
        await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
        if generation == 3:
            await client.ask(DeleteGroupsRequest(groups_names=["g"]))
        await client.close()
        await server.stop()
    server = Server(settings, engine, Address("127.0.0.1", 0), None, Clock())
    await server.start()
    assert list(server.node.cell.current.coordinators.groups()) == []
    await server.stop()


async def test_after_the_loss_of_the_cell_members_go_on_and_who_waited_asks_again(node: Node, client: Client) -> None:
    await node.create_topic("t")
    leader = await form(client)
    parked = await node.connect()
    parked.send(join_request(), 3)
    await until(lambda: [each.members for each in node.server.node.cell.current.coordinators.groups()] == [2])
    node.engine.faults.lose_next()
    await node.produce("t", b"a")
    assert (await parked.receive()).error_code == ErrorCode.NOT_COORDINATOR
    await until(lambda: node.server.node.metrics.cell_openings == 2)
    assert await beat(client, leader.member_id, 1) == 0
    assert [member.member_id for member in (await describe(client)).members] == [leader.member_id]


@pytest.mark.spec("4.30")
async def test_a_refused_store_makes_members_join_again(node: Node, client: Client) -> None:
    joined = await client.ask(join_request(), 3)
    node.engine.faults.refuse_next()
    synced = await client.ask(sync_request(joined.member_id, 1, **{joined.member_id: b"all"}))
    assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await beat(client, joined.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await client.ask(join_request(joined.member_id))
    assert (again.error_code, again.generation_id) == (0, 2)
