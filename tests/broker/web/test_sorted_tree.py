"""Sorted tables by path: their attributes, read and set, and their tablets under //sys."""

from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, SCHEMA, create
from tests.broker.web.test_tree import value
from tests.broker.web.test_tree_walk import place, read, walked

STOCK = "/v1/tree//shop/stock"


@pytest.fixture
async def shop(web: Web) -> Web:
    """A sorted table with two tablets, one whose name begins with its name, and an ordered table."""
    await create(web, pivot_keys=[[], ["m", 5]], attributes={"max_data_ttl": 5})
    for path, schema in (("//shop/stock/old", SCHEMA), ("//shop/orders", SCHEMA[3:])):
        assert (await web.ask("POST", "/v1/tables", {"path": path, "schema": schema}))[0] == 201
    return web


async def test_a_sorted_table_is_listed_and_has_its_attributes(shop: Web) -> None:
    assert await value(shop, "/v1/tree//shop?children=true") == ["orders", "stock"]
    assert await value(shop, f"{STOCK}?children=true") == ["old"]
    attributes = await value(shop, f"{STOCK}/@")
    assert (attributes["type"], attributes["sorted"], attributes["dynamic"]) == ("table", True, True)
    assert (attributes["tablet_state"], attributes["tablet_cell_bundle"]) == ("mounted", "default")
    assert attributes["key_columns"] == ["shop", "id"]
    assert attributes["pivot_keys"] == [[], ["m", 5]]
    assert attributes["max_data_ttl"] == 5
    assert len(attributes["id"]) == 32
    assert await value(shop, f"{STOCK}/@schema/0/sort_order") == "ascending"
    assert await value(shop, f"{STOCK}/@tablets/1/pivot_key") == ["m", 5]
    assert await value(shop, f"{STOCK}/@mount_config/in_memory_mode") == "none"


async def test_the_tree_says_what_the_resources_say(shop: Web) -> None:
    of_table = (await value(shop, f"{PATH}/tablets"))["tablets"][1]
    tablet = of_table["tablet_id"]
    same = (
        ("shop/stock", await value(shop, PATH)),
        (f"sys/tablets/{tablet}", await value(shop, f"/v1/tablets/{tablet}") | of_table),
    )
    for path, document in same:
        assert await value(shop, f"/v1/tree//{path}") == document, path
        attributes = await value(shop, f"/v1/tree//{path}/@")
        assert [name for name, shown in document.items() if shown not in attributes.values()] == [], path
    assert await value(shop, f"/v1/tree//sys/tablets/{tablet}/@table_path") == "//shop/stock"


async def test_all_that_is_listed_is_read(shop: Web) -> None:
    found = [path async for path in walked(shop)]
    for path in found:
        await read(shop, path)
    assert {"//shop/stock", "//shop/stock/old", "//shop/orders"} <= set(found)
    assert sum(path.endswith("/orchid/config") for path in found) == 4, "one for each tablet of a table"


async def test_what_is_set_acts_after_a_remount(shop: Web) -> None:
    tablet = await value(shop, f"{STOCK}/@tablets/1/tablet_id")
    config = f"/v1/tree//sys/tablets/{tablet}/orchid/config"
    assert await shop.ask("PUT", f"{STOCK}/@max_data_ttl", 86_400_000) == (200, 86_400_000)
    assert (await value(shop, config))["max_data_ttl"] == 5
    await shop.ask("POST", f"{PATH}/remount", {"first_tablet_index": 1})
    assert (await value(shop, config))["max_data_ttl"] == 86_400_000
    assert await shop.ask("PUT", f"{STOCK}/@mount_config/auto_compaction_period", 7) == (200, 7)
    status, found = await shop.ask("PUT", f"{STOCK}/@mount_config", {"min_data_versions": 2, "max_data_versions": 2})
    assert (status, found["min_data_versions"], found["max_data_ttl"]) == (200, 2, 1_800_000)
    assert found["auto_compaction_period"] is None


async def test_a_forced_compaction_is_asked_for_and_cancelled(shop: Web) -> None:
    revision = f"{STOCK}/@forced_compaction_revision"
    assert await shop.ask("PUT", revision, 1) == (200, 1)
    assert await shop.ask("PUT", revision, 1) == (200, 2), "1 stands for the next one"
    whole = await value(shop, f"{STOCK}/@mount_config")
    assert await shop.ask("PUT", f"{STOCK}/@mount_config", whole) == (200, whole), "what is not changed stays"
    assert await shop.ask("PUT", revision, b"null") == (200, None)


@pytest.mark.parametrize(
    ("method", "path", "given", "code"),
    [
        ("GET", f"{STOCK}/@color", None, "NO_ATTRIBUTE"),
        ("GET", f"{STOCK}/nothing", None, "NO_NODE"),
        ("PUT", f"{STOCK}/@schema", [], "NOT_SETTABLE"),
        ("PUT", f"{STOCK}/@pivot_keys", [], "NOT_SETTABLE"),
        ("PUT", f"{STOCK}/@tablet_cell_bundle", "default", "NOT_SETTABLE"),
        ("PUT", f"{STOCK}/@max_data_ttl", "x", "INVALID_ATTRIBUTE"),
        ("PUT", f"{STOCK}/@mount_config", {"color": 1}, "INVALID_ATTRIBUTE"),
        ("PUT", f"{STOCK}/@mount_config", {"commit_ordering": "weak"}, "INVALID_ATTRIBUTE"),
        ("PUT", f"{STOCK}/@mount_config", 5, "INVALID_REQUEST"),
        ("PUT", f"{STOCK}/@min_partition_data_size", 1 << 40, "INVALID_ATTRIBUTE"),
    ],
)
async def test_what_cannot_be_is_refused(shop: Web, method: str, path: str, given: Any, code: str) -> None:
    before = await value(shop, STOCK)
    status, found, _ = await shop.refusal(method, path, given)
    assert found == code
    assert status in (400, 404)
    assert await value(shop, STOCK) == before


@pytest.mark.parametrize(("method", "given"), [("GET", None), ("PUT", 5)])
async def test_a_name_that_is_nearly_one_is_told_which(shop: Web, method: str, given: Any) -> None:
    for path in (f"{STOCK}/@max_data_tl", f"{STOCK}/@mount_config/max_data_tl"):
        _, document = await shop.ask(method, path, given)
        assert "Did you mean" in document["error"]["cure"]
        assert "max_data_ttl" in document["error"]["cure"]


async def test_a_table_that_is_deleted_is_gone_and_its_directory_stays_while_it_has_names(shop: Web) -> None:
    assert (await shop.ask("DELETE", PATH))[0] == 204
    assert (await shop.ask("GET", f"{STOCK}/@"))[1]["type"] == "directory"
    assert (await shop.ask("DELETE", f"{PATH}.old"))[0] == 204
    assert (await shop.refusal("GET", place("//shop/stock")))[:2] == (404, "NO_NODE")
