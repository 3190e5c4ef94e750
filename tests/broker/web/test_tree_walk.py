"""All that a list of the tree names can be read, and what cannot exist cannot be made or set."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_table_resharding import closed_cell
from tests.broker.web.test_tables import SCHEMA

SYSTEM = ("tablet_cell_bundles", "tablet_cells", "tablets")


@pytest.fixture
async def full(web: Web) -> Web:
    """Tables, static and dynamic, topics with names below names, two bundles with cells, a directory of its own."""
    for bundle in ("default", "b.c-d_e"):
        if bundle != "default":
            assert (await web.ask("POST", "/v1/bundles", {"name": bundle}))[0] == 201
        assert (await web.ask("POST", "/v1/cells", {"bundle": bundle}))[0] == 201
    for path, more in (("//shop/orders", {"tablet_count": 3}), ("//shop", {}), ("//still", {"dynamic": False})):
        assert (await web.ask("POST", "/v1/tables", {"path": path, "schema": SCHEMA, **more}))[0] == 201
    rows = {"rows": [{"id": 1}], "session": "s", "sequence": 1}
    assert (await web.ask("POST", "/v1/tables/shop.orders/rows", rows))[0] == 200
    for name in ("plain", "shop.bills.old", "sys.hidden", "a..b", ".c", "d."):
        await web.node.create_topic(name, 2)
    assert (await web.ask("PUT", "/v1/tree//made/below/@tablet_cell_bundle", "b.c-d_e"))[0] == 200
    return web


async def walked(web: Web, path: str = "//") -> AsyncIterator[str]:
    yield path
    status, names = await web.ask("GET", f"{place(path)}?children=true")
    assert status == 200, (path, names)
    assert len(names) == len(set(names)), path
    for name in names:
        async for found in walked(web, f"{path.rstrip('/')}/{name}" if path != "//" else f"//{name}"):
            yield found


def place(path: str) -> str:
    return f"/v1/tree/{quote(path)}"


async def read(web: Web, path: str) -> None:
    """A node, its attributes, and each of these by its name."""
    status, value = await web.ask("GET", place(path))
    assert status == 200, (path, value)
    status, attributes = await web.ask("GET", place(f"{path}/@"))
    assert status == 200, (path, attributes)
    assert attributes["type"], path
    for name, shown in attributes.items():
        status, value = await web.ask("GET", place(f"{path}/@{name}"))
        assert (status, type(value)) == (200, type(shown)), (path, name)


async def test_all_that_is_listed_is_read(full: Web) -> None:
    found = [path async for path in walked(full)]
    for path in found:
        await read(full, path)
    assert {f"//sys/{name}" for name in SYSTEM} <= set(found)
    assert {"//shop/orders", "//shop", "//still", "//made/below", "//shop/bills/old"} <= set(found)
    assert any("/changelogs/" in path for path in found)
    assert sum(path.endswith("/orchid/config") for path in found) == 4, "one for each tablet of a table"


@pytest.mark.parametrize("since_the_start", [False, True])
async def test_all_that_is_listed_is_read_while_a_cell_is_closed(full: Web, *, since_the_start: bool) -> None:
    before = {path async for path in walked(full)}
    async with closed_cell(full, since_the_start=since_the_start, topic="shop.orders"):
        found = [path async for path in walked(full)]
        for path in found:
            await read(full, path)
        assert {path for path in before if path.startswith("//sys/tablets/")} <= set(found)
        status, _, message = await full.refusal("GET", "/v1/tree//sys/tablet_cells/1/changelogs")
        assert status == 404
        assert "not open" in message


NO_PLACES = (
    "//sys", "//sys/foo", "//sys/foo/bar", "//sys/tablets/x", "//sys/tablets/99", "//sys/tablet_cells/9",
    "//sys/tablet_cells/0/changelogs/x", "//sys/tablet_cell_bundles/none", "//sys/tablet_cell_bundles/default/x",
)  # fmt: skip


@pytest.mark.parametrize("path", NO_PLACES)
async def test_no_table_is_made_under_sys(full: Web, path: str) -> None:
    before = [name async for name in walked(full)]
    status, code, message = await full.refusal("POST", "/v1/tables", {"path": path, "schema": SCHEMA})
    assert (status, code) == (400, "INVALID_PATH")
    assert "//sys" in message
    assert [name async for name in walked(full)] == before


@pytest.mark.parametrize("path", [path for path in NO_PLACES if path != "//sys"])
@pytest.mark.parametrize("attribute", ["type", "tablet_cell_bundle", "options", "max_data_ttl", "no"])
async def test_nothing_is_set_of_what_does_not_exist(full: Web, path: str, attribute: str) -> None:
    status, code, message = await full.refusal("PUT", place(f"{path}/@{attribute}"), "default")
    assert (status, code) == (404, "NO_NODE")
    assert path in message
    assert (await full.refusal("PUT", place(path), "default"))[:2] == (400, "NOT_SETTABLE")


@pytest.mark.parametrize("path", ["//sys", "//sys/tablets", "//sys/tablet_cells", "//sys/tablet_cells/0"])
async def test_nothing_is_set_of_what_the_system_is_made_of(full: Web, path: str) -> None:
    for attribute in ("type", "tablet_cell_bundle", "id"):
        assert (await full.refusal("PUT", place(f"{path}/@{attribute}"), "b.c-d_e"))[:2] == (400, "NOT_SETTABLE")


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/cells", {"bundle": "none"}, "NO_BUNDLE"),
        ("DELETE", "/v1/cells/9", None, "NO_CELL"),
        ("DELETE", "/v1/cells/0", None, "CELL_REFUSED"),
        ("DELETE", "/v1/bundles/none", None, "NO_BUNDLE"),
        ("DELETE", "/v1/bundles/default", None, "BUNDLE_REFUSED"),
        ("POST", "/v1/bundles", {"name": "a/b"}, "INVALID_BUNDLE"),
        ("POST", "/v1/bundles", {"name": ""}, "INVALID_BUNDLE"),
        ("POST", "/v1/tables", {"path": "//t", "schema": SCHEMA, "bundle": "none"}, "NO_BUNDLE"),
        ("DELETE", "/v1/tables/sys", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
async def test_cells_bundles_and_tables_that_cannot_exist_are_refused(
    full: Web, method: str, path: str, body: Any, code: str
) -> None:
    before = [name async for name in walked(full)]
    assert (await full.refusal(method, path, body))[1] == code
    assert [name async for name in walked(full)] == before
