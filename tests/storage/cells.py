"""Cells for engine tests: the same handle on every engine, so that one suite runs on all of them."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pqbroker.storage.disk.commits.commit_record import cell_seed
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.segment_emptying import EmptyingPace
from pqbroker.storage.engine import Batch, BlobKey, Shard
from pqbroker.storage.faults import Faults
from pqbroker.storage.memory import MemoryEngine

MIB = 1 << 20
MEMORY_BYTES = 64 * MIB
NO_COMPACTION = EmptyingPace(bytes_per_second=0)


class CellUnderTest(Protocol):
    """A cell that can be opened, taken over while another owner has it open, and hurt on cue."""

    faults: Faults

    async def open(self) -> Shard: ...

    async def take_over(self) -> Shard: ...


class MemoryCell:
    def __init__(self) -> None:
        self.engine = MemoryEngine(MEMORY_BYTES)
        self.faults = self.engine.faults

    async def open(self) -> Shard:
        shard = await self.engine.open()
        await shard.release()
        return shard

    async def take_over(self) -> Shard:
        return await self.open()


@dataclass
class Disk:
    """A disk with as much room as the test says."""

    f_bavail: int = 100_000
    f_blocks: int = 200_000
    f_frsize: int = 4096


class RocksCell:
    """A cell in a directory; small limits, so that tests meet them."""

    def __init__(
        self,
        path: Path,
        *,
        durability: str = "fsync",
        segment_bytes: int = MIB,
        emptying: EmptyingPace = NO_COMPACTION,
    ) -> None:
        self.path = path
        self._compaction = emptying
        self.disk = Disk()
        self.faults = Faults()
        self._durability = durability
        self._segment_bytes = segment_bytes

    async def open(self) -> Shard:
        """An open cell that is known to be sound."""
        shard = await self.engine().open()
        await shard.release()
        return shard

    def engine(self) -> RocksEngine:
        return RocksEngine(
            self.path,
            durability=self._durability,
            sync_interval_ms=5,
            segment_bytes=self._segment_bytes,
            round_bytes_max=4 * MIB,
            ballast_bytes=MIB,
            read_threads=2,
            emptying=self._compaction,
            statvfs=lambda path: self.disk,
            read_only_look_ms=10,
            faults=self.faults,
        )

    async def take_over(self) -> Shard:
        (self.path / "lock").unlink()
        return await self.open()

    def segments(self) -> list[Path]:
        return sorted((self.path / "blobs").glob("*.segment"))

    def index(self) -> Path:
        (found,) = self.path.glob("index-*")
        return found


def seed_of(path: Path) -> int:
    """Where the checksums of the cell's commit log begin."""
    return cell_seed(json.loads((path / "cell").read_text())["cell"])


def copy_alive(source: Path, copy: Path) -> None:
    """Copy the directory of an open cell as it is at one moment, whatever RocksDB's threads do meanwhile."""
    for _ in range(99):
        before = _listing(source)
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(source, copy)
        except shutil.Error:
            continue
        if _listing(source) == before:
            return
    raise AssertionError(f"{source} does not come to rest")


def _listing(path: Path) -> list[tuple[str, int, int]]:
    found = []
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            state = file.stat()
            found.append((str(file), state.st_size, state.st_mtime_ns))
    return sorted(found)


def blob_key(number: int) -> BlobKey:
    return BlobKey(number.to_bytes(24, "big"))


def rows(*pairs: tuple[bytes, bytes | None], delete: tuple[bytes, bytes] | None = None) -> Batch:
    """A batch of rows, a value of None deleting; `delete` is a range deleted first."""
    batch = Batch()
    for key, value in pairs:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    if delete is not None:
        batch.delete_range(*delete)
    return batch


def blobs(shard: Shard, contents: Iterable[tuple[int, bytes]]) -> Batch:
    """A batch that stores blobs in the first pool."""
    batch = Batch()
    for number, content in contents:
        batch.put_blob(blob_key(number), [content], len(content), shard.pools[0])
    return batch


def dead(*numbers: int) -> Batch:
    batch = Batch()
    for number in numbers:
        batch.delete_blob(blob_key(number))
    return batch


def content(number: int, size: int) -> bytes:
    """Bytes that differ from blob to blob and from page to page."""
    return b"".join((number * 1_000_003 + word).to_bytes(8, "big") for word in range((size + 7) // 8))[:size]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nothing tells."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.002)
