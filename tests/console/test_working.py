"""What a person does in the pages: queries, and changes where the broker was started with pqbroker.console.writes."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.console.browser import Page

TOPIC = "orders"
TABLE = "shop.items"
BIG = 2**53 + 1
"""What no number of JavaScript is."""
_CHANGE = "document.querySelector(\"button[aria-label='Change retention.ms']\").click()"
"""Opens the editor of a config."""
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """A broker whose pages may change something, with a topic and a table."""
    directory = tmp_path_factory.mktemp("working") / "data"
    async with broker(directory, {"pqbroker.console.writes": "true"}) as running:
        await asyncio.to_thread(_fill, running)
        yield running


def _fill(running: Broker) -> None:
    running.create_topic(TOPIC)
    calls = HttpCalls(lambda: running.http)
    for begin in (0, 600):
        records = [{"value": f'{{"id": {number}}}'} for number in range(begin, begin + 600)]
        calls.ask("POST", f"/v1/topics/{TOPIC}/records", {"records": records})
    calls.ask("POST", "/v1/tables", {"path": "//shop/items", "schema": [{"name": "id", "type": "int64"}]})
    calls.ask("POST", f"/v1/tables/{TABLE}/rows", {"rows": [{"id": BIG}]})


def _sql(node: Broker, query: str) -> str:
    return f"http://{node.http}/#/sql/{quote(query, safe='')}"


_CHOOSE = """(() => {
  const chosen = new DataTransfer();
  chosen.items.add(new File(["article,price\\nfig,1.5\\n"], "prices.csv"));
  const input = document.querySelector("input[type=file]");
  input.files = chosen.files;
  input.dispatchEvent(new Event("change", {bubbles: true}));
})()"""


async def test_a_file_goes_with_a_query(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/sql")
    await page.wait_for("Files to send with a query")
    await page.look(_CHOOSE)
    await page.wait_for("files.prices.csv")
    await page.type("textarea", "SELECT article, price * 2 AS twice FROM files.prices.csv")
    await page.click("Run")
    await page.wait_for("1 row,", "fig")
    assert page.complaints == []


async def test_a_query_runs_and_is_the_address(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/sql")
    await page.wait_for("Begin with a topic")
    await page.type("textarea", f"SELECT count(*) AS n, {BIG} AS big FROM {TOPIC}")
    await page.click("Run")
    await page.wait_for("1 row,", "1200", str(BIG))
    first = await page.look("location.hash")
    await page.type("textarea", f"SELECT max(\"$row_index\") AS last FROM {TOPIC}")
    await page.click("Run")
    await page.wait_for("1199")
    await page.look("history.back()")
    await page.wait_for("1200")
    assert await page.look("location.hash") == first
    assert page.complaints == []


async def test_a_query_is_saved_by_name_in_the_browser(page: Page, node: Broker) -> None:
    name = "input[aria-label='name of the query']"
    await page.open(f"http://{node.http}/#/sql")
    await page.type("textarea", "SELECT 7 * 6 AS answer")
    await page.type(name, "<b>the answer</b>")
    await page.click("Save query")
    await page.wait_for("Saved queries of this browser", "<b>the answer</b>")
    await page.open(f"http://{node.http}/#/topics")
    await page.open(f"http://{node.http}/#/sql")
    await page.wait_for("Saved queries of this browser")
    await page.look("document.querySelector('form + h3 + ul a').click()")
    await page.wait_for("1 row,", "42")
    await page.look("document.querySelector(\"button[aria-label='Delete <b>the answer</b>']\").click()")
    await page.wait_until("!document.body.innerText.includes('Saved queries')")
    await page.look("localStorage.setItem('saved-queries', '{\"no\": \"list\"}')")
    await page.open(f"http://{node.http}/#/topics")
    await page.open(f"http://{node.http}/#/sql")
    await page.wait_for("Save query")
    assert page.complaints == []


async def test_a_long_answer_is_cut(page: Page, node: Broker) -> None:
    await page.open(_sql(node, f"SELECT decode(value) AS value FROM {TOPIC}"))
    await page.wait_for("The first 1 000 rows", '{"id": 0}')


async def test_what_a_query_is_refused_for_is_shown_at_its_place(page: Page, node: Broker) -> None:
    await page.open(_sql(node, f"SELECT key,\n  nme FROM {TOPIC}"))
    await page.wait_for("QUERY_FAILED", "In the query at line 2, column 3: nme")
    assert await page.look("(() => { const t = document.querySelector('textarea');"
                           "return t.value.slice(t.selectionStart, t.selectionEnd); })()") == "nme"  # fmt: skip


async def test_a_plan_says_what_it_read(page: Page, node: Broker) -> None:
    await page.open(_sql(node, f"SELECT key FROM {TOPIC} LIMIT 1"))
    await page.wait_for("1 row,")
    await page.click("Explain")
    await page.wait_for("What it read", "blobs", "Plan", TOPIC)


async def test_a_config_is_set_and_taken_back(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics/{TOPIC}/configs")
    await page.wait_for("retention.ms")
    await page.look(_CHANGE)
    await page.wait_for("the default is")
    for value, words in (("soon", ["INVALID_CONFIG"]), ("7200000", ["7200000", "dynamic topic"])):
        await page.type("input[aria-label='retention.ms']", value)
        await page.click("Set")
        await page.wait_for(*words)
    await page.look(_CHANGE)
    await page.wait_for("Back to the default")
    await page.click("Back to the default")
    calls = HttpCalls(lambda: node.http)

    def is_default() -> bool:
        configs = calls.ask("GET", f"/v1/topics/{TOPIC}/configs")["configs"]
        return [one["source"] for one in configs if one["name"] == "retention.ms"] == ["DEFAULT"]

    await asyncio.to_thread(node.wait_until, is_default, "retention.ms has its default")


async def test_a_table_is_frozen_and_unfrozen(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/tables/{TABLE}")
    await page.wait_for("mounted", str(BIG))
    await page.click("Freeze")
    await page.wait_for("frozen")
    await page.click("Unfreeze")
    await page.wait_for("mounted")
    assert page.complaints == []


async def test_transactions_are_listed_by_state_and_aborted(page: Page, node: Broker) -> None:
    calls = HttpCalls(lambda: node.http)
    first, second = [calls.ask("POST", "/v1/transactions", {"timeout_ms": 60_000})["transaction"] for _ in range(2)]
    await page.open(f"http://{node.http}/#/transactions")
    await page.wait_for(first, second, "User:ANONYMOUS", "Abort")
    await page.click("Abort")
    await page.wait_for(f"type {first[:8]} to confirm")
    await page.type("td input", first[:8])
    await page.click("Abort")
    await page.wait_for("an operator aborted it")
    for state, shown, other in (("aborted", first, second), ("open", second, first)):
        await page.type("select", "committing")
        await page.wait_for("No transaction over tables is open")
        await page.type("select", state)
        assert other not in await page.wait_for(shown)
    assert page.complaints == []


async def test_a_topic_is_made_found_by_its_records_and_deleted(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics")
    await page.wait_for(TOPIC, "New topic")
    await page.click("New topic")
    await page.wait_for("NAME=VALUE")
    await page.type("input[aria-label='topic name']", "no/topic")
    await page.click("Create topic")
    await page.wait_for("INVALID_TOPIC_EXCEPTION")
    page.complaints.clear()  # of the refusal
    await page.type("input[aria-label='topic name']", "made.here")
    await page.type("input[aria-label='partitions']", "3")
    await page.type("textarea", "retention.ms=1000\n\ncleanup.policy = delete")
    await page.click("Create topic")
    await page.wait_for("made.here")
    configs = HttpCalls(lambda: node.http).ask("GET", "/v1/topics/made.here/configs")["configs"]
    assert {one["name"]: one["value"] for one in configs}["retention.ms"] == "1000"
    for first, last in ((TOPIC, "made.here"), ("made.here", TOPIC)):  # the most records first, then the least
        await page.click("records")
        await page.wait_until(f"innerText.indexOf('{first}') < innerText.indexOf('{last}')")
    await page.open(f"http://{node.http}/#/topics/made.here")
    await page.wait_for("Delete this topic", "More partitions")
    await page.type("input[aria-label='partitions in all']", "4")
    await page.click("Add partitions")
    await page.wait_for("partitions\n4")
    await page.click("Delete this topic")
    await page.wait_for("to confirm")
    await page.type("span label input", "made.here")
    await page.click("Delete this topic")
    assert "made.here" not in await page.wait_for("Topics", TOPIC, "New topic")
    assert all("404" in each for each in page.complaints)  # the page looked once more at the topic that has gone


async def test_a_group_is_found_reset_after_a_look_and_deleted(page: Page, node: Broker) -> None:
    calls = HttpCalls(lambda: node.http)
    for group, offset in (("mail.eu", 1000), ("mail.us", 5)):
        body = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": offset}]}
        await asyncio.to_thread(calls.ask, "POST", f"/v1/groups/{group}/offsets", body)
    await page.open(f"http://{node.http}/#/groups")
    await page.wait_for("mail.eu", "mail.us", "2 groups")
    await page.click("lag")
    await page.wait_until("innerText.indexOf('mail.us') < innerText.indexOf('mail.eu')")
    await page.type("[data-search]", "EU")
    assert "mail.us" not in await page.wait_for("1 group\n", "mail.eu")
    await page.open(f"http://{node.http}/#/groups/mail.eu")
    await page.wait_for("Lag, in records", "Reset offsets", "200 records")
    await page.type("input[list='reset-places']", "-1")
    await page.click("Preview")
    await page.wait_for("INVALID")
    page.complaints.clear()  # of the refusal
    await page.type("input[list='reset-places']", "7")
    await page.click("Preview")
    await page.wait_for("reads 993 again")
    assert calls.ask("GET", "/v1/groups/mail.eu")["partitions"][0]["offset"] == 1000
    for label, shown in (("Reset", "1 193 records"), ("Delete this group", "1 group\n")):
        await page.click(label)
        await page.wait_for("to confirm")
        await page.type("span label input", "mail.eu")
        await page.click(label)
        text = await page.wait_for(shown)
    assert "mail.eu" not in text
    assert all("404" in each for each in page.complaints)  # the page looked once more at the group that has gone


async def test_a_group_with_members_has_no_button_that_would_be_refused(page: Page, node: Broker) -> None:
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=node.kafka, group_id="live", auto_offset_reset="earliest")
    async with consumer:
        await consumer.getone()
        await consumer.commit()
        await page.open(f"http://{node.http}/#/groups/live")
        await page.wait_for("Stop its 1 member first", "Preview")
        await page.click("Preview")
        await page.wait_for("Stop its members first: they would overwrite the offsets")
        buttons = "[...document.querySelectorAll('main button')].map((one) => one.innerText).join()"
        assert await page.look(buttons) == "topic,partition,offset,end offset,lag,committed,Preview"
        assert page.complaints == []


async def test_cells_and_bundles_are_made_and_removed_and_moves_are_seen(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/cells")
    await page.wait_for("Bundles", "default", "No tablet has moved")
    await page.type("input[aria-label='name of the new bundle']", "fast")
    await page.click("Add a bundle")
    await page.wait_for("fast\t", "Remove")
    await page.click("Add a cell")
    await page.wait_for("1\tdefault\tgood")
    calls = HttpCalls(lambda: node.http)
    await asyncio.to_thread(calls.ask, "POST", f"/v1/tables/{TABLE}/mount", {"cell_id": "1"})
    await page.wait_for(f"{TABLE}\t0\t1\tdone", "Move its tablets and remove")
    for label, named in (("Move its tablets", "cell 1"), ("Remove", "fast")):
        await page.click(label)
        await page.wait_for(f"type {named} to confirm")
        await page.type("span label input", named)
        await page.click(label)
        await page.wait_until(f"!innerText.includes('type {named}')")
    text = await page.wait_for(f"{TABLE}\t1\t0\tdone")
    assert "fast" not in text
    assert page.complaints == []


async def test_clients_show_what_each_costs(page: Page, node: Broker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=node.kafka, client_id="web-shop") as producer:
        await producer.send_and_wait(TOPIC, b"x")
        await page.open(f"http://{node.http}/#/clients")
        await page.wait_for("web-shop", "requests/s", "processor")
        cell = "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('web-shop')).innerText"
        async with asyncio.timeout(60):
            while not re.search(r"\d %\t[1-9]", str(await page.look(cell))):  # until two looks differ
                await producer.send_and_wait(TOPIC, b"x")
        await page.open(f"http://{node.http}/#/clients/connections")
        await page.wait_for("web-shop", "127.0.0.1:", "Produce")
        assert page.complaints == []


async def test_a_tour_leads_from_a_topic_to_a_query(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/tour")
    await page.wait_for("Create a topic", "Write a record", "See it", "Query it")
    await page.click("Create the topic")
    await page.wait_for("greetings exists, with 1 partition")
    await page.type("input[aria-label=record]", "good morning")
    await page.click("Write the record")
    await page.wait_for("offset", "good morning", "All messages")
    await page.click("Run the query")
    assert (await page.wait_for("That is all", "$row_index")).count("good morning") == 2
    page.complaints.clear()  # of the topic that was not there yet
    await page.open(f"http://{node.http}/#/topics/greetings/messages")
    await page.wait_for("good morning")
    assert page.complaints == []


async def test_a_page_that_waits_says_so(page: Page, node: Broker) -> None:
    await page.open(f"http://{node.http}/#/topics")
    await page.wait_for(TOPIC)
    os.kill(node.pid, signal.SIGSTOP)
    try:
        await page.look("location.hash = '#/groups'")
        await page.wait_for("has not answered for two seconds")
    finally:
        os.kill(node.pid, signal.SIGCONT)
    shown = await page.wait_for("group")
    assert "has not answered" not in shown
    assert page.complaints == []
