"""A browser for all tests of the console, a connection to it for each module of them, a tab for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.console.browser import Browser, Page, connected, started


@pytest.fixture(scope="session")
def chromium_address() -> Iterator[str]:
    with started() as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(chromium_address: str) -> AsyncIterator[Browser]:
    async with connected(chromium_address) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: Browser) -> AsyncIterator[Page]:
    async with chromium.page() as found:
        yield found
