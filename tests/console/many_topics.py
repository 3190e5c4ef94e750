"""How long the first page of Topics takes beside 10 000 topics: python -m tests.console.many_topics [COUNT]

Prints milliseconds from going to Topics in an open console until its hundred topics are shown, and from opening the
address in a browser that has nothing of it; ends with status 1 when the first, in the middle, takes over 200 ms.
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from pqbroker.testing import Broker, broker
from tests.console.browser import Browser, Page, browser

MARK_MS = 200.0
OPENINGS = 9
PAGE_TOPICS = 100
_CREATED_AT_ONCE = 500
_SHOWN = """new Promise((resolve) => {
  const begun = performance.now();
  new MutationObserver((_, observer) => {
    if (document.querySelectorAll("tbody tr").length < %d) return;
    observer.disconnect();
    requestAnimationFrame(() => resolve(performance.now() - begun));
  }).observe(document, {childList: true, subtree: true});
  %s
})"""
"""Milliseconds until the rows have been there for a frame."""


async def _create(running: Broker, count: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=running.kafka, request_timeout_ms=300_000)
    await admin.start()
    names = [f"topic-{number:05}" for number in range(count)]
    for begin in range(0, count, _CREATED_AT_ONCE):
        await admin.create_topics([NewTopic(name, 1, 1) for name in names[begin : begin + _CREATED_AT_ONCE]])
    await admin.close()


async def _opened(page: Page, home: str) -> tuple[float, float]:
    """Milliseconds from going to Topics, and from opening its address, until it is shown."""
    await page.send("Page.addScriptToEvaluateOnNewDocument", source="window.shown = " + _SHOWN % (PAGE_TOPICS, ""))
    await page.send("Network.setCacheDisabled", cacheDisabled=True)
    await page.open(f"{home}#/topics")
    await page.wait_for(f"topic-{PAGE_TOPICS - 1:05}", within_s=60)
    cold = await page.look("window.shown")
    await page.look("location.hash = '#/storage'")
    await page.wait_for("Segments")
    return float(await page.look(_SHOWN % (PAGE_TOPICS, "location.hash = '#/topics';"))), float(cold)


async def _openings(chromium: Browser, home: str) -> Sequence[tuple[float, float]]:
    found = []
    for _ in range(OPENINGS):
        async with chromium.page() as page:
            found.append(await _opened(page, home))
    return found


async def main(count: int) -> None:
    """One broker, one browser, a tab for each opening."""
    with tempfile.TemporaryDirectory() as scratch:
        async with broker(Path(scratch, "data")) as running, browser() as chromium:
            await _create(running, count)
            found = await _openings(chromium, f"http://{running.http}/")
    shown, cold = (statistics.median(times) for times in zip(*found, strict=True))
    print(f"{count} topics: shown {shown:.0f} ms after going there, {cold:.0f} ms after opening the address")
    print("each:", ", ".join(f"{one:.0f} {other:.0f}" for one, other in found))
    if shown > MARK_MS:
        sys.exit(1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
