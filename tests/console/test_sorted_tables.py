"""The page of a sorted table in a real browser: its picture of stores over keys, and the numbers beside it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, memory_broker
from tests.console.browser import Page

HOSTILE = "<img src=x onerror=document.title='owned'>"
COLUMNS = [
    {"name": "shop", "type": "utf8", "sort_order": "ascending"},
    {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"},
]  # fmt: skip
PATH = "/v1/tables/shop.stock"
BIG = 2**53 + 1
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[Broker]:
    async with memory_broker() as running:
        await asyncio.to_thread(_fill, HttpCalls(lambda: running.http))
        yield running


@pytest.fixture
def calls(node: Broker) -> HttpCalls:
    return HttpCalls(lambda: node.http)


def _fill(calls: HttpCalls) -> None:
    """Three chunks that are not compacted, and rows in memory."""
    attributes = {"enable_compaction_and_partitioning": False, "max_overlapping_store_count": 3}
    new = {"path": "//shop/stock", "schema": COLUMNS, "attributes": attributes, "pivot_keys": [[], ["x"]]}
    calls.ask("POST", "/v1/tables", new)
    insert(calls, ("a", 1), ("c", BIG))
    flush(calls)
    insert(calls, (HOSTILE, 2), ("b", 5))
    flush(calls)
    insert(calls, ("b", 3))


def insert(calls: HttpCalls, *keys: tuple[str, int]) -> None:
    rows: list[dict[str, Any]] = [{"shop": shop, "id": number, "note": HOSTILE} for shop, number in keys]
    calls.ask("POST", f"{PATH}/rows", {"rows": rows})


def flush(calls: HttpCalls) -> None:
    for verb in ("freeze", "unfreeze"):
        calls.ask("POST", f"{PATH}/{verb}", {})


async def open_table(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/tables/shop.stock")
    await page.wait_for("Stores of tablet 0 over its keys", "in memory")


async def rects(page: Page, what: str = "[data-chunk]") -> list[dict[str, Any]]:
    """The rectangles of the picture: class, place, and the words of each."""
    found: list[dict[str, Any]] = await page.look(
        f"[...document.querySelectorAll('svg.chunks rect{what}')].map((one) => ({{kind: one.getAttribute('class'),"
        " x: +one.getAttribute('x'), y: +one.getAttribute('y'), width: +one.getAttribute('width'),"
        " words: one.querySelector('title').textContent}))"
    )
    return found


async def test_chunks_lie_over_their_keys_the_newer_above_the_older(page: Page, node: Broker) -> None:
    await open_table(page, node)
    text = await page.wait_for("active, 1 rows", "write amplification", "sorted by", "shop, id", "ascending")
    assert "2 of 3" in text
    older, newer = sorted(await rects(page), key=lambda one: -one["y"])
    assert f'"a", 1 to "c", {BIG}' in older["words"]
    assert HOSTILE in newer["words"]
    assert newer["x"] < older["x"] < newer["x"] + newer["width"] < older["x"] + older["width"]
    assert newer["y"] < older["y"]
    assert {one["kind"] for one in (older, newer)} == {"idle"}
    assert "no compaction: its size does not fit to the others" in older["words"]
    (store,) = await rects(page, ".active")
    assert "1 rows of 1 keys" in store["words"]
    assert page.complaints == []
    assert await page.look("document.title") != "owned"


async def test_the_picture_changes_as_the_table_does(page: Page, node: Broker, calls: HttpCalls) -> None:
    """One more chunk blocks writes; then all are compacted into one."""
    await open_table(page, node)
    await page.wait_for("No task takes these chunks")
    await asyncio.to_thread(flush, calls)
    await page.wait_for("3 of 3", "takes no writes: Too many overlapping stores", "Wait for compaction")
    allow = {"attributes": {"enable_compaction_and_partitioning": True}}
    await asyncio.to_thread(calls.ask, "PATCH", PATH, allow)
    await asyncio.to_thread(calls.ask, "POST", f"{PATH}/remount", {})
    await page.wait_for("compaction", "3 → 1")
    async with asyncio.timeout(20):
        await page.look(
            "new Promise((done) => { const see = () =>"
            " (document.querySelectorAll('[data-chunk]').length === 1 ? done(1) : setTimeout(see, 50)); see(); })"
        )
    assert page.complaints == []


async def test_another_tablet_is_shown_and_the_order_is_chosen(page: Page, node: Broker) -> None:
    await open_table(page, node)
    await page.type("select[aria-label=order]", "size")
    assert await page.look("document.querySelector('select[aria-label=order]').value") == "size"
    await page.look("document.querySelector('button[aria-label=\"show tablet 1\"]').click()")
    await page.wait_for("Stores of tablet 1 over its keys", '"x"')
    assert page.complaints == []


async def test_a_topic_that_feeds_it_is_on_its_page_and_on_that_of_the_topic(
    page: Page, node: Broker, calls: HttpCalls
) -> None:
    await asyncio.to_thread(_feed, calls)
    await page.open(f"http://{node.http}/#/tables/shop.stock")
    await page.wait_for("Fed from a topic", "orders", "stopped", "is unmounted")
    await page.open(f"http://{node.http}/#/topics/orders/partitions")
    await page.wait_for("Feeds tables", "//shop/stock", "stopped")
    assert page.complaints == []
    await asyncio.to_thread(calls.ask, "DELETE", "/v1/materializations/shop.stock")
    await asyncio.to_thread(calls.ask, "POST", f"{PATH}/mount", {})


def _feed(calls: HttpCalls) -> None:
    """A topic that feeds the table, which is unmounted."""
    calls.ask("POST", "/v1/topics", {"name": "orders"})
    columns = {"shop": "key", "id": "$row_index"}
    calls.ask("POST", "/v1/materializations", {"topic": "orders", "table": "shop.stock", "columns": columns})
    calls.ask("POST", f"{PATH}/unmount", {})
