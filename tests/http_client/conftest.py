"""The two clients, tested as one: `done` waits for what the asyncio client returns."""

import inspect
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pqbroker.client import AsyncClient, Client
from pqbroker.testing import FOR_TESTS, Broker, memory_broker

_numbers = itertools.count(1)


async def done(value: Any) -> Any:
    """What a call of either client gives."""
    if inspect.isawaitable(value):
        return await value
    if isinstance(value, AsyncIterator):
        return [each async for each in value]
    return list(value) if isinstance(value, Iterator) else value


@pytest.fixture(scope="package")
def running() -> Iterator[Broker]:
    with memory_broker({**FOR_TESTS, "pqbroker.sql.worker.idle.ms": "600000"}) as running:
        yield running


@pytest.fixture(params=[Client, AsyncClient])
async def client(request: pytest.FixtureRequest, running: Broker) -> AsyncIterator[Any]:
    """Either client of one broker."""
    client = request.param(running.http)
    yield client
    await done(client.close())


@pytest.fixture
def name() -> str:
    """Of a table that does not exist yet."""
    return f"shop.orders-{next(_numbers)}"
