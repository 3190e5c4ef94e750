from collections.abc import AsyncIterator

import pytest

from tests.storage.kv_bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    opened = Bench()
    await opened.open()
    yield opened
    await opened.cell.close()
