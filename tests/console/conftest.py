"""A browser for each module of tests, a tab for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.console.browser import Browser, Page, browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: Browser) -> AsyncIterator[Page]:
    async with chromium.page() as found:
        yield found
