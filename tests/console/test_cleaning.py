"""Cleaning of compacted topics in the pages: what it did and will do, a dry run, and a pass that a button begins."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.console.browser import Page

TOPIC = "users"
_CONFIG = {"cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "1"}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """A broker whose pages may change something, with a compacted topic of two partitions, one of them dirty."""
    directory = tmp_path_factory.mktemp("cleaning") / "data"
    async with broker(directory, {"pqbroker.console.writes": "true"}) as running:
        await asyncio.to_thread(_fill, running)
        yield running


def _fill(running: Broker) -> None:
    running.create_topic(TOPIC, 2, _CONFIG)
    calls = HttpCalls(lambda: running.http)
    for number in range(20):
        records = [{"key": f"k{number % 3}", "value": "v" * 500, "partition": 0}]
        calls.ask("POST", f"/v1/topics/{TOPIC}/records", {"records": records})


async def test_a_partition_shows_a_dry_run_and_is_cleaned_by_a_button(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics/{TOPIC}/partitions/0")
    await page.wait_for("Cleaning", "of its bytes", "never cleaned", "none since the start")
    await page.click("Show what a pass would clean")
    await page.wait_for("would be cleaned; the head first becomes a body", "(100 %)")
    assert "never cleaned" in await page.text()
    await page.click("Clean now")
    text = await page.wait_for("clean: nothing was written since the last pass", "of 20 records gone", "became")
    assert "17 of 20 records gone" in text
    assert "cleaned up to" in text
    assert page.complaints == []


async def test_a_topic_lists_its_partitions_and_the_overview_the_passes(page: Page, node: Broker) -> None:
    await asyncio.to_thread(HttpCalls(lambda: node.http).ask, "POST", f"/v1/topics/{TOPIC}/clean", {})
    await page.open(f"http://{node.http}/#/topics/{TOPIC}")
    await page.wait_for("not cleaned yet", "records gone", "once enough was written")
    await page.click("Show what a pass would clean")
    await page.wait_for("would not be cleaned: it holds no records")
    await page.open(f"http://{node.http}/#/overview")
    await page.wait_for("Passes over compacted topics", f"{TOPIC}-0", "forced", "records gone")
    assert page.complaints == []


async def test_a_page_that_only_reads_shows_the_dry_run_alone(page: Page, tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as running:
        await asyncio.to_thread(_fill, running)
        await page.open(f"http://{running.http}/#/topics/{TOPIC}/partitions/0")
        await page.wait_for("never cleaned")
        await page.click("Show what a pass would clean")
        assert "Clean now" not in await page.wait_for("would be cleaned")
        await page.click("Cancel")
        running.create_topic("plain")
        await page.open(f"http://{running.http}/#/topics/plain")
        assert "Cleaning" not in await page.wait_for("plain", "leader epoch")
