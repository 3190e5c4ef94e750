"""Groups that move between the classic protocol and that of KIP-848 while members read."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pqbroker.broker.ground.turns import SLICE_S, Turns
from pqbroker.broker.services.coordination import upgrades
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.messages import Join, Joined
from pqbroker.broker.services.coordination.classic.subscriptions import VERSION, read_assignment
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.broker.services.coordination.modern.migration import from_classic
from pqbroker.broker.services.coordination.modern_groups import ModernGroups
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions
from pqbroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from pqbroker.protocol.messages.heartbeat import HeartbeatRequest
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pqbroker.protocol.messages.list_groups import ListGroupsRequest
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberImage, MemberProtocol
from tests.broker.conftest import Node, until
from tests.broker.services.coordination.modern.rig import LIMITS, Topics, partitions, topic_id
from tests.broker.services.coordination.modern.test_handlers import MINUTE_MS, beat, commit, describe, join
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]


def data_of(version: int, message: Any) -> bytes:
    """Return what consumers send each other."""
    return VERSION.pack(version) + b"".join(map(bytes, encoder(type(message), version)(message)))


def subscription(*owned: int, topics: Sequence[str] = ("t",)) -> bytes:
    """Return the subscription of a cooperative consumer that owns partitions of the topic."""
    wants = ConsumerProtocolSubscription(topics=list(topics))
    if owned:
        wants.owned_partitions = [TopicPartition(topic="t", partitions=list(owned))]
    return data_of(1, wants)


def assignment(*partitions: int) -> bytes:
    named = [TopicPartition(topic="t", partitions=list(partitions))]
    return data_of(1, ConsumerProtocolAssignment(assigned_partitions=named))


def partitions_of(synced: SyncGroupResponse) -> list[int]:
    found = read_assignment("range", synced.assignment)
    assert found is not None
    return sorted(index for each in found for index in each.partitions)


async def classic_join(client: Client, member_id: str, metadata: bytes, **fields: Any) -> JoinGroupResponse:
    """Join, with the id that the broker gives where there is none."""
    wanted: dict[str, Any] = {"session_timeout_ms": MINUTE_MS, "rebalance_timeout_ms": MINUTE_MS}
    wanted["protocol_type"] = "consumer"
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(group_id="g", member_id=member_id, protocols=protocols, **(wanted | fields))
    joined: JoinGroupResponse = await client.ask(request)
    if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return joined
    return await classic_join(client, joined.member_id, metadata, **fields)


async def sync(client: Client, joined: JoinGroupResponse, **shares: bytes) -> SyncGroupResponse:
    assignments = [SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in shares.items()]
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, protocol_type="consumer",
        protocol_name="range", assignments=assignments,
    )  # fmt: skip
    found: SyncGroupResponse = await client.ask(request)
    return found


async def classic_beat(client: Client, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    code: ErrorCode = (await client.ask(request)).error_code
    return code


async def rebalance_begins(client: Client, member: JoinGroupResponse) -> None:
    """Send heartbeats until the member is asked to join again."""
    async with asyncio.timeout(10):
        while await classic_beat(client, member.member_id, member.generation_id) == 0:
            pass


async def types(client: Client) -> list[str]:
    return [each.group_type for each in (await client.ask(ListGroupsRequest())).groups]


@pytest.fixture
async def node(start: Start) -> Node:
    return await start(
        group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0, group_min_session_timeout_ms=1
    )


@pytest.fixture
async def topic(node: Node) -> bytes:
    return await node.create_topic("t", 4)


async def form_classic(client: Client, **fields: Any) -> JoinGroupResponse:
    """A stable classic group of one member that reads everything."""
    joined = await classic_join(client, "", subscription(), **fields)
    assert joined.error_code == 0
    assert partitions_of(await sync(client, joined, **{joined.member_id: assignment(0, 1, 2, 3)})) == [0, 1, 2, 3]
    return joined


async def share(client: Client, topic: bytes) -> tuple[JoinGroupResponse, list[int], list[int]]:
    """A group of a classic member and one of KIP-848, `m`, each with its part."""
    first = await form_classic(client)
    assert (await join(client, "m")).assignment.topic_partitions == []  # type: ignore[union-attr]
    assert await classic_beat(client, first.member_id, first.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await classic_join(client, first.member_id, subscription(0, 1, 2, 3))
    kept = partitions_of(await sync(client, again))
    assert len(kept) == 2
    assert (await beat(client, "m", 2)).assignment is None  # what the classic member has not let go of
    assert await classic_beat(client, again.member_id, again.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    last = await classic_join(client, first.member_id, subscription(*kept))
    assert partitions_of(await sync(client, last)) == kept
    assert await classic_beat(client, last.member_id, last.generation_id) == 0
    given = (await beat(client, "m", 2)).assignment
    assert given is not None
    (assigned,) = given.topic_partitions
    assert sorted(kept + assigned.partitions) == [0, 1, 2, 3]
    return last, kept, sorted(assigned.partitions)


async def test_a_classic_group_moves_when_a_member_of_the_other_protocol_joins(client: Client, topic: bytes) -> None:
    last, kept, _ = await share(client, topic)
    group = await describe(client)
    assert group.group_state == "Stable"
    assert sorted(member.member_type for member in group.members) == [0, 1]
    assert await types(client) == ["consumer"]
    assert await commit(client, last.member_id, last.generation_id, topic, version=8) == [0, 0]
    assert await commit(client, last.member_id, 99, topic, version=8) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert kept


async def test_a_group_that_moves_in_slices_is_a_classic_one_until_it_has_moved(
    client: Client, topic: bytes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "FEW_MEMBERS", 0)
    last, kept, shared = await share(client, topic)
    assert await types(client) == ["consumer"]
    assert sorted(kept + shared) == [0, 1, 2, 3]
    assert await classic_beat(client, last.member_id, last.generation_id) == 0


async def test_a_heartbeat_that_waits_for_a_group_to_move_is_told_of_a_restart(
    client: Client, topic: bytes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    building = asyncio.Event()

    def build_for_ever(_turns: Turns, _work: Any) -> "asyncio.Future[Any]":
        building.set()
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(upgrades, "FEW_MEMBERS", 0)
    monkeypatch.setattr(Turns, "finish", build_for_ever)
    await form_classic(client)
    waiting = asyncio.ensure_future(join(await node.connect(), "m"))
    await building.wait()
    for tablet in COORDINATOR_IDS:
        await node.server.node.cell.current.host.restart(tablet)
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_group_moves_back_when_the_last_member_of_the_protocol_leaves(client: Client, topic: bytes) -> None:
    last, kept, _ = await share(client, topic)
    assert (await beat(client, "m", -1)).member_epoch == -1
    assert await types(client) == ["classic"]
    assert await classic_beat(client, last.member_id, last.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = await classic_join(client, last.member_id, subscription(*kept))
    assert joined.leader == last.member_id
    assert joined.generation_id > last.generation_id
    synced = await sync(client, joined, **{last.member_id: assignment(0, 1, 2, 3)})
    assert partitions_of(synced) == [0, 1, 2, 3]


async def test_a_group_moves_back_when_the_session_of_the_last_member_ends(
    client: Client, topic: bytes, node: Node
) -> None:
    await share(client, topic)
    node.server.node.cell.current.coordinators.advance(46_000)
    assert await types(client) == ["classic"]


async def test_a_classic_member_leaves_a_mixed_group(client: Client, topic: bytes) -> None:
    last, _, given = await share(client, topic)
    members = [MemberIdentity(member_id=last.member_id), MemberIdentity(member_id="nobody")]
    left = await client.ask(LeaveGroupRequest(group_id="g", members=members))
    assert [each.error_code for each in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    owned = [TopicPartitions(topic_id=topic, partitions=given)]
    async with asyncio.timeout(10):  # a slow machine works the target out in several turns
        while (all_of_it := (await beat(client, "m", 2, topic_partitions=owned)).assignment) is None:
            pass
    assert sorted(all_of_it.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert await types(client) == ["consumer"]


async def test_a_classic_member_that_does_not_join_again_is_removed(
    client: Client, topic: bytes, node: Node
) -> None:
    first = await form_classic(client, rebalance_timeout_ms=5_000)
    await join(client, "m")
    for _ in range(2):
        assert await classic_beat(client, first.member_id, first.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
        node.server.node.cell.current.coordinators.advance(3_000)
    assert await classic_beat(client, first.member_id, first.generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.member_id for member in (await describe(client)).members] == ["m"]


async def test_a_classic_member_that_does_not_sync_is_removed(client: Client, topic: bytes, node: Node) -> None:
    await join(client, "m")
    await classic_join(client, "", subscription(), rebalance_timeout_ms=5_000)
    assert len((await describe(client)).members) == 2
    node.server.node.cell.current.coordinators.advance(5_001)
    assert [member.member_id for member in (await describe(client)).members] == ["m"]


async def test_members_that_wait_in_a_rebalance_join_the_group_that_it_becomes(
    client: Client, topic: bytes, node: Node
) -> None:
    first = await form_classic(client)
    other = await node.connect()
    waiting = asyncio.ensure_future(classic_join(other, "", subscription()))
    await rebalance_begins(client, first)
    third = await node.connect()
    assert (await join(third, "m")).error_code == 0
    joined = await waiting
    assert joined.error_code == 0
    assert partitions_of(await sync(other, joined)) == []  # the first member holds all yet
    assert len((await describe(third)).members) == 3


async def test_joins_that_move_with_their_group_have_turns_of_their_own(
    client: Client, topic: bytes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a whole slice here, so no two may share a turn of the loop."""
    first = await form_classic(client)
    coordinators = node.server.node.cell.current.coordinators
    answers: list[Joined] = []
    for number in range(8):
        protocols = (MemberProtocol("range", subscription()),)
        request = Join("", None, "consumer", protocols, MINUTE_MS, MINUTE_MS, f"m{number}", requires_known_id=False)
        coordinators.join("g", request, answers.append)
    await rebalance_begins(client, first)
    joined, turns = ModernGroups.classic_join, Counter[int]()
    passed = 0

    def pass_turn() -> None:
        nonlocal passed
        passed += 1
        if len(answers) < 8:
            asyncio.get_running_loop().call_soon(pass_turn)

    def join_slowly(groups: ModernGroups, *asked: Any) -> None:
        turns[passed] += 1
        end_s = time.perf_counter() + SLICE_S
        while time.perf_counter() < end_s:
            pass
        joined(groups, *asked)

    monkeypatch.setattr(ModernGroups, "classic_join", join_slowly)
    pass_turn()
    assert (await join(await node.connect(), "m")).error_code == 0
    await until(lambda: len(answers) == 8)
    assert {each.error for each in answers} == {ErrorCode.NONE}
    assert max(turns.values()) == 1


async def test_a_group_that_moves_while_its_assignment_is_stored_is_nothing_but_what_it_became(
    client: Client, topic: bytes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await classic_join(client, "", subscription())
    store, told = Coordinator.store, list[Callable[[], None]]()

    def tell_later(held: Coordinator, plan: Any, done: Callable[[BaseException | None], None]) -> Any:
        return store(held, plan, lambda error: told.append(lambda: done(error)))

    monkeypatch.setattr(Coordinator, "store", tell_later)
    waiting = asyncio.ensure_future(sync(client, first, **{first.member_id: assignment(0, 1, 2, 3)}))
    await until(lambda: bool(told))
    monkeypatch.setattr(Coordinator, "store", store)
    other = await node.connect()
    assert (await join(other, "m")).error_code == 0
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    coordinators = node.server.node.cell.current.coordinators
    taken = coordinators.taken_bytes
    told.pop()()
    assert coordinators.taken_bytes == taken
    coordinators.advance(2 * MINUTE_MS)  # nobody is there any more
    assert await types(other) == ["consumer"]
    assert (await describe(other)).members == []
    for tablet in COORDINATOR_IDS:
        await node.server.node.cell.current.host.restart(tablet)
    assert await types(other) == ["consumer"]


@pytest.mark.parametrize("becomes", ["consumer", "classic"])
async def test_a_group_whose_deletion_is_refused_stays_away_where_another_has_its_id(
    client: Client, topic: bytes, node: Node, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    coordinators = node.server.node.cell.current.coordinators
    if becomes == "consumer":
        first = await form_classic(client)
        await client.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=first.member_id)]))
    else:
        await join(client, "m")
        await beat(client, "m", -1)
    store, told = Coordinator.store, list[Callable[[BaseException | None], None]]()

    def refuse_later(held: Coordinator, plan: Any, done: Callable[[BaseException | None], None]) -> Any:
        told.append(done)
        return asyncio.sleep(0)

    monkeypatch.setattr(Coordinator, "store", refuse_later)
    await coordinators.delete("g")
    monkeypatch.setattr(Coordinator, "store", store)
    if becomes == "consumer":
        await join(client, "m")
    else:
        await form_classic(client)
    taken = coordinators.taken_bytes
    told.pop()(CommitRefused("no room"))
    assert coordinators.taken_bytes == taken
    assert await types(client) == [becomes]


async def test_a_static_member_takes_its_place_over_in_either_protocol(client: Client, topic: bytes) -> None:
    await form_classic(client, group_instance_id="i")
    joined = await join(client, "m", instance_id="i")
    assert joined.assignment is not None
    assert sorted(joined.assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert await types(client) == ["consumer"]
    back = await classic_join(client, "", subscription(), group_instance_id="i")
    assert back.error_code == 0
    assert await types(client) == ["classic"]
    assert (await beat(client, "m", 2, instance_id="i")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("policy", "moves"), [("bidirectional", True), ("upgrade", True), ("downgrade", False), ("disabled", False)]
)
async def test_a_group_moves_only_where_the_policy_lets_it(start: Start, policy: str, moves: bool) -> None:
    node = await start(group_consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0)
    await node.create_topic("t", 4)
    client = await node.connect()
    await form_classic(client)
    assert ((await join(client, "m")).error_code == 0) is moves


async def test_a_disabled_policy_keeps_classic_members_out(start: Start) -> None:
    node = await start(group_consumer_migration_policy="disabled")
    await node.create_topic("t", 4)
    client = await node.connect()
    await join(client, "m")
    assert (await classic_join(client, "", subscription())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("policy", "kind"), [("upgrade", "consumer"), ("downgrade", "classic")])
async def test_a_group_moves_back_only_where_the_policy_lets_it(start: Start, policy: str, kind: str) -> None:
    node = await start(group_consumer_migration_policy=policy)
    await node.create_topic("t", 4)
    client = await node.connect()
    await join(client, "m")
    joined = await classic_join(client, "", subscription())
    assert joined.error_code == 0
    await beat(client, "m", -1)
    assert await types(client) == [kind]


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "given"),
    [
        ("connect", subscription(), assignment(0)), ("consumer", b"\xff", assignment(0)),
        ("consumer", subscription(), b"x"),
    ],
)  # fmt: skip
async def test_a_group_whose_bytes_are_its_own_does_not_move(
    client: Client, topic: bytes, protocol_type: str, metadata: bytes, given: bytes
) -> None:
    joined = await classic_join(client, "", metadata, protocol_type=protocol_type)
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, protocol_type=protocol_type,
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=given)],
    )  # fmt: skip
    assert (await client.ask(request)).error_code == 0
    refused = await join(client, "m")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message.startswith("Cannot upgrade classic group g to consumer group")  # type: ignore[union-attr]
    assert await classic_beat(client, joined.member_id, joined.generation_id) == 0


async def test_a_leader_that_assigns_what_is_not_there_or_twice_costs_nothing(
    client: Client, topic: bytes, node: Node
) -> None:
    first = await classic_join(client, "", subscription())
    other = await node.connect()
    await sync(client, first, **{first.member_id: assignment(0, 0, 9, -1)})
    second = asyncio.ensure_future(classic_join(other, "", subscription()))
    await rebalance_begins(client, first)
    third = await node.connect()
    await join(third, "m")
    assert (await second).error_code == 0
    held = {member.member_id: member.assignment for member in (await describe(third)).members}
    assert [each.partitions for each in held[first.member_id].topic_partitions] == [[0]]


def test_a_partition_that_a_leader_gave_to_two_members_is_held_by_one() -> None:
    members = tuple(
        MemberImage(name, None, "c", "h", 1000, 1000, (MemberProtocol("range", subscription()),), assignment(0, 1))
        for name in ("a", "b")
    )
    group = Group.load(GroupImage("g", 7, "consumer", "range", "a", members), LIMITS, 0)
    topics = Topics()
    topics.put("t", 4)
    modern = from_classic(group, topics)
    held = [partitions(member.current.assigned) for member in modern.members.values()]
    assert held == [{(topic_id("t"), 0), (topic_id("t"), 1)}, set()]
    assert (modern.epoch, modern.assignment_epoch) == (7, 7)


async def test_a_mixed_group_after_a_restart_is_the_group_before(client: Client, topic: bytes, node: Node) -> None:
    last, kept, _ = await share(client, topic)
    before = await describe(client)
    for tablet in COORDINATOR_IDS:
        await node.server.node.cell.current.host.restart(tablet)
    after = await describe(client)
    for group in (before, after):
        group.members.sort(key=lambda member: member.member_id)
    assert after == before
    assert await classic_beat(client, last.member_id, last.generation_id) == 0
    assert partitions_of(await sync(client, last)) == kept
