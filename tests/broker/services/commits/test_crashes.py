"""A commit over three cells, each of which is lost at each of its commits, durable or not: all rows appear or none, and
the same commit sent again tells which."""

import asyncio
from typing import Any

import pytest

from tests.broker.conftest import until
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)

COMMITS = 4
"""More than a cell makes for one transaction."""
SORTED = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "number", "type": "int64"}]
LOG = [{"name": "number", "type": "int64"}]


async def make_tables(web: Web) -> None:  # noqa: F811
    for name in ("left", "right"):
        for path, body in (("bundles", {"name": name}), ("cells", {"bundle": name})):
            assert (await web.ask("POST", f"/v1/{path}", body))[0] == 201
        status, table = await web.ask("POST", "/v1/tables", {"path": f"//{name}", "schema": SORTED, "bundle": name})
        assert status == 201, table
    status, table = await web.ask("POST", "/v1/tables", {"path": "//log", "schema": LOG})
    assert status == 201, table


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", ["system", "left", "right"])
async def test_a_loss_at_any_commit_of_any_cell_tears_no_transaction(web: Web, cell: str) -> None:  # noqa: F811
    await make_tables(web)
    engine: Any = web.node.engine
    seen, number = set(), 0
    for is_stored in (False, True):
        for after in range(COMMITS):
            number += 1
            name = await begin(web)
            faults = engine.faults if cell == "system" else sibling(web, cell).faults
            faults.lose_next(after=after, stored=is_stored)
            outcome = await commit(web, name, number)
            faults.clear()
            again = await commit(web, name, number)
            if outcome in ("committed", "aborted"):
                assert again == outcome, (is_stored, after)
            await settled(web)
            rows = await found(web, number)
            assert rows == ([number] * 3 if again == "committed" else [None] * 3), (is_stored, after, again)
            seen.add(again)
    assert "committed" in seen


async def test_a_commit_that_is_refused_anywhere_is_aborted_everywhere(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    for cell in ("left", "right"):
        for after in range(2):
            number = 10 * len(cell) + after
            name = await begin(web)
            faults = sibling(web, cell).faults
            faults.refuse_next(after=after)
            outcome = await commit(web, name, number)
            faults.clear()
            await settled(web)
            assert await found(web, number) == ([number] * 3 if outcome == "committed" else [None] * 3), (cell, after)


@pytest.mark.parametrize("is_sorted", [True, False])
async def test_rows_for_two_cells_whose_home_is_lost_are_in_doubt(web: Web, is_sorted: bool) -> None:  # noqa: F811
    assert (await web.ask("POST", "/v1/bundles", {"name": "two"}))[0] == 201
    cells = [(await web.ask("POST", "/v1/cells", {"bundle": "two"}))[1]["id"] for _ in range(2)]
    table: dict[str, Any] = {"path": "//parted", "schema": LOG, "bundle": "two", "tablet_count": 2}
    rows = [{"number": tablet, "$tablet_index": tablet} for tablet in range(2)]
    if is_sorted:
        table = {"path": "//parted", "schema": SORTED, "bundle": "two", "pivot_keys": [[], [1]]}
        rows = [{"id": tablet, "number": tablet} for tablet in range(2)]
    status, made = await web.ask("POST", "/v1/tables", table)
    assert status == 201, made
    for tablet, cell in enumerate(cells):
        body = {"cell_id": str(cell), "first_tablet_index": tablet, "last_tablet_index": tablet}
        assert (await web.ask("POST", "/v1/tables/parted/mount", body))[0] == 200
    engine: Any = web.node.engine
    engine.sibling(str(cells[0]), must_exist=True).faults.lose_next(stored=True)
    status, code, _ = await web.refusal("POST", "/v1/tables/parted/rows", {"rows": rows})
    assert (status, code) == (503, "KAFKA_STORAGE_ERROR")


async def test_rows_locked_by_a_commit_whose_home_is_away_wait_and_are_named(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    await commit(web, await begin(web), 1)
    faults = sibling(web, "left").faults
    name = await begin(web)
    faults.hold()
    committing = asyncio.create_task(commit(web, name, 2))
    right = web.node.server.node.cell.current.sorted_tables.tables["right"].tablets[0]
    await until(lambda: bool(right.transactions.prepared))
    status, code, text = await web.refusal("POST", "/v1/tables/right/unmount", {})
    assert (status, code) == (409, "TRANSACTION_UNDER_WAY")
    assert name in text
    faults.release()
    assert await committing == "committed"
    await settled(web)
    assert await found(web, 2) == [2, 2, 2]


def sibling(web: Web, bundle: str) -> Any:  # noqa: F811
    """Return the engine of the only cell of a bundle."""
    hive = web.node.server.node.cell.current.hive
    (cell,) = (record.cell for record in hive.cells.values() if record.bundle == bundle)
    engine: Any = web.node.engine
    return engine.sibling(str(cell), must_exist=True)


async def begin(web: Web) -> str:  # noqa: F811
    while True:
        status, answer = await web.ask("POST", "/v1/transactions", {})
        if status == 201:
            name: str = answer["transaction"]
            return name


async def commit(web: Web, name: str, number: int) -> str:  # noqa: F811
    """Commit until it is known what becomes of the transaction: committed or aborted."""
    writes = [
        {"table": "left", "rows": [{"id": number, "number": number}]},
        {"table": "right", "rows": [{"id": number, "number": number}]},
        {"table": "log", "rows": [{"number": number}]},
    ]
    async with asyncio.timeout(30):
        while True:
            status, answer = await web.ask("POST", f"/v1/transactions/{name}/commit", {"writes": writes})
            if status == 200:
                return "committed"
            code = answer["error"]["code"]
            if code in ("TRANSACTION_ENDED", "NO_TRANSACTION"):
                return "aborted"
            if code not in ("COMMIT_UNKNOWN", "TABLET_NOT_OPEN") and status < 500:
                return "aborted"
            await asyncio.sleep(0.01)


async def settled(web: Web) -> None:  # noqa: F811
    """Return when all cells are open and no commit has anything left to write."""
    async with asyncio.timeout(30):
        while True:
            opened = web.node.server.node.cell.current
            health = [opened.others.health(cell) for cell in opened.hive.cells]
            if health == ["good"] * 2 and not opened.cell.lost.done() and not opened.commits.is_busy:
                tables = opened.sorted_tables.tables.values()
                if all(tablet.is_serving for table in tables for tablet in table.tablets):
                    return
            await asyncio.sleep(0.01)


async def found(web: Web, number: int) -> list[int | None]:  # noqa: F811
    """Return what the three tables have of a transaction."""
    rows: list[int | None] = []
    for name in ("left", "right"):
        status, answer = await web.ask("POST", f"/v1/tables/{name}/lookup", {"keys": [{"id": number}]})
        assert status == 200, answer
        rows.append(None if answer["rows"][0] is None else answer["rows"][0]["number"])
    status, answer = await web.ask("GET", "/v1/tables/log/rows?limit=1000")
    assert status == 200, answer
    logged = [row["number"] for row in answer["rows"] if row["number"] == number]
    assert len(logged) < 2, "doubled"
    return [*rows, *(logged or [None])]
