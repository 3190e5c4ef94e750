"""Every page in a real browser: it renders, complains of nothing, asks nobody else, and shows bytes as text."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pqbroker.testing import Broker, broker
from tests.broker.wire import Client
from tests.console.browser import Page
from tests.support.schema_registry import TestRegistry, framed, serving

HOSTILE = "<img src=x onerror=document.title='owned'>"
TOPIC = "orders"
GROUP = "billing"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def registry() -> Iterator[TestRegistry]:
    with serving() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory, registry: TestRegistry) -> AsyncIterator[Broker]:
    """A broker with a topic of hostile records that a group has read."""
    directory = tmp_path_factory.mktemp("console") / "data"
    starting = broker(directory, settings={"pqbroker.registries": f"main={registry.address}"})
    running = await asyncio.to_thread(starting.__enter__)
    await _fill(running)
    await asyncio.to_thread(_make_tables, running)
    yield running
    await asyncio.to_thread(starting.__exit__, None, None, None)


async def _fill(running: Broker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=running.kafka) as producer:
        for value in (b"plain", HOSTILE.encode(), b"\xff\x00", b'{"id": 1}'):
            await producer.send_and_wait(TOPIC, value, key=HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=running.kafka, group_id=GROUP, auto_offset_reset="earliest")
    async with consumer:
        await consumer.getone()
        await consumer.commit()


def _make_tables(running: Broker) -> None:
    """One with a hostile row, one whose tablet is frozen, one that is static, one sorted by a column of a hostile name.
    """
    calls = HttpCalls(lambda: running.http)
    columns = [{"name": "id", "type": "int64", "required": True}, {"name": "note", "type": "utf8"}]
    for path in ("//shop/items", "//shop/old"):
        calls.ask("POST", "/v1/tables", {"path": path, "schema": columns})
    calls.ask("POST", "/v1/tables/shop.items/rows", {"rows": [{"id": 2**53 + 1, "note": HOSTILE}, {"id": 2}]})
    calls.ask("POST", "/v1/tables/shop.old/freeze", {})
    calls.ask("POST", "/v1/tables", {"path": "//shop/still", "schema": columns, "dynamic": False})
    keys = [{"name": HOSTILE, "type": "utf8", "sort_order": "ascending"}]
    pivots = [[], [HOSTILE]]
    calls.ask("POST", "/v1/tables", {"path": "//shop/stock", "schema": [*keys, *columns], "pivot_keys": pivots})
    calls.ask("POST", "/v1/tables/shop.stock/rows", {"rows": [{HOSTILE: "a", "id": 1}, {HOSTILE: "z", "id": 2}]})


PAGES = {
    "": ["Overview", "ok", "Received a second", "Log"],
    "#/topics": ["Topics", TOPIC],
    f"#/topics/{TOPIC}": ["Partitions", "inside", "taken"],
    f"#/topics/{TOPIC}/messages": ["plain", HOSTILE, "base64", '{"id": 1}'],
    f"#/topics/{TOPIC}/produce": ["This page only reads"],
    f"#/topics/{TOPIC}/configs": ["retention.ms"],
    f"#/topics/{TOPIC}/partitions/0": ["Why the oldest data is still there", "retention.ms", GROUP, "Head"],
    "#/groups": [GROUP, "Empty"],
    f"#/groups/{GROUP}": ["Lag, in records", "Reset offsets", TOPIC],
    "#/tablets": ["scheme", "persqueue"],
    "#/tablets/65536": ["Channels", "Keys", "Blobs"],
    "#/tables": ["//shop/items", "mounted", "frozen", "ordered", "sorted", "static"],
    "#/tables/shop.items": ["Columns", "utf8", "required", "Attributes", "min_data_ttl", HOSTILE, "trimmed"],
    "#/tables/shop.stock": ["sorted by", "ascending", HOSTILE, "table lookup", "Query them with SQL.", "max_read"],
    "#/tables/shop.still": ["Columns", "none", "Attributes", "Query them with SQL."],
    "#/sql": ["Run", "Begin with a topic", TOPIC],
    "#/storage": ["Storage", "main"],
    "#/clients": ["Clients", "By connection"],
    "#/clients/connections": ["Clients", "By client"],
    "#/cells": ["Cells", "Bundles", "default", "No tablet has moved"],
    "#/access": ["Access", "There are no users", "This page only reads"],
    "#/access/tokens": ["There are no tokens"],
    "#/access/rules": ["Everybody may do everything"],
    "#/access/quotas": ["There are no quotas"],
    "#/transactions": ["Transactions", "No transaction over tables is open"],
    "#/settings": ["Settings"],
    "#/api": ["/v1/topics"],
    "#/nowhere": ["There is no page nowhere"],
    "#/%zz": ["There is no page %zz"],
}


@pytest.mark.parametrize(("address", "words"), PAGES.items(), ids=list(PAGES))
async def test_a_page_renders_without_complaint_and_asks_nobody_else(
    page: Page, node: Broker, address: str, words: list[str]
) -> None:
    home = f"http://{node.http}/"
    await page.open(home + address)
    await page.wait_for(*words)
    assert page.complaints == []
    assert [asked for asked in page.asked if not asked.startswith((home, "data:,"))] == []
    assert await page.look("document.title") != "owned"
    assert await page.look("document.images.length") == 0


async def test_a_tablet_of_a_sorted_table_leads_to_the_table(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/tablets")
    await page.wait_for("shop.stock")
    for kind, found in (("tables", True), ("topics", False)):
        link = f"""document.querySelector('a[href="#/{kind}/shop.stock"]') !== null"""
        assert await page.look(link) is found


async def test_a_topic_that_is_not_there_is_told_with_its_cure(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics/{quote('no/such', safe='')}")
    await page.wait_for("UNKNOWN_TOPIC_OR_PARTITION", "no/such")


async def test_a_search_begins_with_a_slash_and_pages_with_g(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/")
    await page.wait_for("Overview")
    for key in ("g", "t"):
        await page.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
    await page.wait_for("Topics", TOPIC)
    await page.send("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
    assert await page.look("document.activeElement.placeholder") == "name contains …"
    await page.type("[data-search]", "no-such-topic")
    await page.wait_for("No topic has a name that contains this text.")
    await page.type("[data-search]", TOPIC[1:4].upper())
    await page.wait_for("messages")


async def test_a_reset_is_shown_before_it_is_done(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/groups/{GROUP}")
    await page.wait_for("Preview")
    await page.click("Preview")
    assert await page.look("document.querySelector('select').value") == TOPIC
    await page.wait_for("then", f"pqbroker group reset {GROUP} {TOPIC} --to earliest")


async def test_a_reconciliation_is_seen_member_by_member(page: Page, node: Broker) -> None:
    calls = HttpCalls(lambda: node.http)
    await asyncio.to_thread(calls.ask, "POST", "/v1/topics", {"name": "parcels", "partitions": 2})
    host, _, port = node.kafka.partition(":")
    client = await Client.connect(host, int(port))

    async def beat(member_id: str, epoch: int, **fields: Any) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id="shippers", member_id=member_id, member_epoch=epoch, **fields
        )  # fmt: skip
        answer = await client.ask(request, 1)
        assert answer.error_code == 0
        learned: int = answer.member_epoch
        return learned

    try:
        for member_id in ("first", "second"):
            epoch = await beat(
                member_id, 0, subscribed_topic_names=["parcels"], topic_partitions=[], rebalance_timeout_ms=60_000
            )
            await page.open(f"http://{node.http}/#/groups/shippers")
            await page.wait_for("first", "parcels: 0, 1", "epoch of the targets", "uniform")
        while await beat("second", epoch) == epoch:  # until a second target is due
            await page.look("document.title")
        await page.wait_for("Reconciling", "UnreleasedPartitions", "waits for")
        await page.open(f"http://{node.http}/#/groups")
        await page.wait_for("shippers", "consumer", "classic")
        assert page.complaints == []
    finally:
        await client.close()


async def test_a_record_is_shown_whole(page: Page, node: Broker) -> None:
    """Offset 2 is no text, offset 3 is JSON."""
    await page.open(f"http://{node.http}/#/topics/{TOPIC}/messages")
    await page.wait_for("plain")
    for offset, shown in (("2", "000000  ff 00"), ("3", '"id": 1\n}')):
        await page.click(offset)
        text = await page.wait_for("partition, offset", shown)
        assert HOSTILE in text
    assert await page.look("document.title") != "owned"
    assert page.complaints == []


async def test_a_search_shows_what_all_partitions_hold(page: Page, node: Broker) -> None:
    wide = "orders-searched"
    await asyncio.to_thread(node.create_topic, wide, partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=node.kafka) as producer:
        for partition in range(3):
            for number in range(4):
                await producer.send_and_wait(wide, b'{"id": "n%d-%d"}' % (partition, number), partition=partition)
    await page.open(f"http://{node.http}/#/topics/{wide}/messages")
    await page.wait_for("n0-0")
    await page.type("[data-search]", "id contains -3")
    await page.wait_for("No record here contains that.")
    await page.click("Search all partitions")
    text = await page.wait_for("3 found in 12 records", "n0-3", "n1-3", "n2-3", "All records were looked at.")
    assert "n0-0" not in text
    await page.click("Back to all records")
    await page.wait_for("No record here contains that.")
    assert page.complaints == []


async def test_a_search_shows_what_the_registry_of_the_topic_decodes(
    page: Page, node: Broker, registry: TestRegistry
) -> None:
    decoded = "orders-decoded"
    await asyncio.to_thread(node.create_topic, decoded, partitions=2, configs={"value.registry": "main"})
    city = {"type": "record", "name": "C", "fields": [{"name": "zip", "type": "long"}]}
    number = registry.add(f"{decoded}-value", city)
    async with AIOKafkaProducer(bootstrap_servers=node.kafka) as producer:
        for partition, value in ((0, framed(number, b"\x0a")), (1, framed(number, b"\x0e")), (1, b"no frame")):
            await producer.send_and_wait(decoded, value, partition=partition)
    await page.open(f"http://{node.http}/#/topics/{decoded}/messages")
    await page.wait_for('"zip":5')
    await page.type("[data-search]", "zip = 7")
    await page.click("Search all partitions")
    text = await page.wait_for(
        "1 found in 3 records", '"zip":7', "not decoded: 1; the first, at offset 1 of partition 1"
    )
    assert '"zip":5' not in text
    assert page.complaints == []


async def test_a_column_sorts_by_its_numbers(page: Page, node: Broker) -> None:
    wide = "orders-by-size"
    await asyncio.to_thread(node.create_topic, wide, partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=node.kafka) as producer:
        for partition, count in ((0, 2), (1, 10), (2, 9)):
            for _ in range(count):
                await producer.send_and_wait(wide, b"x", partition=partition)
    await page.open(f"http://{node.http}/#/topics/{wide}")
    await page.wait_for("offsets", "10")
    orders = []
    for _ in range(3):
        await page.click("offsets")
        orders.append(
            await page.look(
                "[...document.querySelectorAll('tbody tr td:first-child')].map(one => one.innerText).join('')"
            )
        )
    assert orders == ["021", "120", "012"]


async def test_a_live_tail_survives_the_death_of_the_broker(page: Page, node: Broker, tmp_path: Path) -> None:
    await page.open(f"http://{node.http}/#/topics/{TOPIC}/messages")
    await page.wait_for("plain")
    await page.click("Live")
    await page.wait_for("Records appear as they are written")
    await _write(node, b"before the end")
    await page.wait_for("before the end")
    await asyncio.to_thread(node.kill)
    await page.wait_for("The broker does not answer")
    await asyncio.to_thread(node.start)
    await _write(node, b"after the end")
    text = await page.wait_for("after the end", within_s=60)
    assert text.count("before the end") == 1


async def _write(node: Broker, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=node.kafka) as producer:
        await producer.send_and_wait(TOPIC, value)
