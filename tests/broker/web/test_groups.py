from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pqbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions as OwnedPartitions
from pqbroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from pqbroker.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from pqbroker.protocol.messages.leave_group import LeaveGroupRequest
from tests.broker.services.coordination.classic.test_handlers import join_request, sync_request
from tests.broker.web.conftest import Web
from tests.broker.wire import Client


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    """A node with a topic t of three partitions, of 3, 0 and 1 records, whose groups wait for nobody."""
    web = await serve(group_initial_rebalance_delay_ms=0)
    await web.node.create_topic("t", 3)
    await web.node.produce("t", b"a", b"b", b"c")
    await web.node.produce("t", b"a", partition=2)
    return web


def consumer_data(declared: Any) -> bytes:
    """Bytes of the consumers' protocol, version 0."""
    return b"\0\0" + b"".join(map(bytes, encoder(type(declared), 0)(declared)))


async def join(client: Client, assignment: bytes, **fields: Any) -> JoinGroupResponse:
    """A member that leads a group of one, subscribed to t, and assigns itself this."""
    wants = consumer_data(ConsumerProtocolSubscription(topics=["t"]))
    fields.setdefault("protocols", [JoinGroupRequestProtocol(name="range", metadata=wants)])
    joined: JoinGroupResponse = await client.ask(join_request(**fields), 5)
    if joined.error_code:
        joined = await client.ask(join_request(joined.member_id, **fields), 5)
    request = sync_request(joined.member_id, joined.generation_id, **{joined.member_id: assignment})
    request.group_instance_id = fields.get("group_instance_id")
    request.protocol_type, request.protocol_name = fields.get("protocol_type", "consumer"), joined.protocol_name
    assert (await client.ask(request)).error_code == 0
    return joined


async def commit(web: Web, group_id: str, *offsets: int, topic: str = "t", metadata: str = "") -> None:
    """Commit an offset for each of the topic's first partitions."""
    states = {
        (topic, index): ConsumerOffset(offset, metadata=metadata, commit_ms=web.node.clock())
        for index, offset in enumerate(offsets)
    }
    outcomes = await web.node.server.node.cell.current.topics.offsets.commit(group_id, states)
    assert set(outcomes.values()) == {None}


async def test_a_group_is_described_with_members_offsets_and_lag(web: Web) -> None:
    client = await web.node.connect()
    assigned = [TopicPartition(topic="t", partitions=[0, 2])]
    assignment = consumer_data(ConsumerProtocolAssignment(assigned_partitions=assigned))
    joined = await join(client, assignment, group_instance_id="one")
    await commit(web, "g", 1, 5, metadata="x")
    status, group = await web.ask("GET", "/v1/groups/g")
    assert status == 200
    member = {
        "id": joined.member_id, "instance_id": "one", "client_id": "test", "host": "127.0.0.1",
        "assignment": [{"topic": "t", "partitions": [0, 2]}], "reconciliation": None, "subscription": None,
    }  # fmt: skip
    facts = {
        "name": "g", "type": "classic", "state": "Stable", "protocol_type": "consumer", "member_count": 1,
        "topics": ["t"], "lag": 2,
    }  # fmt: skip
    told = {"topic": "t", "metadata": "x", "commit_timestamp": web.node.clock()}
    assert group == {
        "cell": "0", **facts, "generation": 1, "target_epoch": None, "protocol": "range", "leader": joined.member_id,
        "members": [member], "members_next": None,
        "partitions": [
            {**told, "partition": 0, "offset": 1, "end_offset": 3, "lag": 2},
            {**told, "partition": 1, "offset": 5, "end_offset": 0, "lag": 0},
        ],
        "next": None,
    }  # fmt: skip
    assert await web.ask("GET", "/v1/groups") == (200, {"cell": "0", "groups": [facts], "total": 1, "next": None})


async def test_a_reconciliation_is_seen_member_by_member(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(group_consumer_assignment_interval_ms=0)
    topic_id = await web.node.create_topic("t", 2)
    client = await web.node.connect()
    first = await join_consumer(client, "a", rack_id="r", server_assignor="uniform")
    await join_consumer(client, "b")
    status, group = await web.ask("GET", "/v1/groups/g")
    assert (status, group["type"], group["state"], group["protocol"]) == (200, "consumer", "Reconciling", "uniform")
    assert (group["member_count"], group["topics"], group["generation"]) == (2, ["t"], group["target_epoch"])
    before, after = group["members"]
    assert before["assignment"] == [{"topic": "t", "partitions": [0, 1]}]
    assert before["reconciliation"] == {
        "state": "Stable", "epoch": first.member_epoch, "revoking": [], "target": [{"topic": "t", "partitions": [0]}],
    }  # fmt: skip
    assert before["subscription"] == {"topics": ["t"], "expression": None, "assignor": "uniform", "rack_id": "r"}
    assert after["assignment"] == []
    assert after["reconciliation"]["state"] == "UnreleasedPartitions"
    assert after["reconciliation"]["target"] == [{"topic": "t", "partitions": [1]}]
    assert (await client.ask(beat_request("a", first.member_epoch), 1)).error_code == 0
    _, group = await web.ask("GET", "/v1/groups/g")
    told = group["members"][0]
    assert told["assignment"] == [{"topic": "t", "partitions": [0]}]
    assert told["reconciliation"]["state"] == "UnrevokedPartitions"
    assert told["reconciliation"]["revoking"] == [{"topic": "t", "partitions": [1]}]
    owned = [OwnedPartitions(topic_id=topic_id, partitions=[0])]
    released = await client.ask(beat_request("a", first.member_epoch, topic_partitions=owned), 1)
    assert released.error_code == 0
    _, listed = await web.ask("GET", "/v1/groups")
    assert [(one["name"], one["type"]) for one in listed["groups"]] == [("g", "consumer")]


def beat_request(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)


async def join_consumer(client: Client, member_id: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """A member of the consumer protocol that reads t."""
    request = beat_request(
        member_id, 0, subscribed_topic_names=["t"], topic_partitions=[], rebalance_timeout_ms=60_000, **fields
    )
    joined: ConsumerGroupHeartbeatResponse = await client.ask(request, 1)
    assert joined.error_code == 0
    return joined


async def test_a_group_with_members_that_has_committed_nothing_has_no_lag(web: Web) -> None:
    await join(await web.node.connect(), b"")
    _, group = await web.ask("GET", "/v1/groups/g")
    assert (group["topics"], group["lag"], group["partitions"]) == (["t"], None, [])
    assert group["members"][0]["assignment"] == []


@pytest.mark.parametrize(
    ("protocol_type", "assignment"), [("connect", b"\0\1private"), ("consumer", b"\0\0no such thing")]
)
async def test_assignments_in_a_format_of_their_own_are_not_told(
    web: Web, protocol_type: str, assignment: bytes
) -> None:
    await join(await web.node.connect(), assignment, protocol_type=protocol_type)
    _, group = await web.ask("GET", "/v1/groups/g")
    assert group["state"] == "Stable"
    assert group["members"][0]["assignment"] is None


async def test_while_a_group_rebalances_neither_protocol_nor_assignments_are_told(web: Web) -> None:
    await join(await web.node.connect(), b"")
    (await web.node.connect()).send(join_request(), 3)
    group: Any = {}
    while group.get("member_count") != 2:
        _, group = await web.ask("GET", "/v1/groups/g")
    assert (group["state"], group["protocol"]) == ("PreparingRebalance", None)
    assert [member["assignment"] for member in group["members"]] == [None, None]


async def test_groups_members_and_partitions_are_listed_a_page_at_a_time(web: Web) -> None:
    await web.node.create_topic("a-1")
    for name in ("y", "x", "z"):
        await commit(web, name, 0)
    _, first = await web.ask("GET", "/v1/groups?limit=2")
    assert ([group["name"] for group in first["groups"]], first["next"]) == (["x", "y"], "y")
    _, second = await web.ask("GET", "/v1/groups?after=y&limit=2")
    assert ([group["name"] for group in second["groups"]], second["next"]) == (["z"], None)
    await commit(web, "x", 1, 1, 1)
    await commit(web, "x", 1, topic="a-1")
    found = []
    after = ""
    while after is not None:
        _, page = await web.ask("GET", f"/v1/groups/x?limit=1{after and '&after=' + after}")
        found += [(one["topic"], one["partition"]) for one in page["partitions"]]
        assert page["lag"] == 2  # of the group, not of the page
        after = page["next"]
    assert found == [("a-1", 0), ("t", 0), ("t", 1), ("t", 2)]


async def test_members_are_listed_a_page_at_a_time(web: Web) -> None:
    for _ in range(3):
        (await web.node.connect()).send(join_request(), 3)
    group: Any = {}
    while group.get("member_count") != 3:
        _, group = await web.ask("GET", "/v1/groups/g")
    ids = [member["id"] for member in group["members"]]
    assert ids == sorted(ids)
    _, first = await web.ask("GET", "/v1/groups/g?limit=2")
    assert ([member["id"] for member in first["members"]], first["members_next"]) == (ids[:2], ids[1])
    _, second = await web.ask("GET", f"/v1/groups/g?limit=2&members_after={ids[1]}")
    assert ([member["id"] for member in second["members"]], second["members_next"]) == (ids[2:], None)


async def test_offsets_are_set_in_one_commit(web: Web) -> None:
    await commit(web, "g", 3, 0, metadata="x")
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 2, "offset": 0}]}
    status, group = await web.ask("POST", "/v1/groups/g/offsets", body)
    assert status == 200
    assert [(one["partition"], one["offset"], one["metadata"], one["lag"]) for one in group["partitions"]] == [
        (0, 1, "", 2), (1, 0, "x", 0), (2, 0, "", 1),
    ]  # fmt: skip
    assert await web.ask("GET", "/v1/groups/g") == (200, group)
    offsets = web.node.server.node.cell.current.topics.offsets.of("g")
    assert offsets["t", 0] == ConsumerOffset(1, commit_ms=web.node.clock())


async def test_setting_offsets_makes_a_group_that_was_not_there(web: Web) -> None:
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
    status, group = await web.ask("POST", "/v1/groups/new%2F1/offsets", body)
    assert status == 200
    assert (group["name"], group["state"], group["generation"], group["lag"]) == ("new/1", "Empty", 0, 2)


async def test_a_group_is_deleted_with_its_offsets_and_not_while_it_has_members(web: Web) -> None:
    client = await web.node.connect()
    joined = await join(client, b"")
    await commit(web, "g", 1)
    refused = await web.refusal("DELETE", "/v1/groups/g")
    assert refused[:2] == (409, "NON_EMPTY_GROUP")
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]}
    refused = await web.refusal("POST", "/v1/groups/g/offsets", body)
    assert refused[:2] == (409, "NON_EMPTY_GROUP")
    assert web.node.server.node.cell.current.topics.offsets.of("g")["t", 0].offset == 1
    await client.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    assert await web.ask("DELETE", "/v1/groups/g") == (204, None)
    assert (await web.refusal("GET", "/v1/groups/g"))[:2] == (404, "GROUP_ID_NOT_FOUND")
    assert await web.ask("GET", "/v1/groups") == (200, {"cell": "0", "groups": [], "total": 0, "next": None})


def offsets(*places: tuple[str, int, int]) -> dict[str, Any]:
    return {"offsets": [{"topic": topic, "partition": index, "offset": offset} for topic, index, offset in places]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "word"),
    [
        ("GET", "/v1/groups/x", None, 404, "GROUP_ID_NOT_FOUND", "no group x"),
        ("DELETE", "/v1/groups/x", None, 404, "GROUP_ID_NOT_FOUND", "no group x"),
        ("GET", "/v1/groups/g?after=t", None, 400, "INVALID_REQUEST", "TOPIC-PARTITION"),
        ("GET", "/v1/groups/g?after=t-x", None, 400, "INVALID_REQUEST", "TOPIC-PARTITION"),
        ("GET", "/v1/groups/g?after=t-" + "9" * 5000, None, 400, "INVALID_REQUEST", "TOPIC-PARTITION"),
        ("GET", "/v1/groups/%ff", None, 400, "INVALID_REQUEST", "no UTF-8"),
        ("POST", "/v1/groups/%ff/offsets", offsets(("t", 0, 1)), 400, "INVALID_REQUEST", "no UTF-8"),
        ("GET", "/v1/topics/t/records?key=%ff", None, 400, "INVALID_REQUEST", "no UTF-8"),
        ("GET", "/v1/groups?limit=1001", None, 400, "INVALID_REQUEST", "pqbroker.http.items.max"),
        ("POST", "/v1/groups/g/offsets", offsets(("u", 0, 1)), 404, "UNKNOWN_TOPIC_OR_PARTITION", "no topic 'u'"),
        ("POST", "/v1/groups/g/offsets", offsets(("t", 3, 1)), 404, "UNKNOWN_TOPIC_OR_PARTITION", "partition"),
        ("POST", "/v1/groups/g/offsets", offsets(("t", 0, 1), ("t", 0, 2)), 400, "INVALID_REQUEST", "twice"),
        ("POST", "/v1/groups/g/offsets", offsets(), 400, "INVALID_REQUEST", "give 1 to 1000"),
        ("POST", "/v1/groups/g/offsets", offsets(("t", 0, -1)), 400, "INVALID_BODY", "least allowed is 0"),
        ("POST", "/v1/groups/g/offsets", offsets(("t", 0, 1 << 63)), 400, "INVALID_BODY", "most allowed"),
        ("POST", "/v1/groups/" + "g" * 5000 + "/offsets", offsets(("t", 0, 1)), 400, "INVALID_GROUP_ID", "group id"),
    ],
)
async def test_what_cannot_be_is_refused(
    web: Web, method: str, path: str, body: Any, status: int, code: str, word: str
) -> None:
    await commit(web, "g", 0)
    refused = await web.refusal(method, path, body)
    assert refused[:2] == (status, code)
    assert word in refused[2]


async def test_a_commit_that_the_store_refuses_is_told_as_something_to_try_again(web: Web) -> None:
    web.node.engine.faults.refuse_next()
    refused = await web.refusal("POST", "/v1/groups/g/offsets", offsets(("t", 0, 1)))
    assert refused[:2] == (503, "COORDINATOR_NOT_AVAILABLE")
    assert "partition 0 of t" in refused[2]


async def test_a_lost_cell_is_told_as_something_to_wait_for(web: Web) -> None:
    await web.node.engine.open()
    await web.node.produce("t", b"a")
    for path in ("/v1/groups", "/v1/groups/g"):
        assert (await web.refusal("GET", path))[:2] == (503, "NOT_COORDINATOR")


async def test_groups_are_found_by_a_part_of_the_name_and_sorted_in_pages(web: Web) -> None:
    for name, offset in (("Pay.eu", 3), ("pay.us", 0), ("pay.uk", 1), ("other", 2)):
        await commit(web, name, offset)
    _, found = await web.ask("GET", "/v1/groups?contains=PAY&limit=2")
    assert [group["name"] for group in found["groups"]] == ["Pay.eu", "pay.uk"]
    assert (found["total"], found["next"]) == (3, "pay.uk")
    for order, names in (
        ("sort=lag", ["pay.us", "pay.uk", "Pay.eu"]), ("sort=lag&order=ascending", ["Pay.eu", "pay.uk", "pay.us"]),
        ("sort=state", ["Pay.eu", "pay.uk", "pay.us"]), ("order=descending", ["pay.us", "pay.uk", "Pay.eu"]),
    ):  # fmt: skip
        _, first = await web.ask("GET", f"/v1/groups?contains=pay&{order}&limit=2")
        _, second = await web.ask("GET", f"/v1/groups?contains=pay&{order}&limit=2&after={first['next']}")
        assert [group["name"] for group in (*first["groups"], *second["groups"])] == names, order
        assert second["next"] is None
    assert (await web.refusal("GET", "/v1/groups?sort=colour"))[0] == 400
