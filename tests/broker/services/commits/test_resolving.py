"""Rows in doubt that an operator resolves: shown first, then written or dropped everywhere, and compared with the word
of their home when it is back."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pqbroker.broker.services.commits import resolutions
from pqbroker.broker.web.tables.transaction_routes import ROUTES
from pqbroker.pq.transactions.stored_forms import TransactionId
from tests.broker.conftest import until
from tests.broker.services.commits.doubt import NUMBER, bring_back, leave_in_doubt, log_of, right_of
from tests.broker.services.commits.test_crashes import begin, commit, found, settled, sibling
from tests.broker.services.commits.test_in_doubt import unfinished
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)


async def resolve(web: Web, name: str, **body: Any) -> dict[str, Any]:  # noqa: F811
    status, answer = await web.ask("POST", f"/v1/transactions/{name}/resolve", body)
    assert status == 200, answer
    (route,) = [one for one in ROUTES if one.path.endswith("/resolve")]
    Draft202012Validator(dict(route.answer or {})).validate(answer)
    done: dict[str, Any] = answer
    return done


async def refused(web: Web, name: str, **body: Any) -> str:  # noqa: F811
    """Return the code of a refusal."""
    return (await web.refusal("POST", f"/v1/transactions/{name}/resolve", body))[1]


async def resolved(web: Web) -> list[dict[str, Any]]:  # noqa: F811
    status, answer = await web.ask("GET", "/v1/transactions/resolved")
    assert status == 200
    some: list[dict[str, Any]] = answer["resolved"]
    return some


async def test_a_dry_run_changes_nothing_and_says_what_is_known(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    before = await unfinished(web)
    told = await resolve(web, name, outcome="abort")
    assert (told["dry_run"], told["left"], told["known"]["committed"]) == (True, 2, None)
    assert [one["participant"] for one in told["participants"]] == [one["participant"] for one in before]
    assert (await unfinished(web), await resolved(web)) == (before, [])


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("outcome", ["abort", "commit"])
async def test_rows_end_as_resolved_and_the_home_is_compared(
    web: Web, outcome: str, is_stored: bool, caplog: pytest.LogCaptureFixture  # noqa: F811
) -> None:
    caplog.set_level("INFO")
    name = await leave_in_doubt(web, is_stored=is_stored)
    timestamp = (await resolve(web, name, outcome="abort"))["known"]["timestamp"]
    given = {"timestamp": timestamp} if outcome == "commit" else {}
    done = await resolve(web, name, outcome=outcome, dry_run=False, **given)
    assert (done["left"], await unfinished(web)) == (0, [])
    assert [one["home_says"] for one in await resolved(web)] == [None]
    await bring_back(web)
    await settled(web)
    opened = web.node.server.node.cell.current
    await until(lambda: not opened.commits.resolutions.waiting())
    there, rows = NUMBER if is_stored else None, NUMBER if outcome == "commit" else None
    assert await found(web, NUMBER) == [there, rows, rows]
    if is_stored is (outcome == "commit"):
        assert await resolved(web) == []
        assert f"agrees that transaction {name} is " in caplog.text
    else:
        (one,) = await resolved(web)
        says = f"its home has committed it at timestamp {timestamp}" if is_stored else "its home has never committed it"
        assert one["home_says"].startswith(says)
        assert f"transaction {name} is torn" in caplog.text
    assert await commit(web, await begin(web), 77) == "committed"
    assert await found(web, 77) == [77] * 3


async def test_rows_in_a_cell_that_opens_later_end_as_resolved(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": "elsewhere"}))[0] == 200
    done = await resolve(web, name, outcome="abort", dry_run=False)
    assert [one["participant"]["table"] for one in done["participants"]] == ["log"]
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": ""}))[0] == 200
    await until(lambda: not right_of(web).prepared)
    assert (await web.ask("POST", "/v1/tables/right/lookup", {"keys": [{"id": NUMBER}]}))[1]["rows"] == [None]


async def test_a_resolution_survives_the_loss_of_the_system_cell(web: Web) -> None:  # noqa: F811
    """It is durable before the first row ends, and the next opening of the node continues."""
    name = await leave_in_doubt(web, is_stored=False)
    before: Any = web.node.server.node.cell.current
    web.node.engine.faults.lose_next(after=1)  # the resolution's own commit is durable, that of the log's rows is not
    await web.ask("POST", f"/v1/transactions/{name}/resolve", {"outcome": "abort", "dry_run": False})
    await until(lambda: web.node.server.node.cell.current is not before)
    await until(lambda: not log_of(web).prepared and log_of(web).is_known)
    await until(lambda: not right_of(web).prepared and right_of(web).is_known)
    assert [one["transaction"] for one in await resolved(web)] == [name]


async def test_what_may_not_be_resolved_is_refused(web: Web) -> None:  # noqa: F811
    assert await refused(web, "0" * 32, outcome="abort") == "NO_TRANSACTION"
    name = await leave_in_doubt(web, is_stored=True)
    for body in ({"outcome": "x"}, {"outcome": "commit"}, {"outcome": "abort", "timestamp": 1}):
        assert await refused(web, name, **body) == "INVALID_REQUEST"
    timestamp = (await resolve(web, name, outcome="abort"))["known"]["timestamp"]
    assert await refused(web, name, outcome="commit", timestamp=timestamp + 1) == "OUTCOME_KNOWN"
    opened = web.node.server.node.cell.current
    opened.commits._traces.clear()  # after a restart nothing is known
    for wrong in (1, 1 << 62):
        assert await refused(web, name, outcome="commit", timestamp=wrong) == "INVALID_COMMIT_TIMESTAMP"
    assert (await resolve(web, name, outcome="commit", timestamp=timestamp))["known"] is None
    await bring_back(web)
    await settled(web)
    assert await refused(web, name, outcome="abort") == "NO_TRANSACTION"


async def test_rows_whose_home_is_open_are_not_resolved(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    sibling(web, "right").faults.hold()
    await bring_back(web)
    assert right_of(web).prepared
    assert await refused(web, name, outcome="abort", dry_run=False) == "HOME_OPEN"
    sibling(web, "right").faults.release()
    await settled(web)
    assert await found(web, NUMBER) == [NUMBER] * 3


async def test_a_commit_that_is_known_is_resolved_in_no_other_way(web: Web) -> None:  # noqa: F811
    """Its decision is known to be durable, though its home went away before all had written their rows."""
    name = await leave_in_doubt(web, is_stored=True)
    opened = web.node.server.node.cell.current
    number = TransactionId(bytes.fromhex(name))
    trace: Any = opened.commits.trace_of(number)
    opened.commits._traces[number] = trace._replace(is_committed=True)
    assert await refused(web, name, outcome="abort") == "OUTCOME_KNOWN"
    done = await resolve(web, name, outcome="commit", timestamp=trace.timestamp, dry_run=False)
    assert done["known"] == {"committed": True, "timestamp": trace.timestamp}


async def test_a_second_resolution_is_the_first_one_again_or_refused(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    timestamp = (await resolve(web, name, outcome="abort"))["known"]["timestamp"]
    sibling(web, "right").faults.hold()
    opened = web.node.server.node.cell.current
    opened.commits._limit_s = 0.01
    assert (await resolve(web, name, outcome="abort", dry_run=False))["left"] > 0
    assert await refused(web, name, outcome="commit", timestamp=timestamp) == "TRANSACTION_RESOLVED"
    assert (await resolve(web, name, outcome="abort", dry_run=False))["left"] > 0
    sibling(web, "right").faults.release()
    await until(lambda: not right_of(web).prepared)


async def test_no_more_than_a_number_of_resolutions_wait_for_their_homes(
    web: Web, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    name = await leave_in_doubt(web, is_stored=True)
    monkeypatch.setattr(resolutions, "RESOLUTIONS_MAX", 0)
    assert await refused(web, name, outcome="abort", dry_run=False) == "TOO_MANY_RESOLUTIONS"


async def test_a_home_is_deleted_once_its_rows_are_resolved_and_ends_the_comparison(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    status, code, text = await web.refusal("DELETE", "/v1/tables/left")
    assert (status, code) == (409, "TRANSACTION_UNDER_WAY")
    assert f"rows of transaction {name} that wait for tablet 0 of left in cell " in text
    await resolve(web, name, outcome="abort", dry_run=False)
    status, answer = await web.ask("DELETE", "/v1/tables/left")
    assert status == 204, answer
    opened = web.node.server.node.cell.current
    await until(lambda: not opened.commits.resolutions.waiting())
    assert [(one["home_says"], one["home"]["table"]) for one in await resolved(web)] == [("it is deleted", None)]
