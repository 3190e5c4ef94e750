"""Changes of tables and cells beside rows in doubt, and decisions that others need: each waits, or is refused by name;
nothing is torn."""

from typing import Any

import pytest

from pqbroker.pq.serving import transacted_batches
from tests.broker.conftest import until
from tests.broker.services.commits.doubt import NUMBER, bring_back, leave_in_doubt, log_of, right_of
from tests.broker.services.commits.test_crashes import found, settled
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def _short(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Changes wait for transactions for a moment alone."""
    monkeypatch.setattr(transacted_batches, "WAIT_S", 0.05)
    monkeypatch.setattr("pqbroker.tables.serving.tablet.SortedTablet.lock_wait_s", 0.05)


async def opened_after(web: Web, is_stored: bool) -> None:  # noqa: F811
    """The home comes back, and its word is everybody's."""
    await bring_back(web)
    await settled(web)
    assert await found(web, NUMBER) == ([NUMBER] * 3 if is_stored else [None] * 3)


REFUSED: list[tuple[str, str, Any]] = [
    ("POST", "/v1/tables/right/unmount", {}),
    ("POST", "/v1/tables/right/unmount", {"force": True}),
    ("POST", "/v1/tables/right/freeze", {}),
    ("DELETE", "/v1/tables/right", None),
    ("DELETE", "/v1/tables/log", None),
    ("DELETE", "/v1/topics/log", None),
    ("DELETE", "/v1/tables/left", None),
]


async def test_what_would_tear_a_transaction_in_doubt_is_refused_by_its_name(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    for method, path, body in REFUSED:
        _, code, text = await web.refusal(method, path, body)
        assert code in ("TRANSACTION_UNDER_WAY", "REQUEST_TIMED_OUT"), (path, code, text)
        assert (path, name in text) == (path, True), text
    await opened_after(web, is_stored=True)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_prepared_rows_move_to_another_cell_and_are_ended_there(web: Web, is_stored: bool) -> None:  # noqa: F811
    await leave_in_doubt(web, is_stored=is_stored)
    assert (await web.ask("POST", "/v1/cells", {"bundle": "right"}))[0] == 201
    status, answer = await web.ask("DELETE", "/v1/cells/2?evacuate=true")
    assert status == 204, answer
    assert right_of(web).prepared
    await bring_back(web)
    await until(lambda: not right_of(web).prepared and not log_of(web).prepared)
    assert await found(web, NUMBER) == ([NUMBER] * 3 if is_stored else [None] * 3)


async def test_a_decision_that_others_need_is_not_removed_with_its_cell(web: Web) -> None:  # noqa: F811
    await leave_in_doubt(web, is_stored=True)
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": "elsewhere"}))[0] == 200
    home = next(iter(right_of(web).prepared.values()), None)
    await bring_back(web)
    await until(lambda: not log_of(web).prepared)
    _, code, text = await web.refusal("DELETE", "/v1/cells/1")
    assert (home, "delete their topics first, or evacuate it" in text) == (None, True), (code, text)
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "left"})
    status, answer = await web.ask("DELETE", "/v1/cells/1?evacuate=true")
    assert status == 204, answer
    assert cell["id"] != 1
    assert (await web.ask("PATCH", "/v1/bundles/right", {"node_tag_filter": ""}))[0] == 200
    await until(lambda: right_of(web).is_known and not right_of(web).prepared)
    assert await found(web, NUMBER) == [NUMBER] * 3


async def test_a_home_that_is_away_is_not_removed_or_evacuated(web: Web) -> None:  # noqa: F811
    await leave_in_doubt(web, is_stored=True)
    for path in ("/v1/cells/1", "/v1/cells/1?evacuate=true"):
        status, _, text = await web.refusal("DELETE", path)
        assert (status, "cell" in text) == (409, True), text
    await opened_after(web, is_stored=True)


async def test_a_partition_in_doubt_says_so_and_takes_reads_and_trims_later(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    log_of(web)._keep_in_doubt()  # as after a restart of its cell
    _, shown = await web.ask("GET", "/v1/topics/log/partitions/0")
    assert (shown["writes"]["are_taken"], shown["writes"]["refused_by"]) == (False, "transaction")
    assert f"rows of transaction {name} are prepared here and wait for tablet 0 of left" in shown["writes"]["reason"]
    _, topic = await web.ask("GET", "/v1/topics/log")
    assert topic["partitions"][0]["writes_refused_by"] == "transaction"
    answer = await web.node.produce("log", b"{}")
    assert (answer.error_code, name in str(answer.error_message)) == (6, True)
    status, rows = await web.ask("GET", "/v1/tables/log/rows")
    assert (status, len(rows["rows"])) == (200, 1)
    await opened_after(web, is_stored=True)
