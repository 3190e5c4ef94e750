"""The door for tests over HTTP: faults of requests, and the clock."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.web.conftest import Web

DAY_MS = 86_400_000


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    """A test broker with a topic."""
    web = await serve(
        test_door=True, test_faults_max=2, test_hold_ms_max=5000, test_clock_ms_max=10 * DAY_MS,
        group_initial_rebalance_delay_ms=0,
    )  # fmt: skip
    await web.node.create_topic("t", retention_ms=str(DAY_MS), message_timestamp_type="LogAppendTime")
    return web


async def begin(web: Web, **fields: Any) -> Any:
    status, document = await web.ask("POST", "/v1/test/faults", fields)
    assert status == 201, document
    return document


async def faults(web: Web) -> list[Any]:
    status, document = await web.ask("GET", "/v1/test/faults")
    assert status == 200
    listed: list[Any] = document["faults"]
    return listed


async def produced(web: Web) -> ErrorCode:
    code: ErrorCode = (await web.node.produce("t", b"v")).error_code
    return code


@pytest.mark.parametrize("api", ["Produce", 0])
async def test_a_fault_is_given_by_name_or_key_and_met(web: Web, api: str | int) -> None:
    begun = await begin(web, act="error", api=api, error="NOT_LEADER_OR_FOLLOWER", topic="t", partition=0, times=1)
    assert begun["api"] == "Produce"
    assert await faults(web) == [begun]
    assert [await produced(web), await produced(web)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert await faults(web) == []


async def test_one_fault_is_ended_or_all_of_them(web: Web) -> None:
    one = await begin(web, act="error", api="Produce", error="UNKNOWN_SERVER_ERROR")
    await begin(web, act="pause", hold_ms=5000)
    assert (await web.ask("POST", "/v1/test/store", {"fault": "fill"}))[1]["full"]
    assert await web.ask("DELETE", f"/v1/test/faults/{one['fault']}") == (204, None)
    assert (await web.refusal("DELETE", f"/v1/test/faults/{one['fault']}"))[:2] == (404, "NO_SUCH_FAULT")
    assert [each["act"] for each in await faults(web)] == ["pause"]
    assert await web.ask("DELETE", "/v1/test/faults") == (204, None)
    assert await faults(web) == []
    assert not (await web.ask("GET", "/v1/test/store"))[1]["full"]
    assert await produced(web) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"act": "burn"}, "there is no act 'burn'; there are error, delay, pause, disconnect"),
        ({"act": "error", "api": "Prodce", "error": "NONE"}, "did you mean Produce?"),
        ({"act": "error", "api": 999, "error": "NONE"}, "no API 999 is served"),
        ({"act": "error", "api": "Produce"}, "an error needs `api` and `error`"),
        ({"act": "error", "api": "Produce", "error": "NOT_LEADER"}, "did you mean NOT_"),
        ({"act": "error", "api": "Produce", "error": "NONE"}, "Kafka has no error 'NONE'"),
        ({"act": "error", "api": "Metadata", "error": "UNKNOWN_SERVER_ERROR", "topic": "t"}, "leave topic"),
        ({"act": "disconnect", "partition": 1}, "a partition needs its topic"),
        ({"act": "delay"}, "need hold_ms"),
        ({"act": "pause", "hold_ms": 5, "times": 2}, "a pause has no count"),
        ({"act": "delay", "hold_ms": 5001}, "the most allowed is 5000 (pqbroker.test.hold.ms.max)"),
    ],
)
async def test_a_fault_that_cannot_be_is_refused(web: Web, fields: Any, said: str) -> None:
    status, code, message = await web.refusal("POST", "/v1/test/faults", fields)
    assert (status, code) == (400, "INVALID_REQUEST")
    assert said in message
    assert await faults(web) == []


async def test_more_faults_than_the_limit_are_refused(web: Web) -> None:
    for _ in range(2):
        await begin(web, act="disconnect", api="ListGroups")
    status, code, message = await web.refusal("POST", "/v1/test/faults", {"act": "disconnect", "api": "ListGroups"})
    assert (status, code) == (409, "TOO_MANY_FAULTS")
    assert "pqbroker.test.faults.max" in message


async def test_a_delay_or_a_pause_over_the_limit_is_refused(web: Web) -> None:
    for act in ("delay", "pause"):
        _, _, message = await web.refusal("POST", "/v1/test/faults", {"act": act, "hold_ms": 5001})
        assert "pqbroker.test.hold.ms.max" in message


async def test_time_that_passes_takes_what_is_past_retention(web: Web) -> None:
    assert await produced(web) is ErrorCode.NONE
    _, clock = await web.ask("GET", "/v1/test/clock")
    assert clock["ahead_ms"] == 0
    _, moved = await web.ask("POST", "/v1/test/clock", {"advance_ms": 2 * DAY_MS})
    assert moved == {"now_ms": clock["now_ms"] + 2 * DAY_MS, "ahead_ms": 2 * DAY_MS}
    _, document = await web.ask("GET", "/v1/topics/t/records")
    assert (document["start_offset"], document["records"]) == (1, [])
    answer = await web.node.produce("t", b"v")
    assert answer.log_append_time_ms == moved["now_ms"]


async def test_a_member_that_is_silent_for_its_session_leaves_its_group(web: Web) -> None:
    client = await web.node.connect()
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip
    client.send(request, 3)
    assert (await client.receive()).error_code == ErrorCode.NONE
    for advance_ms, members in ((5000, 1), (5000, 0)):
        await web.ask("POST", "/v1/test/clock", {"advance_ms": advance_ms})
        assert len((await web.ask("GET", "/v1/groups/g"))[1]["members"]) == members


async def test_the_clock_does_not_move_beyond_its_limit(web: Web) -> None:
    status, _, message = await web.refusal("POST", "/v1/test/clock", {"advance_ms": 10 * DAY_MS + 1})
    assert status == 400
    assert "pqbroker.test.clock.ms.max" in message


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/test/faults", None),
        ("POST", "/v1/test/faults", {"act": "disconnect"}),
        ("DELETE", "/v1/test/faults", None),
        ("DELETE", "/v1/test/faults/1", None),
        ("GET", "/v1/test/clock", None),
        ("POST", "/v1/test/clock", {"advance_ms": 1}),
    ],
)
async def test_a_broker_that_is_not_for_tests_has_no_such_path(
    serve: Callable[..., Awaitable[Web]], method: str, path: str, body: Any
) -> None:
    web = await serve()
    status, code, message = await web.refusal(method, path, body)
    assert (status, code) == (404, "NO_TEST_DOOR")
    assert "pqbroker.test.door" in message
