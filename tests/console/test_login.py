"""The console of a broker with users: nothing is seen before a login, changes carry the page's token, and a page offers
what its user may do."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.console.browser import Page

USERS = {"root": "Root-secret", "ann": "Ann-secret"}
RIGHTS = (("topic", "orders", "read"), ("topic", "drafts", "delete"), ("group", "mail", "read"))
"""Ann's: each implies Describe."""
MENU = "[...document.querySelectorAll('nav a')].map((one) => one.firstChild.data).join()"
BUTTONS = "[...document.querySelectorAll('main button.main, main button.danger, main button[aria-expanded]')].length"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[Broker]:
    settings = {
        **FOR_TESTS, "pqbroker.console.writes": "true", "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
    }  # fmt: skip
    starting = broker(users=USERS, settings=settings)
    running = await asyncio.to_thread(starting.__enter__)
    yield running
    await asyncio.to_thread(starting.__exit__, None, None, None)


async def _log_in(page: Page, node: Broker, user: str, password: str) -> None:
    await page.open(f"http://{node.http}/")
    await page.wait_for("Log in")
    await page.type("input[name=user]", user)
    await page.type("input[name=password]", password)
    await page.click("Log in")


async def test_a_browser_logs_in_works_and_logs_out(page: Page, node: Broker) -> None:
    home = f"http://{node.http}/"
    await _log_in(page, node, "root", "wrong")
    await page.wait_for("wrong user, password or token")
    await page.type("input[name=password]", USERS["root"])
    await page.click("Log in")
    await page.wait_for("This broker is empty", "Take the tour", "Log out")
    await asyncio.to_thread(node.create_topic, "orders")
    await page.open(f"{home}#/topics/orders/produce")
    await page.wait_for("Write")
    await page.type("textarea", "by hand")
    await page.click("Write")
    await page.wait_for("offset 0")
    assert [record.value for record in await asyncio.to_thread(node.read, "orders", 1)] == [b"by hand"]
    await page.click("Log out")
    assert "orders" not in await page.wait_for("Log in")


def _give_rights(node: Broker) -> HttpCalls:
    """Have rules for Ann; return the calls of root, who has made what she looks at."""
    root = HttpCalls(lambda: node.http, "root", USERS["root"])
    rules = [
        {"kind": kind, "name": name, "principal": "User:ann", "operation": operation}
        for kind, name, operation in RIGHTS
    ]
    root.ask("POST", "/v1/acls", {"acls": rules})
    for name in ("drafts", "hidden"):
        root.ask("POST", "/v1/topics", {"name": name})
    offsets = [{"topic": name, "partition": 0, "offset": 0} for name in ("orders", "drafts")]
    root.ask("POST", "/v1/groups/mail/offsets", {"offsets": offsets})
    return root


async def test_a_user_is_offered_what_rules_allow_and_sees_what_changes(page: Page, node: Broker) -> None:
    root = await asyncio.to_thread(_give_rights, node)
    home = f"http://{node.http}/"
    await _log_in(page, node, "ann", USERS["ann"])
    text = await page.wait_for("drafts", "orders", "2 topics")  # the first page is one that she may see
    assert not {"hidden", "New topic"} & set(text.split("\n"))
    assert await page.look(MENU) == "Topics,Groups,Tables,Transactions,SQL,Access,API"
    await page.open(f"{home}#/topics/orders")
    await page.wait_for("first offset", "Messages")
    tabs = "document.querySelector('.tabs').innerText.split(/\\s+/).join()"
    await page.wait_until(f"{tabs} === 'Partitions,Messages'")  # all of them, until the page knows the rights
    assert await page.look(BUTTONS) == 0
    await page.open(f"{home}#/topics/drafts")
    await page.wait_for("Delete this topic")
    assert "More partitions" not in await page.text()
    await page.open(f"{home}#/groups/mail")
    assert "Preview" not in await page.wait_for("You may not reset these offsets", "right Read on topic drafts")
    await page.type("main select", "orders")
    assert "Delete" not in await page.wait_for("Preview")
    # The stream of events is not hers: the page is filled again all the same.
    await page.open(f"{home}#/topics")
    await page.wait_for("2 topics")
    await asyncio.to_thread(root.ask, "DELETE", "/v1/topics/drafts")
    await page.wait_for("1 topic")
    assert page.complaints == []


async def test_users_rules_and_quotas_are_made_and_removed(page: Page, node: Broker) -> None:
    root = HttpCalls(lambda: node.http, "root", USERS["root"])
    home = f"http://{node.http}/"
    await _log_in(page, node, "root", USERS["root"])
    await page.wait_for("Log out")
    await page.open(f"{home}#/access")
    await page.wait_for("New user", "root", "ann")
    await page.type("main input[type=password]", "Bob-secret")
    await page.type("main input[autocomplete=off]", "bob")
    await page.click("Make the user")
    await page.wait_for("bob")
    users = await asyncio.to_thread(root.ask, "GET", "/v1/users")
    assert [user["name"] for user in users["users"]] == ["ann", "bob", "root"]
    await page.open(f"{home}#/access/rules")
    await page.wait_for("New rule")
    await page.type("main label:nth-of-type(2) input", "User:bob")
    await page.type("main label:nth-of-type(6) input", "drafts-")
    await page.click("Add the rule")
    await page.wait_for("User:bob")
    await page.open(f"{home}#/access/quotas")
    await page.wait_for("New quota")
    await page.type("main input[inputmode=decimal]", "1024")
    await page.click("Set the quota")
    await page.wait_for("producer byte rate", "1 024")
    quotas = await asyncio.to_thread(root.ask, "GET", "/v1/quotas")
    assert quotas["quotas"] == [{"entity": {"user": None}, "quotas": {"producer_byte_rate": 1024.0}}]
    await page.open(f"{home}#/access/tokens")
    await page.wait_for("New token for root")
    await page.click("Make the token")
    await page.wait_for("The token, which is shown once: pqb_")
    assert page.complaints == []


async def test_who_may_only_look_at_users_is_offered_no_change(page: Page, node: Broker) -> None:
    root = HttpCalls(lambda: node.http, "root", USERS["root"])
    rule = {"kind": "cluster", "name": "kafka-cluster", "principal": "User:ann", "operation": "describe"}
    await asyncio.to_thread(root.ask, "POST", "/v1/acls", {"acls": [rule]})
    await _log_in(page, node, "ann", USERS["ann"])
    await page.wait_for("Log out")
    for tab in ("users", "rules"):
        await page.open(f"http://{node.http}/#/access/{tab}")
        await page.wait_for("root" if tab == "users" else "User:ann")
        assert await page.look(BUTTONS) == 0
    assert await page.look("document.querySelector('.tabs').innerText.split(/\\s+/).join()") == "Users,Rules,Tokens"
    await page.open(f"http://{node.http}/#/access/tokens")
    assert "Revoke" not in await page.wait_for("New token for ann")  # root's stands there
    await page.click("Make the token")
    await page.wait_for("The token, which is shown once: pqb_")
    assert page.complaints == []
