"""Owners that die or are taken over at any moment: what was acknowledged is there, in order, without gaps."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pqbroker.storage.engine import Shard
from tests.storage.cells import RocksCell, blob_key, content
from tests.storage.committing import blob_size, is_kept, last_number


class Owner:
    """A committing process as seen from here."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.acknowledged = -1
        self.end = ""

    async def acknowledge(self, count: int) -> None:
        """Return when it has acknowledged so many more, or has ended."""
        assert self.process.stdout is not None
        while count > 0 and (line := await self.process.stdout.readline()):
            if line[:1].isdigit():
                self.acknowledged = int(line)
                count -= 1
            else:
                self.end = line.decode().strip()

    async def finish(self) -> None:
        await self.acknowledge(1 << 40)
        await self.process.wait()


@asynccontextmanager
async def owner_of(path: Path) -> AsyncIterator[Owner]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": ""}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.storage.committing", str(path), stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        yield Owner(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def expect_prefix(shard: Shard, acknowledged: int) -> int:
    """Everything acknowledged is there, and nothing behind a gap; the last number stored."""
    last = await last_number(shard)
    assert last >= acknowledged
    stored = await shard.scan(b"Kn", b"Ko", 1_000_000)
    assert [int(key[2:]) for key, _ in stored] == list(range(last + 1))
    kept = [number for number in range(last + 1) if is_kept(number, last)]
    blobs = [(blob_key(number), blob_size(number)) for number in kept]
    assert await shard.scan_blobs(b"", b"\xff" * 24, 10_000) == blobs
    found = await shard.read([(blob_key(number), 0, blob_size(number)) for number in kept])
    assert [bytes(part) for part in found] == [content(number, blob_size(number)) for number in kept]
    return last


async def test_kill_9_at_random_moments_loses_nothing_acknowledged(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    for seed in range(3):
        async with owner_of(cell.path) as owner:
            await owner.acknowledge(random.Random(seed).randrange(20, 250))
            owner.process.kill()
            await owner.finish()
        assert owner.acknowledged >= 0
        shard = await cell.open()
        await expect_prefix(shard, owner.acknowledged)
        await shard.close()


async def test_takeovers_under_load_without_the_lock_lose_nothing_acknowledged(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    acknowledged = -1
    async with (
        owner_of(cell.path) as first,
        owner_of_after(first, cell) as second,
        owner_of_after(second, cell) as third,
    ):
        await third.acknowledge(50)
        (cell.path / "lock").unlink()
        shard = await cell.open()
        for owner in (first, second, third):
            await owner.finish()
            assert owner.end == "lost Fenced"
            acknowledged = max(acknowledged, owner.acknowledged)
    await expect_prefix(shard, acknowledged)
    assert shard.generation == 4
    await shard.close()


@asynccontextmanager
async def owner_of_after(earlier: Owner, cell: RocksCell) -> AsyncIterator[Owner]:
    """An owner that takes the cell while the earlier one commits."""
    await earlier.acknowledge(50)
    (cell.path / "lock").unlink()
    async with owner_of(cell.path) as later:
        yield later
