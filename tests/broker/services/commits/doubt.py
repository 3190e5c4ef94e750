"""Transactions in doubt, for tests: three tables in three cells, a commit whose home goes away amid its decision."""

import asyncio
from typing import Any

from tests.broker.conftest import until
from tests.broker.services.commits.test_crashes import begin, commit, make_tables, sibling
from tests.broker.web.conftest import Web

NUMBER = 2
"""Key of the row in doubt, and the number in the log."""


async def leave_in_doubt(web: Web, *, is_stored: bool) -> str:
    """Return the name of a transaction with rows prepared in `right` and `log`, whose home, the only tablet of `left`,
    is not open; `is_stored`: the decision is durable there."""
    await make_tables(web)
    await commit(web, await begin(web), 1)
    await until(lambda: not web.node.server.node.cell.current.commits.is_busy)
    name = await begin(web)
    faults = sibling(web, "left").faults
    faults.hold()
    row = {"id": NUMBER, "number": NUMBER}
    writes: list[dict[str, Any]] = [
        {"table": "left", "rows": [row]}, {"table": "right", "rows": [row]},
        {"table": "log", "rows": [{"number": NUMBER}]},
    ]  # fmt: skip
    committing = asyncio.create_task(web.ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes}))
    await until(lambda: right_of(web).prepared and log_of(web).prepared and faults.is_holding)
    away = asyncio.create_task(web.ask("PATCH", "/v1/bundles/left", {"node_tag_filter": "elsewhere"}))
    bundles = web.node.server.node.cell.current.hive.bundles
    await until(lambda: bool(bundles["left"].node_tag_filter))  # else the cell may be open again before it is left
    faults.lose_next(stored=is_stored)
    faults.release()
    assert (await away)[0] == 200
    status, answer = await committing
    assert (status, answer["error"]["code"]) == (503, "COMMIT_UNKNOWN")
    return name


async def bring_back(web: Web) -> None:
    """Open the home's cell again."""
    assert (await web.ask("PATCH", "/v1/bundles/left", {"node_tag_filter": ""}))[0] == 200


def right_of(web: Web) -> Any:
    """Return the sorted tablet with prepared rows as a participant."""
    return web.node.server.node.cell.current.sorted_tables.tables["right"].tablets[0].transactions


def log_of(web: Web) -> Any:
    """Return the partition with prepared rows as a participant."""
    topic: Any = web.node.server.node.cell.current.topics.get("log")
    return topic.partitions[0].transactions
