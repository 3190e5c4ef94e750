"""Offsets of a group are moved to a place or a time, after a look at where they would go."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.web.conftest import Web

RESET = "/v1/groups/billing/reset"


async def filled_topic(web: Web) -> None:
    """Four records a millisecond apart in each of two partitions; the group has read one of the first."""
    await web.node.create_topic("t", 2)
    for partition in (0, 1):
        await web.node.produce("t", b"0", b"1", b"2", b"3", partition=partition)
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
    assert (await web.ask("POST", "/v1/groups/billing/offsets", body))[0] == 200


@pytest.mark.parametrize(
    ("to", "offset"),
    [("beginning", 0), ("end", 4), ("3", 3), ("99", 4), ("2023-11-14T22:13:20.002Z", 2), ("-0ms", 0), ("1h", 0)],
)
async def test_offsets_are_reset_to_a_position(web: Web, to: str, offset: int) -> None:
    await filled_topic(web)
    status, seen = await web.ask("POST", RESET, {"topic": "t", "to": to, "dry_run": True})
    assert (status, seen["dry_run"]) == (200, True)
    assert seen["offsets"] == [
        {"topic": "t", "partition": 0, "before": 1, "offset": offset},
        {"topic": "t", "partition": 1, "before": None, "offset": offset},
    ]
    _, group = await web.ask("GET", "/v1/groups/billing")
    assert [one["offset"] for one in group["partitions"]] == [1]
    _, done = await web.ask("POST", RESET, {"topic": "t", "to": to})
    assert done == {**seen, "dry_run": False}
    _, group = await web.ask("GET", "/v1/groups/billing")
    assert [one["offset"] for one in group["partitions"]] == [offset] * 2


async def test_some_partitions_are_reset_and_the_others_stay(web: Web) -> None:
    await filled_topic(web)
    _, done = await web.ask("POST", RESET, {"topic": "t", "to": "end", "partitions": [1]})
    assert [(one["partition"], one["offset"]) for one in done["offsets"]] == [(1, 4)]
    _, group = await web.ask("GET", "/v1/groups/billing")
    assert [one["offset"] for one in group["partitions"]] == [1, 4]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"topic": "t", "to": "soon"}, 400, "body.to is 'soon': give beginning"),
        ({"topic": "t"}, 400, "'to'"),
        ({"topic": "none", "to": "end"}, 404, "topic"),
        ({"topic": "t", "to": "end", "partitions": [2]}, 404, "partition"),
    ],
)
async def test_a_reset_that_makes_no_sense_is_refused(web: Web, body: Any, status: int, named: str) -> None:
    await filled_topic(web)
    refused = await web.refusal("POST", RESET, body)
    assert refused[0] == status
    assert named in refused[2]


async def test_a_reset_of_too_many_partitions_is_refused(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_items_max=1)
    await web.node.create_topic("t", 2)
    refused = await web.refusal("POST", RESET, {"topic": "t", "to": "end"})
    assert refused[0] == 400
    assert "pqbroker.http.items.max" in refused[2]
