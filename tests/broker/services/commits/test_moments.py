"""Moments at which tables and topics are read as one, beside transactions over them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.services.commits.moments import Moments
from pqbroker.tables.refusals import TableError
from tests.broker.conftest import until
from tests.broker.services.commits.test_crashes import settled, sibling
from tests.broker.services.transactional_producers.test_joined_commits import (
    begin,
    commit,
    make_all,
    produced,
    wanted,
)
from tests.broker.web.conftest import Web, serve  # noqa: F401 (fixture)

ROWS = 'SELECT (SELECT count(*) FROM "left") AS a, (SELECT count(*) FROM "log") AS b, (SELECT count(*) FROM "t") AS c'


async def test_a_moment_waits_for_transactions_over_its_names_and_new_ones_wait_for_it() -> None:
    moments, order = Moments(5), list[str]()
    first = await moments.begin({"a", "b"})
    other = await moments.begin({"c"})

    async def read() -> None:
        async with moments.take(["b", "d"]):
            order.append("read")
            await asyncio.sleep(0)

    async def write() -> None:
        token = await moments.begin({"d"})
        order.append("written")
        moments.end(token)

    reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
    await until(lambda: reading.done() or not order)
    moments.end(await moments.begin({"e"}))
    assert order == []
    moments.end(first)
    await asyncio.gather(reading, writing)
    assert order == ["read", "written"]
    moments.end(other)


async def test_a_moment_that_does_not_come_is_refused_and_holds_nobody() -> None:
    moments = Moments(0.01)
    token = await moments.begin({"a"})
    with pytest.raises(TableError, match="over a, b is not visible everywhere"):
        async with moments.take(["a", "b"]):
            raise AssertionError("a transaction is under way")
    moments.end(await moments.begin({"b"}))
    moments.end(token)
    async with moments.take(["a"]):
        pass


@pytest.mark.parametrize("away", ["left", "right"])
@pytest.mark.parametrize("is_away", [False, True])
async def test_a_query_sees_all_of_a_transaction_over_cells_or_nothing(
    serve: Callable[..., Awaitable[Web]], away: str, is_away: bool  # noqa: F811
) -> None:
    web = await serve(transaction_prepare_ms_max=60_000)
    producer = await make_all(web, is_away=is_away)
    await produced(producer, 1)
    name = await begin(web, transactional_id="x")
    faults = sibling(web, away).faults
    faults.hold()
    committing = asyncio.create_task(commit(web, name, wanted(1)))
    commits = web.node.server.node.cell.current.commits
    try:
        await until(lambda: commits.is_busy)
        reading = asyncio.create_task(web.ask("POST", "/v1/sql", {"query": ROWS}))
        alone: dict[str, Any] = {"query": 'SELECT count(*) AS n FROM "log"'}
        assert (await web.ask("POST", "/v1/sql", alone))[0] == 200
        assert not reading.done()
    finally:
        faults.release()
    assert await committing == "committed"
    assert await reading == (200, {"a": 1, "b": 1, "c": 2})
    await settled(web)


async def test_a_query_of_a_missing_topic_is_refused_before_it_waits(
    serve: Callable[..., Awaitable[Web]], monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    web = await serve()
    await web.node.create_topic("t")
    moments = web.node.server.node.cell.current.commits.moments
    monkeypatch.setattr(moments, "_limit_s", 0.01)
    token = await moments.begin(["t"])
    status, code, _ = await web.refusal("POST", "/v1/sql", {"query": "SELECT count(*) FROM t, missing"})
    assert (status, code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    moments.end(token)


async def test_queries_beside_transactions_never_see_a_part(
    serve: Callable[..., Awaitable[Web]]  # noqa: F811
) -> None:
    web = await serve(transaction_prepare_ms_max=60_000)
    producer = await make_all(web, is_away=True)
    stopping = False

    async def read() -> int:
        last = 0
        while not stopping or not last:
            status, found = await web.ask("POST", "/v1/sql", {"query": ROWS})
            assert status == 200, found
            assert found["b"] == found["a"], found
            assert found["c"] == 2 * found["a"], found
            assert found["a"] >= last, found
            last = found["a"]
        return last

    reading = asyncio.create_task(read())
    for number in range(1, 11):
        await produced(producer, number)
        name = await begin(web, transactional_id="x")
        assert await commit(web, name, wanted(number)) == "committed"
        assert await producer.end(is_commit=True, version=5) in ("NONE", "CONCURRENT_TRANSACTIONS")
        while (await producer.end(is_commit=True, version=5)) == "CONCURRENT_TRANSACTIONS":
            pass
    stopping = True
    assert await reading > 0
