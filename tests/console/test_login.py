"""The console of a broker with users: nothing is seen before a login, changes carry the page's token."""

from pqbroker.testing import FOR_TESTS, broker
from tests.console.browser import browser

USERS = {"root": "Root-secret"}


async def test_a_browser_logs_in_works_and_logs_out() -> None:
    settings = {**FOR_TESTS, "pqbroker.console.writes": "true"}
    with broker(users=USERS, settings=settings) as running:
        running.create_topic("orders")
        home = f"http://{running.http}/"
        async with browser() as chromium, chromium.page() as page:
            await page.open(f"{home}#/topics")
            assert "orders" not in await page.wait_for("Log in")
            await page.type("input[name=user]", "root")
            await page.type("input[name=password]", "wrong")
            await page.click("Log in")
            await page.wait_for("wrong user, password or token")
            await page.type("input[name=password]", "Root-secret")
            await page.click("Log in")
            await page.wait_for("orders", "Log out")
            await page.open(f"{home}#/topics/orders/produce")
            await page.wait_for("Write")
            await page.type("textarea", "by hand")
            await page.click("Write")
            await page.wait_for("offset 0")
            assert [record.value for record in running.read("orders", 1)] == [b"by hand"]
            await page.click("Log out")
            assert "orders" not in await page.wait_for("Log in")
