"""Quotas of clients over HTTP."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.conf.addresses import Address
from tests.broker.conftest import Node

Start = Callable[..., Awaitable[Node]]


async def ask(node: Node, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    url = f"http://{node.server.http_address}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as answer:
        return answer.status, await answer.json()


async def test_quotas_are_set_listed_and_removed(start: Start) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    entity = {"user": "ann", "client_id": None}
    _, answer = await ask(node, "PATCH", "/v1/quotas", {"entity": entity, "quotas": {"producer_byte_rate": 1024}})
    assert answer["quotas"] == {"producer_byte_rate": 1024}
    await ask(node, "PATCH", "/v1/quotas", {"entity": {"ip": "10.0.0.1"}, "quotas": {"connection_creation_rate": 2}})
    _, page = await ask(node, "GET", "/v1/quotas?limit=1")
    assert page["quotas"] == [{"entity": entity, "quotas": {"producer_byte_rate": 1024}}]
    assert len((await ask(node, "GET", f"/v1/quotas?after={page['next']}"))[1]["quotas"]) == 1
    await ask(node, "PATCH", "/v1/quotas", {"entity": entity, "quotas": {"producer_byte_rate": None}})
    assert len((await ask(node, "GET", "/v1/quotas"))[1]["quotas"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"entity": {}, "quotas": {"producer_byte_rate": 1}},
        {"entity": {"user": "ann"}, "quotas": {}},
        {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": -1}},
        {"entity": {"user": "ann", "ip": "10.0.0.1"}, "quotas": {"producer_byte_rate": 1}},
        {"entity": {"topic": "t"}, "quotas": {"producer_byte_rate": 1}},
    ],
)
async def test_a_quota_that_is_none_is_refused(start: Start, body: Any) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    assert (await ask(node, "PATCH", "/v1/quotas", body))[0] == 400
