"""What HTTP shows of the connections of Kafka clients."""

from collections.abc import Awaitable, Callable
from typing import Any

from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import until
from tests.broker.web.conftest import Web


async def listed(web: Web, query: str = "") -> Any:
    status, document = await web.ask("GET", "/v1/connections" + query)
    assert status == 200
    return document


async def test_a_connection_shows_who_asked_for_what(web: Web) -> None:
    client = await web.node.connect()
    await client.ask(MetadataRequest(topics=[]))
    (one,) = (await listed(web))["connections"]
    assert (one["apis"], one["principal"], one["listener"]) == (["Metadata"], "User:ANONYMOUS", "PLAINTEXT")
    assert one["client_id"] == "test"
    assert one["address"] == client.address
    assert (one["bytes_in"], one["bytes_out"]) == (
        web.node.server.node.metrics.bytes_in, web.node.server.node.metrics.bytes_out,
    )  # fmt: skip
    assert one["bytes_out"] > 4
    assert one["requests"] == 0
    await client.ask(MetadataRequest(topics=[]))
    assert (await listed(web))["connections"][0]["bytes_in"] == 2 * one["bytes_in"]


async def test_a_connection_that_has_closed_is_gone(web: Web) -> None:
    client = await web.node.connect()
    assert len((await listed(web))["connections"]) == 1
    await client.close()
    await until(lambda: not len(web.node.server.node.connections))
    assert (await listed(web))["connections"] == []


async def test_connections_come_in_pages(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(http_items_max=2)
    for _ in range(5):
        await web.node.connect()
    found: list[list[int]] = []
    query: str | None = ""
    while query is not None:
        page = await listed(web, query)
        found.append([one["id"] for one in page["connections"]])
        query = None if page["next"] is None else f"?after={page['next']}"
    assert found == [[1, 2], [3, 4], [5]]
