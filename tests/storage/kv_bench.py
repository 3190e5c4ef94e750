"""A KV tablet to try things on, over the memory engine."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.engine import Buffer
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Command, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine, MemoryShard
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import TabletType

TABLET = TabletId(70_000)
BLOB = b"x" * 20


class Bench:
    """A KV tablet over the memory engine whose values from 8 bytes on are blobs."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(1 << 30)
        self.now_ms = 1_000

    async def open(self) -> None:
        self.cell = await Cell.open(self.engine)
        await self.cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "owner")])
        self.kv = KeyValueTablet(self.cell.storage(TABLET), inline_bytes_max=8, clock=lambda: self.now_ms)
        await self.kv.start()

    async def run(self, *commands: Command) -> None:
        await self.kv.execute(commands)

    async def contents(self) -> dict[bytes, bytes]:
        keys = [key for key, _ in self.kv.keys(b"")]
        return {
            key: b"".join(buffers)
            for key, buffers in zip(keys, await self.kv.read([(key, 0, 0) for key in keys]), strict=True)
        }

    async def blobs(self) -> list[BlobId]:
        stored = self.cell.storage(TABLET).stored_blobs(*tablet_bounds(TABLET))
        return [BlobId.from_key(blob) async for blob, _ in stored]


def write(key: bytes, value: bytes = BLOB) -> Write:
    return Write(key, [value], len(value))


@contextmanager
def late_reads() -> Iterator[None]:
    """Blobs are read a turn of the loop after they were asked for, as a thread would."""
    read = MemoryShard.read

    async def read_later(*call: Any) -> list[Buffer]:
        await asyncio.sleep(0)
        return await read(*call)

    with patch.object(MemoryShard, "read", read_later):
        yield
