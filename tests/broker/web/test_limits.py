"""What HTTP requests may do at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.web.resources.record_search import Search
from tests.broker.web.conftest import Web


async def test_requests_that_decode_records_take_turns(
    serve: Callable[..., Awaitable[Web]], monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await serve(http_looks_max=2)
    await web.node.create_topic("t")
    await web.node.produce("t", b"v")
    looking, worst = 0, 0
    look_through = Search._look_at_next

    async def counted(*arguments: Any) -> None:
        nonlocal looking, worst
        looking += 1
        worst = max(worst, looking)
        await asyncio.sleep(0)
        await look_through(*arguments)
        looking -= 1

    monkeypatch.setattr(Search, "_look_at_next", counted)
    found = await asyncio.gather(*(web.ask("GET", "/v1/topics/t/records") for _ in range(6)))
    assert [len(answer["records"]) for _, answer in found] == [1] * 6
    assert worst == 2
