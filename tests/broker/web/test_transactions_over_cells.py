"""Transactions of Kafka producers over partitions of several cells, each of which is lost at each of its commits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.conftest import until
from tests.broker.kafka.transacting import WireProducer, committed_values
from tests.broker.services.transactional_producers.test_crashes import check, transact, until_ended
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)
from tests.broker.web.test_cells import engine_of, homes, opened, with_cells

COMMITS = 4
"""More than one cell makes for a transaction."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_second", [False, True])
async def test_a_loss_of_a_cell_at_any_commit_tears_no_transaction(web: Web, is_second: bool) -> None:  # noqa: F811
    await with_cells(web, 2, partitions=2)
    assert len(set(homes(web))) == 2
    producer = WireProducer(await web.node.connect())
    await producer.begin()
    numbers = []
    for after in range(COMMITS):
        for is_stored in (False, True):
            number = 2 * after + is_stored
            faults = engine_of(web, homes(web)[0]).faults
            faults.lose_next(after=after, stored=is_stored)
            await transact(producer, number, is_second=is_second)
            numbers.append(number)
            await until_ended(producer)
            faults.clear()
    await check(await web.node.connect(), numbers)


async def test_a_next_transaction_waits_for_a_slow_end_and_is_not_refused(
    serve: Callable[..., Awaitable[Web]],  # noqa: F811
) -> None:
    web = await serve(add_partitions_wait_ms=60_000)  # noqa: F811
    await with_cells(web, 2, partitions=2)
    producer = WireProducer(await web.node.connect())
    await producer.begin()
    for index in (0, 1):
        assert await producer.produce("t", b"v", index, version=12) == "NONE"
    away = engine_of(web, homes(web)[1])
    away.faults.hold()
    assert await producer.end(is_commit=True) == "NONE"
    adding = asyncio.create_task(producer.add(("t", 0)))
    client = WireProducer(await web.node.connect())
    for _ in range(5):
        assert (await client.state()).transaction_state == "PrepareCommit"
    assert not adding.done()
    away.faults.release()
    async with asyncio.timeout(10):
        assert await adding == {("t", 0): "NONE"}


async def test_a_partition_of_a_cell_that_is_away_gets_its_marker_when_it_returns(web: Web) -> None:  # noqa: F811
    await with_cells(web, 2, partitions=2)
    producer = WireProducer(await web.node.connect())
    await producer.begin()
    for index in (0, 1):
        assert await producer.produce("t", b"v", index, version=12) == "NONE"
    away = engine_of(web, homes(web)[1])
    away.faults.hold()
    assert await producer.end(is_commit=True, version=5) == "NONE"
    client = await web.node.connect()
    topic = opened(web).topics.get("t")
    assert topic is not None
    assert topic.partitions[1].state.transactions.open
    await until(lambda: not topic.partitions[0].state.transactions.open)
    assert (await producer.state()).transaction_state == "PrepareCommit"
    assert await committed_values(client, "t", 0) == [b"v"]
    assert await committed_values(client, "t", 1) == []
    assert await producer.add(("t", 0), version=3) == {("t", 0): "CONCURRENT_TRANSACTIONS"}
    away.faults.release()
    await until_ended(producer)
    assert await committed_values(client, "t", 1) == [b"v"]
