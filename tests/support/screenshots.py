"""Pictures of the console's pages, of a broker with a shop's topics: python -m tests.support.screenshots DIR

Without DIR, the two that README and docs/console.md show are drawn again in docs/images/.
"""

import asyncio
import itertools
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from pqbroker.testing import Broker, broker
from tests.console.browser import Page, browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SHOWN = {
    "console-overview": ("", 1120, 560, False),
    "console-partition": ("#/topics/orders/partitions/0", 1120, 620, True),
}
PAGES = (
    "", "#/topics", "#/topics/orders", "#/topics/orders/messages", "#/topics/orders/produce", "#/topics/orders/configs",
    "#/topics/orders/partitions/0", "#/groups", "#/groups/billing", "#/tablets", "#/tablets/65536", "#/storage",
    "#/clients", "#/clients/connections", "#/cells", "#/settings", "#/api", "#/tour",
)  # fmt: skip
TOPICS = {
    "orders": 3, "payments": 3, "clicks": 6, "inventory": 1, "invoices.pdf": 1, "audit.log": 2, "emails.outgoing": 1,
    "prices": 1, "returns": 1, "sessions": 4, "carts.abandoned": 2, "shipments": 2,
}  # fmt: skip
GROUPS = {"billing": 0.9, "search-index": 0.55, "warehouse": 1.0}
"""Readers of `orders`, and how much of it they have read."""
WRITTEN_S = 25.0
"""Time that the broker is written to before pictures are taken: figures need a past."""
SETTLED_S = 6.0
"""Until a page has its figures, which come every few seconds."""


@asynccontextmanager
async def _busy(running: Broker, chance: random.Random) -> AsyncIterator[None]:
    """The shop's topics, written to all the time, and groups that have read some of it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=running.kafka)
    await admin.start()
    await admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    await admin.close()
    writing = asyncio.create_task(_write(running, chance))
    await asyncio.sleep(WRITTEN_S)
    for group, share in GROUPS.items():
        await _read(running, group, share)
    yield
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing


async def _write(running: Broker, chance: random.Random) -> None:
    async with AIOKafkaProducer(bootstrap_servers=running.kafka, linger_ms=5) as producer:
        for number in itertools.count():
            name = chance.choices(list(TOPICS), [8 if name in ("orders", "clicks") else 1 for name in TOPICS])[0]
            await producer.send(name, _value(name, number, chance), key=b"customer-%d" % (number % 97))
            if number % 20 == 0:
                await asyncio.sleep(0.1)


def _value(topic: str, number: int, chance: random.Random) -> bytes:
    if topic == "invoices.pdf":
        return b"%PDF-1.7\x00\xff" + chance.randbytes(900)
    order = {"id": number, "customer": f"customer-{number % 97}", "total": round(chance.uniform(3, 400), 2)}
    lines = [{"sku": f"A-{chance.randrange(9999):04}", "count": chance.randrange(1, 5)} for _ in range(number % 4)]
    return json.dumps({**order, "currency": "EUR", "lines": lines}).encode()


async def _read(running: Broker, group: str, share: float) -> None:
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=running.kafka, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    async with consumer:
        await consumer.getone()  # the group has given out the partitions
        ends = await consumer.end_offsets(consumer.assignment())
        await consumer.commit({place: int(end * share) for place, end in ends.items()})


async def _draw(page: Page, address: str, file: Path, width: int, height: int, *, is_dark: bool) -> None:
    await page.open("about:blank")
    await page.picture(file, width, height, is_dark=is_dark)  # sets the window, and its colours
    await page.open(address)
    await asyncio.sleep(SETTLED_S)
    await page.picture(file, width, height, is_dark=is_dark)
    if page.complaints:
        sys.exit(f"{address}: {page.complaints}")


async def main(directory: Path | None) -> None:
    """Draw all pages into a directory, or the two that the documents show."""
    with tempfile.TemporaryDirectory() as scratch, broker(Path(scratch, "data")) as running:
        home = f"http://{running.http}/"
        async with _busy(running, random.Random(7)), browser() as chromium, chromium.page() as page:
            if directory is None:
                for name, (address, width, height, is_dark) in SHOWN.items():
                    await _draw(page, home + address, IMAGES / f"{name}.png", width, height, is_dark=is_dark)
                return
            for number, address in enumerate(PAGES):
                name = f"{number:02}{address.replace('#', '').replace('/', '-')}"
                for width, is_dark in ((1280, False), (800, True)):
                    file = directory / f"{name}-{width}.png"
                    await _draw(page, home + address, file, width, 900, is_dark=is_dark)


if __name__ == "__main__":
    DIRECTORY = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    (DIRECTORY or IMAGES).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(DIRECTORY))
