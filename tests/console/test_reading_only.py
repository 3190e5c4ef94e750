"""The console of a broker whose disk is full: each page says what holds, and what would help."""

from pathlib import Path

import pytest

from tests.broker.services.cells.full_site import filled_site
from tests.console.browser import Browser

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAUSE = "opened for reading only, since its disk is full: free at least 1 MiB"
PAGES = {
    "": ["reading-only", "degraded", "since its disk is full", "To cure it: free at least 1 MiB"],
    "#/topics": ["kept", "far"],
    "#/topics/kept": ["refused: disk"],
    "#/topics/kept/messages": ["small"],
    "#/topics/kept/partitions/0": ["writes", CAUSE],
    "#/groups": ["COORDINATOR_NOT_AVAILABLE", CAUSE, "See to what the message names"],
    "#/groups/g": ["COORDINATOR_NOT_AVAILABLE", CAUSE, "See to what the message names"],
    "#/tablets": ["scheme", "running", "coordinator", "not started"],
    "#/tables/rows": ["mounted"],
    "#/storage": ["orange_out_space"],
}
MISLEADING = "Try again in a moment"


async def test_each_page_says_that_the_disk_is_full_where_it_matters(chromium: Browser, tmp_path: Path) -> None:
    site = await filled_site(tmp_path)
    async with site.served(console_writes=True) as web:
        home = f"http://{web.node.server.http_address}/"
        for address, words in PAGES.items():
            async with chromium.page() as page:
                await page.open(home + address)
                assert MISLEADING not in await page.wait_for(*words), address
        async with chromium.page() as page:
            await page.open(f"{home}#/topics/kept/produce")
            await page.wait_for("Write")
            await page.type("textarea", "by hand")
            await page.click("Write")
            await page.wait_for("KAFKA_STORAGE_ERROR", CAUSE)
