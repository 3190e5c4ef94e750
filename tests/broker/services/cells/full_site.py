"""A site whose disks are full: cells with topics and a table that open for reading only."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import Clock, Node
from tests.broker.web.conftest import Web
from tests.storage.cells import Disk

SCHEMA = [{"name": "id", "type": "int64"}]
PLENTY = 100_000
"""Blocks."""


class Disks:
    """How much is free, by the name of a cell's directory."""

    def __init__(self) -> None:
        self.system, self.one = Disk(), Disk()

    def __call__(self, path: Path) -> Disk:
        return self.one if "cells" in path.parts else self.system

    def fill(self) -> None:
        self.system.f_bavail = self.one.f_bavail = 0

    def free(self, size: int = PLENTY * 4096) -> None:
        self.system.f_bavail = self.one.f_bavail = size // 4096


class Site:
    """A data directory, and the disks that it lies on."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self.disks = Disks()

    def engine(self) -> RocksEngine:
        return RocksEngine(
            self.data, ballast_bytes=0, segment_bytes=1 << 20, pools={"main": self.data / "blobs"},
            statvfs=self.disks, read_only_look_ms=10,
        )  # fmt: skip

    @asynccontextmanager
    async def served(self, **settings: Any) -> AsyncIterator[Web]:
        async with AsyncExitStack() as stack:
            clock = Clock()
            server = Server(
                BrokerSettings(**settings), self.engine(), Address("127.0.0.1", 0), Address("127.0.0.1", 0), clock
            )
            await server.start()
            stack.push_async_callback(server.stop)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            yield Web(Node(server, MemoryEngine(0), clock, stack), session)


async def filled_site(path: Path) -> Site:
    """Make a directory with topics and a table in cells 0 and 1, on disks that are full since it was closed."""
    site = Site(path)
    async with site.served() as web:
        for call in (("/v1/bundles", {"name": "b"}), ("/v1/cells", {"bundle": "b"})):
            assert (await web.ask("POST", *call))[0] == 201
        await web.node.create_topic("kept", 2)
        await web.node.create_topic("far", pq_bundle="b")
        await web.ask("POST", "/v1/tables", {"path": "//rows", "schema": SCHEMA})
        assert (await web.ask("POST", "/v1/tables/rows/rows", {"rows": [{"id": 1}]}))[0] == 200
        for topic in ("kept", "far"):
            assert (await web.node.produce(topic, b"small")).error_code == 0
            assert (await web.node.produce(topic, b"x" * 100_000)).error_code == 0
        await commit(web, 2)
    site.disks.fill()
    return site


async def commit(web: Web, offset: int) -> ErrorCode:
    client = await web.node.connect()
    answer = await client.ask(OffsetCommitRequest(group_id="g", topics=[committed(offset)]), 8)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(offset: int) -> OffsetCommitRequestTopic:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    return OffsetCommitRequestTopic(name="kept", partitions=partitions)
