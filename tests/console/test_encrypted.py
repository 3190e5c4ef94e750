"""The console over https, in a real browser: pages, their requests, and a link with http that ends there too."""

import pytest

from pqbroker.broker.ground.listeners import HTTP_NAME, Address, Listener, parse_listeners
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse
from pqbroker.security.protocols import SecurityProtocol
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import Clock
from tests.console.browser import Page
from tests.support.authority import certificates

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_console_is_served_by_https(page: Page) -> None:
    https = Listener(HTTP_NAME, Address("127.0.0.1", 0), protocol=SecurityProtocol.SSL)
    settings = parse(BrokerSettings, certificates().listener())
    server = Server(settings, MemoryEngine(256 << 20), parse_listeners("127.0.0.1:0"), https, Clock())
    await server.start()
    try:
        assert server.http_address is not None
        await page.send("Security.enable")
        await page.send("Security.setIgnoreCertificateErrors", ignore=True)
        await page.open(f"http://127.0.0.1:{server.http_address.port}/#/topics")
        await page.wait_for("Topics")
        assert await page.look("location.protocol") == "https:"
        asked = [address for address in page.asked if "/v1/" in address]
        assert asked
        assert all(address.startswith("https://") for address in asked)
        assert page.complaints == []
    finally:
        await server.stop()
