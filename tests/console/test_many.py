"""The console beside much: a thousand topics, hundreds of groups; on a phone, in both colour schemes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pqbroker.testing import Broker
from tests.console.browser import Browser, Page
from tests.console.crowded import BUSY, GROUPS, PAGES, PHONE, crowded_broker
from tests.console.pictures import REDRAW, drawn, stored, unlike

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
    async with crowded_broker(tmp_path_factory.mktemp("many") / "data") as running:
        yield running


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
    await page.resize(*PHONE)
    await page.open(f"http://{node.http}/")
    for address, word in PAGES.items():
        await page.look(f"location.hash = '{address}'")
        await page.wait_for(word)
        assert (address, await page.look(_WIDE), await page.look(_CUT)) == (address, False, [])
        for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")):
            await page.prefer(scheme)
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


@pytest.mark.parametrize("address", PAGES)
async def test_a_page_looks_as_its_pictures(page: Page, chromium: Browser, node: Broker, address: str) -> None:
    """In a wide window and on a phone, light and dark."""
    others = []
    async with chromium.page() as beside:
        async for name, picture in drawn(page, f"http://{node.http}/", address):
            if why := await unlike(beside, picture, stored(name)):
                others.append(f"{name}: {why}")
    assert others == [], f"where that is meant, `{REDRAW}` draws the pictures again: look at them"
