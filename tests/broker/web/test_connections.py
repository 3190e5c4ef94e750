"""What HTTP shows of the connections of Kafka clients."""

from collections.abc import Awaitable, Callable
from typing import Any

from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.wire import request_frame


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


async def test_requests_and_processor_time_are_measured_while_somebody_looks(web: Web) -> None:
    first, second = [await web.node.connect() for _ in range(2)]
    await first.ask(MetadataRequest(topics=[]))
    (one, _) = (await listed(web))["connections"]
    assert (one["begun"], one["busy_ms"]) == (None, None)
    await listed(web, "?measure=true")
    for client in (first, first, second):
        await client.ask(MetadataRequest(topics=[]))
    third = await web.node.connect()
    await third.ask(MetadataRequest(topics=[]))
    found = (await listed(web))["connections"]
    assert [one["begun"] for one in found] == [2, 1, 1]
    assert all(one["busy_ms"] > 0 for one in found)
    status, clients = await web.ask("GET", "/v1/clients?sort=begun")
    assert (status, clients["total"]) == (200, 1)
    (client,) = clients["clients"]
    assert (client["client_id"], client["connections"], client["begun"]) == ("test", 3, 4)
    assert client["bytes_in"] == sum(one["bytes_in"] for one in found)
    connections = web.node.server.node.connections
    connections._measured_until = 1e-9  # the time is over
    connections._end_measuring()
    await first.ask(MetadataRequest(topics=[]))
    assert [one["begun"] for one in (await listed(web))["connections"]] == [None] * 3


async def test_clients_are_those_with_one_name_and_principal(web: Web) -> None:
    for name in (b"a", b"b", b"b"):
        client = await web.node.connect()
        client.send_bytes(request_frame(MetadataRequest(topics=[]), 12, client_id=name))
        await client.receive_bytes()
    _, found = await web.ask("GET", "/v1/clients?sort=connections&limit=1")
    assert [(one["client_id"], one["connections"]) for one in found["clients"]] == [("b", 2)]
    assert found["total"] == 2
    assert (await web.refusal("GET", "/v1/clients?sort=colour"))[0] == 400
