"""The system cell is lost at each commit of each change of tables, cells and bundles, durable or not: the state before
or the state after, never one between; every row is there, and the same command ends in the state after.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, SCHEMA

pytestmark = pytest.mark.spec("E.9", "E.10")

Serve = Callable[..., Awaitable[Web]]
Ask = tuple[str, str, Any]
TABLE = f"/v1/tables/{NAME}"
COMMITS_MAX = 20


class Case(NamedTuple):
    """A change, and what is asked before it."""

    asked: Ask
    before: Sequence[Ask] = ()
    is_of_cells: bool = False


def post(verb: str, **body: Any) -> Ask:
    return "POST", f"{TABLE}/{verb}", body


MADE: Ask = ("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA, "tablet_count": 3})
ROWS = post("rows", rows=[{"id": number, "$tablet_index": number % 2} for number in range(4)])
BUNDLE: Ask = ("POST", "/v1/bundles", {"name": "b"})
CELL: Ask = ("POST", "/v1/cells", {"bundle": "b"})
SEVERAL = [{"id": 9, "$tablet_index": 0}, {"id": 9, "$tablet_index": 2}]
UNMOUNTED = post("unmount")
PENDING: Ask = ("PATCH", TABLE, {"attributes": {"min_data_ttl": 7}})
SOME_REMOUNTED = post("remount", first_tablet_index=1, last_tablet_index=1)
WIDER = [*SCHEMA, {"name": "size", "type": "double"}]
CASES = {
    "create": Case(MADE),
    "create static": Case(("POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA, "dynamic": False})),
    "rows": Case(post("rows", rows=SEVERAL, session="s", sequence=1), (MADE, ROWS)),
    "trim": Case(post("trim", tablet_index=0, trimmed_row_count=1), (MADE, ROWS)),
    "unmount": Case(UNMOUNTED, (MADE, ROWS)),
    "unmount by force": Case(post("unmount", force=True), (MADE, ROWS)),
    "unmount some": Case(post("unmount", first_tablet_index=1), (MADE, ROWS)),
    "mount": Case(post("mount"), (MADE, ROWS, UNMOUNTED)),
    "mount frozen": Case(post("mount", freeze=True), (MADE, ROWS, UNMOUNTED)),
    "freeze": Case(post("freeze"), (MADE, ROWS)),
    "unfreeze": Case(post("unfreeze"), (MADE, ROWS, post("freeze"))),
    "remount": Case(post("remount"), (MADE, ROWS, PENDING)),
    "remount some": Case(post("remount", first_tablet_index=1, last_tablet_index=1), (MADE, ROWS, PENDING)),
    "mount some with what is set": Case(post("mount", first_tablet_index=2), (MADE, ROWS, PENDING, UNMOUNTED)),
    "retention": Case(
        ("PATCH", f"/v1/topics/{NAME}/configs", {"configs": {"retention.ms": 9}}), (MADE, ROWS, PENDING, SOME_REMOUNTED)
    ),
    "alter": Case(post("alter", schema=WIDER), (MADE, ROWS, UNMOUNTED)),
    "attributes": Case(PENDING, (MADE, ROWS)),
    "grow": Case(post("reshard", tablet_count=5, trimmed_row_counts=[10, 20]), (MADE, ROWS, UNMOUNTED)),
    "grow in the middle": Case(
        post("reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2), (MADE, ROWS, UNMOUNTED)
    ),
    "grow with what is set": Case(
        post("reshard", first_tablet_index=0, last_tablet_index=0, tablet_count=2),
        (MADE, ROWS, PENDING, SOME_REMOUNTED, UNMOUNTED),
    ),
    "shrink": Case(post("reshard", tablet_count=2), (MADE, ROWS, UNMOUNTED)),
    "glue where tablets differ": Case(
        post("reshard", tablet_count=1), (MADE, ROWS, PENDING, SOME_REMOUNTED, UNMOUNTED)
    ),
    "static where tablets differ": Case(
        post("alter", dynamic=False), (MADE, ROWS, PENDING, SOME_REMOUNTED, UNMOUNTED)
    ),
    "glue": Case(post("reshard", tablet_count=1), (MADE, ROWS, UNMOUNTED)),
    "static": Case(post("alter", dynamic=False), (MADE, ROWS, UNMOUNTED)),
    "dynamic": Case(post("alter", dynamic=True), (MADE, ROWS, UNMOUNTED, post("alter", dynamic=False))),
    "drop a static one": Case(("DELETE", TABLE, None), (MADE, ROWS, UNMOUNTED, post("alter", dynamic=False))),
    "drop": Case(("DELETE", TABLE, None), (MADE, ROWS)),
    "create a bundle": Case(BUNDLE, is_of_cells=True),
    "change a bundle": Case(
        ("PATCH", "/v1/bundles/b", {"options": {"clock_cluster_tag": 5}}), (BUNDLE,), is_of_cells=True
    ),
    "delete a bundle": Case(("DELETE", "/v1/bundles/b", None), (BUNDLE,), is_of_cells=True),
    "create a cell": Case(CELL, (BUNDLE,), is_of_cells=True),
    "remove a cell": Case(("DELETE", "/v1/cells/1", None), (BUNDLE, CELL), is_of_cells=True),
}  # fmt: skip


async def begun(serve: Serve, case: Case) -> Web:
    web = await serve()
    for asked in case.before:
        status, answer = await web.ask(*asked)
        assert status in (200, 201), answer
    return web


async def facts(web: Web) -> Any:
    """All that is told of the table, and its rows by tablet; None: there is no table."""
    status, described = await web.ask("GET", TABLE)
    if status == 404:
        return None
    _, listed = await web.ask("GET", f"{TABLE}/tablets")
    counts = ("index", "state", "trimmed_row_count", "total_row_count", "mounted_attributes")
    tablets = [tuple(one[name] for name in counts) for one in listed["tablets"]]
    return described, tablets, [await rows(web, index) for index, *_ in tablets]


async def cells(web: Web) -> Any:
    """The bundles with their options, and how many cells each has."""
    _, bundles = await web.ask("GET", "/v1/bundles")
    _, listed = await web.ask("GET", "/v1/cells")
    options = [(one["name"], one["options"]) for one in bundles["bundles"]]
    return options, sorted(one["bundle"] for one in listed["cells"])


async def rows(web: Web, index: int) -> Any:
    """Ids by row index, whatever the state of the tablet."""
    status, answer = await web.ask("GET", f"{TABLE}/rows?tablet_index={index}")
    return [(row["$row_index"], row["id"]) for row in answer["rows"]] if status == 200 else answer["error"]["code"]


async def commits(web: Web) -> int:
    return int(web.node.server.node.cell.current.cell.stats().commits)


async def lose_at(web: Web, case: Case, number: int, *, stored: bool) -> None:
    """Have the change's commit `number` lose the cell, and wait until it is open again."""
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next(after=number, stored=stored)
    status, answer = await web.ask(*case.asked)
    web.node.engine.faults.clear()
    if owner.current is before and not before.cell.lost.done():
        assert status in (200, 201, 204), answer
        return
    await until(lambda: owner.current is not before)


@pytest.mark.parametrize("name", CASES)
async def test_a_change_that_is_cut_off_is_made_or_not(serve: Serve, name: str) -> None:
    case = CASES[name]
    told = cells if case.is_of_cells else facts
    web = await begun(serve, case)
    before, first = await told(web), await commits(web)
    status, answer = await web.ask(*case.asked)
    assert status in (200, 201, 204), answer
    after, count = await told(web), await commits(web) - first
    assert 1 <= count <= COMMITS_MAX
    for number in range(count):
        for stored in (False, True):
            web = await begun(serve, case)
            await lose_at(web, case, number, stored=stored)
            found = await told(web)
            assert found in (before, after), (number, stored)
            if found == before:
                assert (await web.ask(*case.asked))[0] in (200, 201, 204)
                assert await told(web) == after
