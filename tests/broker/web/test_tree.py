"""Tables, topics and the system by path."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.conftest import until
from tests.broker.web.conftest import Web

SCHEMA = [{"name": "id", "type": "int64", "required": True}, {"name": "note", "type": "utf8"}]
TABLE = "/v1/tree//shop/orders"


@pytest.fixture
async def shop(web: Web) -> Web:
    body = {"path": "//shop/orders", "schema": SCHEMA, "tablet_count": 2, "attributes": {"max_data_ttl": 5}}
    assert (await web.ask("POST", "/v1/tables", body))[0] == 201
    await web.node.create_topic("shop.bills.old", 3)
    await web.node.create_topic("plain")
    return web


async def value(web: Web, path: str) -> Any:
    status, found = await web.ask("GET", path)
    assert status == 200, found
    return found


@pytest.mark.parametrize("slashes", ["", "/", "//"])
async def test_directories_are_their_names(shop: Web, slashes: str) -> None:
    tree = f"/v1/tree/{slashes}"
    assert await value(shop, tree) == {"plain": None, "shop": None, "sys": None}
    assert await value(shop, f"{tree}shop") == {"bills": None, "orders": None}
    assert await value(shop, f"{tree}shop/bills/") == {"old": None}
    assert await value(shop, f"{tree}shop?children=true") == ["bills", "orders"]
    assert await value(shop, f"{tree}shop?children=true&limit=1&after=bills") == ["orders"]
    assert await value(shop, f"{tree}sys") == {"tablet_cells": None, "tablet_cell_bundles": None, "tablets": None}


async def test_a_table_and_its_attributes(shop: Web) -> None:
    assert (await value(shop, TABLE))["path"] == "//shop/orders"
    attributes = await value(shop, f"{TABLE}/@")
    assert (attributes["type"], attributes["dynamic"], attributes["tablet_state"]) == ("table", True, "mounted")
    assert (attributes["max_data_ttl"], attributes["tablet_cell_bundle"]) == (5, "default")
    assert "tablets" not in attributes
    assert await value(shop, f"{TABLE}/@schema/0/name") == "id"
    assert [tablet["index"] for tablet in await value(shop, f"{TABLE}/@tablets")] == [0, 1]
    assert await value(shop, f"{TABLE}/@tablets/1/state") == "mounted"


async def test_a_topic_and_its_attributes(shop: Web) -> None:
    attributes = await value(shop, "/v1/tree//shop/bills/old/@")
    assert (attributes["type"], attributes["partition_count"], attributes["path"]) == ("topic", 3, "//shop/bills/old")


async def test_what_is_set_acts_after_a_remount(shop: Web) -> None:
    tablet = await value(shop, f"{TABLE}/@tablets/0/tablet_id")
    config = f"/v1/tree//sys/tablets/{tablet}/orchid/config"
    assert await shop.ask("PUT", f"{TABLE}/@max_data_ttl", 86_400_000) == (200, 86_400_000)
    assert (await value(shop, config))["max_data_ttl"] == 5
    await shop.ask("POST", "/v1/tables/shop.orders/remount", {})
    assert (await value(shop, config))["max_data_ttl"] == 86_400_000


async def test_the_mount_config_is_read_and_set_by_name_and_as_a_whole(shop: Web) -> None:
    config = f"{TABLE}/@mount_config"
    assert await value(shop, f"{config}/max_data_ttl") == 5
    assert await value(shop, f"{config}/max_ordered_tablet_data_weight") is None
    assert await shop.ask("PUT", f"{config}/max_ordered_tablet_data_weight", 9) == (200, 9)
    assert await value(shop, f"{TABLE}/@max_ordered_tablet_data_weight") == 9
    assert await value(shop, f"{TABLE}/@mounted_attributes/max_ordered_tablet_data_weight") is None
    status, found = await shop.ask("PUT", config, {"max_data_versions": 2})
    assert (status, found["max_data_versions"], found["max_data_ttl"]) == (200, 2, 1_800_000)
    assert found == await value(shop, config)
    assert await value(shop, f"{TABLE}/@max_ordered_tablet_data_weight") is None


async def test_a_tablet_says_whose_it_is(shop: Web) -> None:
    tablets = await value(shop, "/v1/tree//sys/tablets?children=true")
    assert len(tablets) == 4
    of_table = await value(shop, f"{TABLE}/@tablets/1/tablet_id")
    found = await value(shop, f"/v1/tree//sys/tablets/{of_table}/@")
    assert (found["table_path"], found["index"], found["state"]) == ("//shop/orders", 1, "mounted")
    assert found["statistics"]["tablet_count"] == 1
    paths = {await value(shop, f"/v1/tree//sys/tablets/{tablet}/@table_path") for tablet in tablets}
    assert paths == {"//shop/orders", "//shop/bills/old", "//plain"}


async def test_cells_and_bundles(shop: Web) -> None:
    cell = await value(shop, "/v1/tree//sys/tablet_cells/0/@")
    assert (cell["id"], cell["tablet_cell_bundle"], cell["status"]["health"]) == (0, "default", "good")
    assert await value(shop, "/v1/tree//sys/tablet_cells/0") != {}
    logs = await value(shop, "/v1/tree//sys/tablet_cells/0/changelogs?children=true")
    assert logs
    assert await value(shop, "/v1/tree//sys/tablet_cells/0/snapshots") is not None
    await shop.ask("POST", "/v1/bundles", {"name": "fast"})
    bundle = "/v1/tree//sys/tablet_cell_bundles/fast"
    assert await shop.ask("PUT", f"{bundle}/@node_tag_filter", "ssd & !old") == (200, "ssd & !old")
    assert await shop.ask("PUT", f"{bundle}/@options/clock_cluster_tag", 7) == (200, 7)
    found = await value(shop, f"{bundle}/@")
    assert (found["name"], found["tablet_cell_count"], found["options"]["clock_cluster_tag"]) == ("fast", 0, 7)


async def test_the_tree_says_what_the_resources_say(shop: Web) -> None:
    tablet = await value(shop, f"{TABLE}/@tablets/1/tablet_id")
    of_table = (await value(shop, "/v1/tables/shop.orders/tablets"))["tablets"][1]
    same = (
        ("shop/orders", await value(shop, "/v1/tables/shop.orders")),
        ("plain", await value(shop, "/v1/topics/plain")),
        (f"sys/tablets/{tablet}", await value(shop, f"/v1/tablets/{tablet}") | of_table),
        ("sys/tablet_cells/0", (await value(shop, "/v1/cells"))["cells"][0]),
        ("sys/tablet_cell_bundles/default", (await value(shop, "/v1/bundles"))["bundles"][0]),
    )
    for path, document in same:
        assert await value(shop, f"/v1/tree//{path}") == document, path
        attributes = await value(shop, f"/v1/tree//{path}/@")
        assert [name for name, shown in document.items() if shown not in attributes.values()] == [], path
        assert len([name for name in document if name not in attributes]) <= 3, "few have another name"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/tree//nowhere", "NO_NODE"),
        ("GET", "/v1/tree//sys/other", "NO_NODE"),
        ("GET", "/v1/tree//sys/tablets/5", "NO_NODE"),
        ("GET", "/v1/tree//sys/tablets/x/@id", "NO_NODE"),
        ("GET", "/v1/tree//sys/tablet_cells/9", "NO_NODE"),
        ("GET", "/v1/tree//sys/tablet_cells/0/elsewhere", "NO_NODE"),
        ("GET", "/v1/tree//sys/tablet_cell_bundles/none/@", "NO_NODE"),
        ("GET", f"{TABLE}/@color", "NO_ATTRIBUTE"),
        ("GET", f"{TABLE}/@schema/9/name", "NO_ATTRIBUTE"),
        ("GET", f"{TABLE}/@schema/name", "NO_ATTRIBUTE"),
        ("GET", "/v1/tree//shop//orders", "INVALID_PATH"),
        ("GET", f"{TABLE}/@schema//name", "INVALID_PATH"),
        ("PUT", TABLE, "NOT_SETTABLE"),
        ("PUT", f"{TABLE}/@", "NOT_SETTABLE"),
        ("PUT", f"{TABLE}/@schema", "NOT_SETTABLE"),
        ("PUT", f"{TABLE}/@max_data_ttl", "INVALID_ATTRIBUTE"),
        ("PUT", f"{TABLE}/@max_data_ttl/deeper", "NO_ATTRIBUTE"),
        ("GET", f"{TABLE}/@mount_config/color", "NO_ATTRIBUTE"),
        ("PUT", f"{TABLE}/@mount_config/color", "INVALID_ATTRIBUTE"),
        ("PUT", f"{TABLE}/@mount_config/max_data_ttl", "INVALID_ATTRIBUTE"),
        ("PUT", f"{TABLE}/@mount_config/max_data_ttl/deeper", "NO_ATTRIBUTE"),
        ("PUT", f"{TABLE}/@mount_config", "INVALID_REQUEST"),
        ("PUT", "/v1/tree//plain/@type", "NOT_SETTABLE"),
    ],
)
async def test_what_cannot_be_is_refused(shop: Web, method: str, path: str, code: str) -> None:
    status, found, _ = await shop.refusal(method, path, "text" if method == "PUT" else None)
    assert found == code
    assert status in (400, 404)


async def test_more_names_than_an_answer_may_list_are_paged(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_items_max=2)
    for name in ("a", "b", "c"):
        await web.node.create_topic(name)
    status, code, message = await web.refusal("GET", "/v1/tree//")
    assert (status, code) == (400, "INVALID_REQUEST")
    assert "4 names" in message
    assert await value(web, "/v1/tree//?limit=2&after=b&children=true") == ["c", "sys"]
    await web.ask("POST", "/v1/tables", {"path": "//wide", "schema": SCHEMA, "tablet_count": 3})
    assert "more than 2 tablets" in (await web.refusal("GET", "/v1/tree//wide/@tablets"))[2]


async def test_what_is_made_in_a_directory_has_its_bundle(shop: Web) -> None:
    assert (await shop.ask("POST", "/v1/bundles", {"name": "b"}))[0] == 201
    assert (await shop.ask("POST", "/v1/cells", {"bundle": "b"}))[0] == 201
    attribute = "/v1/tree//shop/@tablet_cell_bundle"
    assert await value(shop, attribute) == "default"
    assert await shop.ask("PUT", attribute, "b") == (200, "b")
    assert await value(shop, "/v1/tree//shop/bills/@tablet_cell_bundle") == "b", "directories below have it"
    for name, bundle in (("//shop/new", "b"), ("//shop/bills/new", "b"), ("//other", "default")):
        _, made = await shop.ask("POST", "/v1/tables", {"path": name, "schema": SCHEMA})
        assert made["bundle"] == bundle, name
    body = {"path": "//shop/here", "schema": SCHEMA, "bundle": "default"}
    assert (await shop.ask("POST", "/v1/tables", body))[1]["bundle"] == "default", "what is given counts"
    _, tablets = await shop.ask("GET", "/v1/tables/shop.new/tablets")
    assert tablets["tablets"][0]["home_cell_id"] == "1"
    await shop.node.create_topic("shop.topic")
    topic = shop.node.server.node.cell.current.topics.get("shop.topic")
    assert topic is not None
    assert topic.config.pq_bundle == "b"
    assert (await value(shop, TABLE))["bundle"] == "default", "what was there stays where it is"
    await reopened(shop, "shop.topic")
    assert await value(shop, attribute) == "b"
    assert await shop.ask("PUT", attribute, b"null") == (200, "default")
    assert await value(shop, "/v1/tree//shop/bills/@tablet_cell_bundle") == "default"


async def test_a_directory_is_there_once_its_bundle_is_set(shop: Web) -> None:
    attribute = "/v1/tree//made/below/@tablet_cell_bundle"
    assert (await shop.refusal("GET", attribute))[1] == "NO_NODE"
    assert await shop.ask("PUT", attribute, "default") == (200, "default")
    assert await value(shop, "/v1/tree//made") == {"below": None}
    assert await value(shop, "/v1/tree//made/below") == {}


@pytest.mark.parametrize(
    ("path", "given", "status", "code"),
    [
        ("//shop/@tablet_cell_bundle", "none", 400, "NO_BUNDLE"), ("//shop/@tablet_cell_bundle", 5, 400, "NO_BUNDLE"),
        ("//shop/@type", "table", 400, "NOT_SETTABLE"), ("//@tablet_cell_bundle", "default", 400, "NOT_SETTABLE"),
        ("//shop/orders/@tablet_cell_bundle", "default", 400, "NOT_SETTABLE"),
        ("//new dir/@tablet_cell_bundle", "default", 400, "INVALID_TOPIC_EXCEPTION"),
        ("//sys/new/@tablet_cell_bundle", "default", 404, "NO_NODE"), ("//new/@type", "x", 404, "NO_NODE"),
    ],
)  # fmt: skip
async def test_what_a_directory_cannot_be_is_refused(shop: Web, path: str, given: Any, status: int, code: str) -> None:
    refused = await shop.refusal("PUT", f"/v1/tree/{path}", given)
    assert refused[:2] == (status, code), refused


async def test_directories_with_settings_have_a_limit(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(config_resources_max=1)
    assert (await web.ask("PUT", "/v1/tree//a/@tablet_cell_bundle", "default"))[0] == 200
    status, code, told = await web.refusal("PUT", "/v1/tree//b/@tablet_cell_bundle", "default")
    assert (status, code) == (409, "POLICY_VIOLATION")
    assert "pqbroker.config.resources.max = 1" in told


async def reopened(web: Web, topic: str) -> None:
    """The store fails; the node opens its cell again, and the topic is served."""
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before and topic in owner.current.topics.names())
