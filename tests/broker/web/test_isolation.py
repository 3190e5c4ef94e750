"""Readers over HTTP of a log with Kafka's transactions: they see what is committed, unless they ask for all."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.client import AsyncClient
from tests.broker.transacted_log import P, Q, begun
from tests.broker.web.conftest import Web

pytestmark = pytest.mark.spec("4.25")

SQL = 'SELECT "$row_index" FROM t ORDER BY 1'


async def shown(web: Web, query: str = "") -> tuple[list[int], int]:
    status, found = await web.ask("GET", f"/v1/topics/t/records?{query}")
    assert status == 200, found
    return [each["offset"] for each in found["records"]], found["next_offset"]


async def selected(web: Web, **body: Any) -> list[int]:
    """Offsets that a query finds."""
    question = {"query": SQL, **body}
    async with aiohttp.ClientSession() as session, session.post(web.url("/v1/sql"), json=question) as response:
        lines = (await response.text()).splitlines()
        assert response.status == 200, lines
        return [json.loads(line)["$row_index"] for line in lines]


async def test_records_are_those_that_are_committed(web: Web) -> None:
    server = await begun(web.node)
    assert await shown(web) == ([0, 2], 6)
    assert await shown(web, "isolation=read_uncommitted") == ([0, 1, 2, 3, 6, 7], 8)
    assert await shown(web, "offset=-1") == ([], 6)
    await server.end_transaction(Q, 0, 4, is_commit=True)
    assert await shown(web) == ([0, 2, 6, 7], 9)


async def test_an_isolation_that_kafka_does_not_have_is_refused(web: Web) -> None:
    await begun(web.node)
    status, _, message = await web.refusal("GET", "/v1/topics/t/records?isolation=serializable")
    assert (status, message) == (400, "isolation is 'serializable'; give read_committed or read_uncommitted")
    status, _, message = await web.refusal("POST", "/v1/sql", {"query": SQL, "isolation": "x"})
    assert (status, message) == (400, "body.isolation is 'x'; give read_committed or read_uncommitted")


async def test_following_waits_for_the_end_of_a_transaction(web: Web) -> None:
    server = await begun(web.node)
    url = web.url("/v1/topics/t/records?follow=true&limit=4")
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        offsets = [json.loads(await response.content.readline())["offset"] for _ in range(2)]
        assert offsets == [0, 2]
        await server.end_transaction(Q, 0, 4, is_commit=True)
        offsets = [json.loads(await response.content.readline())["offset"] for _ in range(2)]
        assert offsets == [6, 7]


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_sql_reads_what_is_committed(serve: Callable[..., Awaitable[Web]], is_flushed: bool) -> None:
    web = await serve(sql_worker_idle_ms=600_000)
    server = await begun(web.node)
    if is_flushed:
        await server.flush()
    assert await selected(web, isolation="read_uncommitted") == [0, 1, 2, 3, 6, 7]
    assert await selected(web) == [0, 2]
    await server.end_transaction(Q, 0, 4, is_commit=False)
    assert await selected(web) == [0, 2, 7]
    assert await selected(web, isolation="read_uncommitted") == [0, 1, 2, 3, 6, 7]


async def test_columns_that_a_query_of_all_records_made_are_not_for_committed_ones(
    serve: Callable[..., Awaitable[Web]]
) -> None:
    web = await serve(sql_worker_idle_ms=600_000)
    await begun(web.node)
    text = 'SELECT "$row_index" FROM t WHERE "$row_index" < 4 ORDER BY 1'
    for _ in range(2):
        assert await selected(web, query=text, isolation="read_uncommitted") == [0, 1, 2, 3]
        assert await selected(web, query=text) == [0, 2]


async def test_the_page_of_a_partition_says_who_holds_the_last_stable_offset(web: Web) -> None:
    server = await begun(web.node)
    _, found = await web.ask("GET", "/v1/topics/t/partitions/0")
    since = "2023-11-14T22:13:20+00:00"
    assert found["kafka_transactions"] == {
        "last_stable_offset": 6, "open": 1, "aborted": 1,
        "oldest_open": f"producer {Q} has an open Kafka transaction from offset 6 on, since {since}",
    }  # fmt: skip
    await server.end_transaction(Q, 1, 4, is_commit=True)
    _, found = await web.ask("GET", "/v1/topics/t/partitions/0")
    assert found["kafka_transactions"] == {
        "last_stable_offset": 9, "open": 0, "aborted": 1, "oldest_open": None,
    }  # fmt: skip
    sequences = {one["id"]: one["last_sequence"] for one in found["producers"]["producers"]}
    assert sequences == {P: 1, Q: None}


async def test_the_client_in_python_asks_for_an_isolation(web: Web) -> None:
    await begun(web.node)
    async with AsyncClient(str(web.node.server.http_address)) as client:
        assert [row["$row_index"] for row in await client.sql(SQL).rows()] == [0, 2]
        found = await client.sql(SQL, isolation="read_uncommitted").rows()
        assert [row["$row_index"] for row in found] == [0, 1, 2, 3, 6, 7]
