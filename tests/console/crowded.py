"""A broker with a thousand topics and a hundred groups, and the pages that its console has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker

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


@asynccontextmanager
async def crowded_broker(directory: Path) -> AsyncIterator[Broker]:
    """Serve over a new directory; the console may write."""
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
