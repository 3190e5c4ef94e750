"""A stopped cell on disk, looked at and never changed: its index, its segments, and a shard for what only reads."""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.blob_reading import BlobReader
from pqbroker.storage.disk.commits.commit_history import CommitHistory, read_history
from pqbroker.storage.disk.commits.log_start import LogStart, ReadLog, take_rounds
from pqbroker.storage.disk.directory import (
    CellFacts,
    check_identity,
    check_new,
    index_generation,
    index_path,
    read_both,
)
from pqbroker.storage.disk.manifest_check import check_manifest
from pqbroker.storage.disk.mending.facts_copy import has_facts
from pqbroker.storage.disk.mending.manifest_copy import find_mended
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import (
    Batch,
    BlobKey,
    BlobMissing,
    Buffer,
    CommitRefused,
    EngineError,
    FileRange,
    Shard,
    ShardLost,
)
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.storage.quarantine import Quarantine


class InUse(EngineError):
    """Another process has the cell open."""


class OfflineCell:
    """The facts of a stopped cell, its pools, and its index. Every call may raise EngineError for a damaged index."""

    def __init__(self, path: Path, facts: CellFacts, generation: int, pools: Mapping[str, Path]) -> None:
        self.path = path
        self.facts = facts
        self.facts_damage: str | None = None
        """The damage of `cell` or of its copy; the other one is whole."""
        self.manifest_damage: str | None = None
        """The damage of the index's manifest, which its copy mends."""
        self.generation = generation
        self.pools = pools
        self._index = RocksIndex(index_path(path, generation))
        self._reader = BlobReader(self.get, pools)
        self.history = CommitHistory(0, (), (), ())
        """Rounds of the commit log that the index does not have on disk, once it is open."""

    def open(self, staging: Path, read: ReadLog = read_history) -> None:
        """Open the index through links in an empty directory, with all that `read` finds in the commit log."""
        index = index_path(self.path, self.generation)
        if (mended := find_mended(index)) is not None:
            self.manifest_damage = mended.damage
        open_stopped(self._index, index, staging)
        newest = index_rows.newest_number(self.get(index_rows.number_keys()))
        start = LogStart(index, self.facts, self.pools, read)
        self.history = take_rounds(start, self._index, newest, syncs=False)

    def listen(self, on_damage: Callable[[str, str], None]) -> None:
        """Have `on_damage` called with place and cause of each part of the index that cannot be read."""
        self._index.on_damage = on_damage

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of index rows, None where absent."""
        return self._index.get(keys)

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Index rows with lo <= key < hi, in order or from the end."""
        return self._index.rows(lo, hi, reverse=reverse)

    def content(self, blob: BlobKey) -> Buffer:
        """A whole blob, every page of it verified. Raises BlobMissing, BlobCorrupt."""
        row = self.get([index_rows.BLOB + blob])[0]
        if row is None:
            raise BlobMissing(blob.hex())
        return self._reader.content(blob, row)

    def close(self) -> None:
        self._index.close()


def open_stopped(index: RocksIndex, path: Path, staging: Path) -> None:
    """Open an index of which nothing is to be changed, through links in an empty directory. EngineError."""
    if find_mended(path) is None:
        check_manifest(path)
    index.open_unchanged(staging)


@contextmanager
def look_into(path: Path, pools: Mapping[str, Path], read: ReadLog = read_history) -> Iterator[OfflineCell]:
    """A cell that nobody has open, nor opens meanwhile. Raises EngineError, with cause and cure.

    `pools` says where blobs are kept that are not in the directory itself. `read` finds what the commit log has.
    """
    with ExitStack() as stack:
        if not has_facts(path):
            if path.is_dir():
                check_new(path)
            raise EngineError(f"{path} is no data directory: there is no file `cell`; check the path")
        stack.enter_context(held(path))
        facts, damage = read_both(path)
        if not facts.ready:
            raise EngineError(f"{path} was never opened whole, so nothing is in it; start a broker on it")
        places = {MAIN_POOL: path / "blobs", **pools}
        unknown = [name for name in facts.pools if name not in places]
        if unknown:
            raise EngineError(f"the cell keeps blobs in pool {unknown[0]}: say where, with --pool {unknown[0]}=DIR")
        strange = [name for name in pools if name not in facts.pools]
        if strange:
            raise EngineError(f"the cell has no pool {strange[0]}; it has {', '.join(facts.pools)}")
        found = {name: places[name] for name in facts.pools}
        for name, place in found.items():
            check_identity(place, name, facts)
        cell = OfflineCell(path, facts, index_generation(path), found)
        cell.facts_damage = damage
        staging = stack.enter_context(tempfile.TemporaryDirectory(prefix="pqbroker-index-"))
        cell.open(Path(staging), read)
        stack.callback(cell.close)
        yield cell


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The directory's lock, shared with others that only look."""
    try:
        lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # taken away, or not copied with the rest: no broker of ours is there
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise InUse(f"{path} is in use by process {owner}; stop it, or look into a copy") from None
    finally:
        os.close(lock)


def reading_shard(cell: OfflineCell) -> Shard:
    """The half of a shard that reads, with which tablets can start as far as reading goes; every commit is refused, and
    it is never lost. To be called in a loop."""
    return cast(Shard, _ReadingShard(cell))


class _ReadingShard:
    def __init__(self, cell: OfflineCell) -> None:
        self._cell = cell
        self.pools = tuple(cell.pools)
        self.quarantine = Quarantine(is_told=False)
        self.lost: asyncio.Future[ShardLost] = asyncio.get_running_loop().create_future()

    def submit(self, batch: Batch, told: Told) -> None:
        asyncio.get_running_loop().call_soon(told, CommitRefused("the cell is only looked at"))

    def commit(self, batch: Batch) -> Outcome[None]:
        return Outcome.of(partial(self.submit, batch))

    def plan_later(self, plan: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(plan)

    async def scan(self, lo: bytes, hi: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        rows = self._cell.rows(index_rows.ROW + lo, index_rows.ROW + hi)
        return [(key[1:], value) for key, value in islice(rows, rows_max)]

    async def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._cell.get([index_rows.ROW + key for key in keys])

    async def scan_blobs(
        self, lo: bytes, hi: bytes, rows_max: int, *, reverse: bool = False
    ) -> list[tuple[BlobKey, int]]:
        rows = self._cell.rows(index_rows.BLOB + lo, index_rows.BLOB + hi, reverse=reverse)
        return [(BlobKey(key[1:]), index_rows.blob_size(row)) for key, row in islice(rows, rows_max)]

    async def read(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer]:
        """Return the ranges of blobs; each blob is verified as a whole."""
        found: list[Buffer] = []
        for blob, offset, size in ranges:
            found.append(self._cell.content(blob)[offset : offset + size])
        return found

    async def verify(self, ranges: Sequence[tuple[BlobKey, int, int]]) -> list[Buffer | FileRange]:
        return list(await self.read(ranges))
