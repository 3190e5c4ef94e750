"""Services have no door in them: another one can be built over them, and access is one object given to the server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.node.server import Server
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES, Node
from tests.broker.services.line_door import LineDoor


class Line:
    """A client of the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, command: str) -> str:
        self._writer.write(command.encode() + b"\n")
        return (await self._reader.readline()).decode().rstrip("\n")


@pytest.fixture
async def line(node: Node) -> AsyncIterator[Line]:
    async for client in _connected(node.server):
        yield client


async def _connected(server: Server) -> AsyncIterator[Line]:
    door = await asyncio.start_server(LineDoor(server.node).serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*door.sockets[0].getsockname())
    yield Line(reader, writer)
    writer.close()
    door.close()


async def test_a_table_is_made_mounted_and_resharded_through_a_door_of_its_own(line: Line) -> None:
    assert await line.ask("create //shop/orders id:int64") == "shop.orders"
    assert await line.ask("unmount shop.orders") == "unmounted"
    assert await line.ask("reshard shop.orders 3") == "unmounted unmounted unmounted"
    assert await line.ask("mount shop.orders") == "mounted mounted mounted"
    assert await line.ask("freeze shop.orders") == "frozen frozen frozen"
    assert await line.ask("states shop.orders") == "frozen frozen frozen"


async def test_refusals_are_typed(line: Line) -> None:
    await line.ask("create //orders id:int64")
    assert await line.ask("create //orders id:int64") == "refused TOPIC_ALREADY_EXISTS"
    assert await line.ask("create //others id:decimal") == "refused INVALID_SCHEMA"
    assert await line.ask("reshard orders 2") == "refused WRONG_STATE"
    assert await line.ask("mount nobody") == "refused UNKNOWN_TOPIC_OR_PARTITION"


class ReadersOnly:
    """Lets everybody read, and the user `line` nothing else."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return principal.name != "line" or operation is AclOperation.DESCRIBE

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return principal.name != "line" or operation is AclOperation.DESCRIBE


async def test_an_access_check_is_one_object_given_to_the_server() -> None:
    server = Server(BrokerSettings(), MemoryEngine(ENGINE_BYTES), Address("127.0.0.1", 0))
    server.access = ReadersOnly()
    await server.start()
    async for line in _connected(server):
        assert await line.ask("create //orders id:int64") == "refused TOPIC_AUTHORIZATION_FAILED"
        assert await line.ask("states orders") == "refused UNKNOWN_TOPIC_OR_PARTITION"
    await server.stop()
