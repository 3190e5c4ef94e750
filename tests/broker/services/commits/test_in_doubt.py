"""Rows in doubt are shown with what they wait for, and end by themselves when the home is back."""

import json
from typing import Any

import pytest

from pqbroker.broker.services.commits.finishing import IN_DOUBT_MS
from tests.broker.conftest import until
from tests.broker.services.commits.doubt import NUMBER, bring_back, leave_in_doubt
from tests.broker.services.commits.test_crashes import found, settled, sibling
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)


async def unfinished(web: Web, query: str = "") -> list[dict[str, Any]]:  # noqa: F811
    status, answer = await web.ask("GET", f"/v1/transactions/unfinished{query}")
    assert status == 200, answer
    some: list[dict[str, Any]] = answer["unfinished"]
    return some


@pytest.mark.parametrize("is_stored", [False, True])
async def test_prepared_rows_without_a_home_are_shown_until_it_is_back(web: Web, is_stored: bool) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=is_stored)
    log, right = sorted(await unfinished(web), key=lambda one: str(one["participant"]["table"]))
    for one, table in ((log, "log"), (right, "right")):
        assert (one["transaction"], one["what"], one["participant"]["table"]) == (name, "prepared", table)
        assert one["home"]["table"] == "left"
        assert one["waits_for"] == f"tablet 0 of left in cell {one['home']['cell']}"
        assert one["bytes"] > 48
        assert one["since"] == web.node.clock.now_ms
    assert len({one["participant"]["cell"] for one in (log, right)} | {log["home"]["cell"]}) == 3
    await bring_back(web)
    await settled(web)
    assert await unfinished(web) == []
    assert await found(web, NUMBER) == ([NUMBER] * 3 if is_stored else [None] * 3)


async def test_what_is_unfinished_comes_in_pages(web: Web) -> None:  # noqa: F811
    await leave_in_doubt(web, is_stored=False)
    _, first = await web.ask("GET", "/v1/transactions/unfinished?limit=1")
    _, second = await web.ask("GET", f"/v1/transactions/unfinished?limit=1&after={first['next']}")
    assert second["next"] is None
    assert [*first["unfinished"], *second["unfinished"]] == await unfinished(web)
    assert (await web.refusal("GET", "/v1/transactions/unfinished?after=1.2.3"))[1] == "INVALID_REQUEST"


async def test_a_decision_that_is_not_carried_out_names_what_it_waits_for(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": "elsewhere"}))[0] == 200
    await bring_back(web)
    opened = web.node.server.node.cell.current
    await until(lambda: any(one.kind.value == "decided" for one in opened.commits.unfinished()))
    (decided,) = [one for one in await unfinished(web) if (one["what"], one["transaction"]) == ("decided", name)]
    assert (decided["participant"], decided["rows"]) == (decided["home"], 3)
    assert decided["waits_for"].startswith("tablet 0 of right in cell ")
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": ""}))[0] == 200
    await settled(web)
    assert await unfinished(web) == []
    assert await found(web, NUMBER) == [NUMBER] * 3


async def test_rows_whose_end_is_refused_say_why(web: Web) -> None:  # noqa: F811
    await leave_in_doubt(web, is_stored=True)
    faults = sibling(web, "right").faults
    for number in range(1000):
        faults.refuse_next(after=number)
    await bring_back(web)
    await until(lambda: bool(web.node.server.node.cell.current.commits._finishing.refusals))
    (right,) = [one for one in await unfinished(web) if one["participant"]["table"] == "right"]
    assert right["waits_for"] == "a fault on cue"
    faults.clear()
    await settled(web)
    assert await found(web, NUMBER) == [NUMBER] * 3


async def test_events_and_the_log_say_what_is_in_doubt_for_long_and_when_it_ends(
    web: Web, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    monkeypatch.setattr("pqbroker.broker.web.resources.events.EVENT_PERIOD_S", 0.01)
    name = await leave_in_doubt(web, is_stored=False)
    events = follow(web)
    await anext(events)
    web.node.clock.now_ms += IN_DOUBT_MS
    created = await next_doubt(events)
    assert (created["created"], created["count"]) == (["log/0", "right/0"], 2)
    await until(lambda: f"rows of transaction {name} in log-0 are in doubt" in caplog.text)
    await bring_back(web)
    assert sorted((await next_doubt(events))["deleted"])[-1] == "right/0"
    await events.aclose()


async def next_doubt(events: Any) -> dict[str, Any]:
    """Return the next event about transactions in doubt."""
    async for event in events:
        if event["event"] == "transactions_in_doubt":
            event["created"].sort()
            found: dict[str, Any] = event
            return found
    raise AssertionError("the stream has ended")


async def follow(web: Web) -> Any:  # noqa: F811
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(web.url("/v1/events")) as answer:
        async for line in answer.content:
            yield json.loads(line)
