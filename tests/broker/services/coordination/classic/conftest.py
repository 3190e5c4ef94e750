from collections.abc import Awaitable, Callable

import pytest

from tests.broker.conftest import Node
from tests.broker.wire import Client


@pytest.fixture
async def node(start: Callable[..., Awaitable[Node]]) -> Node:
    """A node whose groups wait for nobody, with sessions as short as a test wants."""
    return await start(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


@pytest.fixture
async def client(node: Node) -> Client:
    return await node.connect()
