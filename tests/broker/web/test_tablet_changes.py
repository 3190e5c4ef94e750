"""Tablets restarted and moved over HTTP."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_tablets import SCHEME, tablet_of_new_topic

MOVES = "/v1/tablets/{}/channels/2"


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]]) -> Web:
    return await serve(pools=("main", "big"))


async def values(web: Web) -> list[str]:
    _, document = await web.ask("GET", "/v1/topics/t/records")
    return [record["value"] for record in document["records"]]


async def test_a_tablet_is_restarted_and_its_records_stay(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    await web.node.produce("t", b"before")
    status, found = await web.ask("POST", f"/v1/tablets/{tablet}/restart", {})
    assert (status, found["id"]) == (200, tablet)
    assert (found["generation"], found["blocked_generation"], found["commits"]) == (2, 1, 0)
    assert (await web.node.produce("t", b"after")).error_code == 0
    assert await values(web) == ["before", "after"]
    _, partition = await web.ask("GET", "/v1/topics/t/partitions/0")
    assert partition["leader_epochs"] == [
        {"leader_epoch": 1, "start_offset": 0}, {"leader_epoch": 2, "start_offset": 1},
    ]  # fmt: skip


async def test_a_channel_moves_with_the_next_start_and_old_blobs_stay_where_they_are(web: Web) -> None:
    tablet = await tablet_of_new_topic(web)
    await web.node.produce("t", b"b" * 2000)
    _, moving = await web.ask("POST", MOVES.format(tablet), {"pool": "big"})
    history = [
        {"from_generation": 1, "pool_number": 0, "pool": "main", "group": 0},
        {"from_generation": 2, "pool_number": 1, "pool": "big", "group": 1},
    ]  # fmt: skip
    assert (moving["channels"][2]["history"], moving["channels"][2]["pool"]) == (history, "main")
    _, moved = await web.ask("POST", f"/v1/tablets/{tablet}/restart", {})
    assert (moved["channels"][2]["history"], moved["channels"][2]["pool"]) == (history, "big")
    assert {channel["pool"] for channel in moved["channels"][:2]} == {"main"}
    await web.node.produce("t", b"a" * 200_000)
    assert [len(value) for value in await values(web)] == [2000, 200_000]
    _, blobs = await web.ask("GET", f"/v1/blobs?tablet={tablet}")
    assert {(blob["generation"], blob["pool"]) for blob in blobs["blobs"]} >= {(2, "big")}
    assert all(blob["pool"] == {1: "main", 2: "big"}[blob["generation"]] for blob in blobs["blobs"])


@pytest.mark.parametrize("field", ["pool_number", "group"])
async def test_a_pool_may_be_given_by_its_number_which_its_name_goes_over(web: Web, field: str) -> None:
    tablet = await tablet_of_new_topic(web)
    _, moving = await web.ask("POST", MOVES.format(tablet), {field: 1})
    assert [each["pool"] for each in moving["channels"][2]["history"]] == ["main", "big"]
    _, moving = await web.ask("POST", MOVES.format(tablet), {field: 1, "pool": "main"})
    assert [each["pool"] for each in moving["channels"][2]["history"]] == ["main"]


@pytest.mark.parametrize("kind", ["scheme", "coordinator"])
async def test_the_brokers_own_tablets_are_restarted_too(web: Web, kind: str) -> None:
    _, listed = await web.ask("GET", "/v1/tablets")
    tablet = next(one["id"] for one in listed["tablets"] if one["type"] == kind)
    status, found = await web.ask("POST", f"/v1/tablets/{tablet}/restart", {})
    assert (status, found["generation"]) == (200, 2)
    assert (await web.ask("POST", "/v1/topics", {"name": "t"}))[0] == 201
    _, listed = await web.ask("GET", "/v1/tablets")
    assert [one["generation"] for one in listed["tablets"] if one["id"] == tablet] == [2]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "word"),
    [
        ("/v1/tablets/7/restart", {}, 404, "UNKNOWN_TABLET", "no tablet 7"),
        (MOVES.format(7), {"pool": "main"}, 404, "UNKNOWN_TABLET", "no tablet 7"),
        (MOVES.format(SCHEME), {"pool": "cold"}, 409, "MOVE_REFUSED", "no pool 'cold'; the cell has main, big"),
        (MOVES.format(SCHEME), {"group": 9}, 409, "MOVE_REFUSED", "0 (main), 1 (big)"),
        (f"/v1/tablets/{SCHEME}/channels/9", {"pool": "main"}, 409, "MOVE_REFUSED", "channels 0 to 2"),
        (MOVES.format(SCHEME), {"group": "big"}, 400, "INVALID_BODY", "body.group is string; give integer"),
        (MOVES.format(SCHEME), {}, 400, "INVALID_BODY", "no field 'pool'"),
        (f"/v1/tablets/{SCHEME}/restart", b"", 400, "INVALID_BODY", "no JSON"),
    ],
)
async def test_what_cannot_be_is_refused(web: Web, path: str, body: Any, status: int, code: str, word: str) -> None:
    refused = await web.refusal("POST", path, body)
    assert refused[:2] == (status, code)
    assert word in refused[2]


async def test_a_browser_cannot_restart_a_tablet_across_sites(web: Web) -> None:
    refused = await web.refusal("POST", f"/v1/tablets/{SCHEME}/restart", {}, Content_Type="text/plain")
    assert refused[:2] == (415, "NOT_JSON")
    _, found = await web.ask("GET", f"/v1/tablets/{SCHEME}")
    assert found["generation"] == 1
