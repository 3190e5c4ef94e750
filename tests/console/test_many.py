"""The console beside much: a thousand topics, hundreds of groups; on a phone, in both colour schemes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.console.browser import Page

TOPICS = 1000
GROUPS = 100
BUSY = "busy.with-a-name-that-is-longer-than-a-phone-is-wide.and-has-few-places-to-break"
RECORDS = 500
PHONE = (360, 740)
PAGES = {
    "": "since the start", "#/topics": "records/s", f"#/topics/{BUSY}": "first offset",
    f"#/topics/{BUSY}/messages": "Partition 0 has offsets", f"#/topics/{BUSY}/produce": "Write",
    f"#/topics/{BUSY}/configs": "retention.ms", f"#/topics/{BUSY}/partitions/0": "Why the oldest data",
    "#/groups": "readers-099", "#/groups/readers-001": "Reset offsets", "#/tables": "//shop/items",
    "#/tables/shop.items": "Attributes", "#/transactions": "Unfinished commits", "#/sql": "Begin with a topic",
    "#/clients": "Processor time", "#/clients/connections": "By client", "#/cells": "Tablets that move",
    "#/tablets": "scheme", "#/tablets/65536": "Channels", "#/storage": "Segments", "#/settings": "Show all",
    "#/api": "what it does", "#/tour": "Query it",
}  # fmt: skip
"""Words of each page, once it has what it asks for."""
_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
_CUT = """[...document.querySelectorAll("main *")].filter((one) => !one.closest(".wide, pre, svg, .chart")
  && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
"""Elements that a phone does not show whole, nor inside something that scrolls."""
_FAINT = """(() => {
  const part = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const shares = [0.2126, 0.7152, 0.0722];
  const light = (colour) => shares.reduce((sum, share, at) => sum + share * part(colour[at] / 255), 0);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === undefined || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const hasText = (one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  const isText = (one) => hasText(one) && !one.closest("svg, .charts, kbd, :disabled");
  return [...document.querySelectorAll("#app *")].filter(isText).map((one) => {
    const [high, low] = [light(parse(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
    return [(high + 0.05) / (low + 0.05), one.outerHTML.slice(0, 80)];
  }).filter(([contrast]) => contrast < 4.5).map(String);
})()"""
"""Texts with less contrast than 4.5 (WCAG AA)."""
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    directory = tmp_path_factory.mktemp("many") / "data"
    async with broker(directory, {"pqbroker.console.writes": "true", "pqbroker.durability": "none"}) as running:
        admin = AIOKafkaAdminClient(bootstrap_servers=running.kafka, request_timeout_ms=120_000)
        await admin.start()
        names = [BUSY, *(f"orders-{number:04}" for number in range(TOPICS - 1))]
        await admin.create_topics([NewTopic(name, 1, 1) for name in names])
        await admin.close()
        await asyncio.to_thread(_fill, running)
        yield running


def _fill(running: Broker) -> None:
    calls = HttpCalls(lambda: running.http)
    calls.ask("POST", f"/v1/topics/{BUSY}/records", {"records": [{"value": "x" * 300}] * RECORDS})
    for number in range(GROUPS):
        offsets = [{"topic": BUSY, "partition": 0, "offset": number * number * 37 % RECORDS}]
        calls.ask("POST", f"/v1/groups/readers-{number:03}/offsets", {"offsets": offsets})
    calls.ask("POST", "/v1/tables", {"path": "//shop/items", "schema": [{"name": "id", "type": "int64"}]})


async def test_a_thousand_topics_are_sorted_and_turned_over_in_pages(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics")
    await page.wait_for("1 001 topics", BUSY, "orders-0098")  # a table is one of them
    await page.click("Next")
    await page.wait_for("orders-0099", "orders-0198")
    await page.click("records")
    first = "document.querySelector('tbody td')?.innerText"
    await page.wait_until(f"{first} === '{BUSY}'")
    await page.click("Next")
    await page.wait_until(f"{first} === 'orders-0099'")
    await page.click("topic")
    await page.click("topic")
    await page.wait_until(f"{first} === 'shop.items'")
    await page.type("[data-search]", "RDERS-077")
    await page.wait_for("10 topics", "orders-0779")
    assert page.complaints == []


async def test_a_hundred_cursors_gather_into_bundles(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics/{BUSY}/partitions/0")
    await page.wait_for("100 groups, the largest lag first", "Show all 100")
    found = await page.look(
        "[...document.querySelectorAll('svg.axis g.bundle text')].map((one) => one.firstChild.data)"
    )
    assert 3 < len(found) < 30
    counts = [int(label.split()[0]) if label.endswith(" groups") else 1 for label in found]
    assert sum(counts) == GROUPS
    titles = await page.look("document.querySelector('svg.axis g.bundle title').innerHTML")
    assert "readers-000 at 0" in titles
    await page.click("Show all")
    await page.wait_until("document.querySelectorAll('a[href^=\"#/groups/readers\"]').length === 100")
    assert page.complaints == []


async def test_every_page_fits_a_phone_and_stands_out_in_both_colour_schemes(page: Page, node: Broker) -> None:
    width, height = PHONE
    await page.send(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )
    await page.open(f"http://{node.http}/")
    for address, word in PAGES.items():
        await page.look(f"location.hash = '{address}'")
        await page.wait_for(word)
        assert (address, await page.look(_WIDE), await page.look(_CUT)) == (address, False, [])
        for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
            await page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            assert await page.look("getComputedStyle(document.body).backgroundColor") == ground
            assert (address, scheme, await page.look(_FAINT)) == (address, scheme, [])


async def test_no_axis_says_a_label_twice(page: Page, node: Broker) -> None:
    """Labels are drawn: what draws them is asked for the labels of ticks that are near to each other."""
    await page.open(f"http://{node.http}/#/groups/readers-001")
    await page.wait_for("Lag, in records")
    labels = await page.look(
        "import('/console/parts.js').then(({ clocks, distinct }) => [clocks([0.2, 0.4, 1.2]), clocks([60, 120, 180]),"
        " distinct(['0 %', '0 %', '1 %', '1 %'])])"
    )
    seconds, minutes, shares = labels
    assert [len(label) for label in (*seconds, *minutes)] == [8, 0, 8, 5, 5, 5]
    assert shares == ["0 %", "", "1 %", ""]
