"""A cell as kill -9 leaves it, and damage to the rounds of its commit log."""

from pathlib import Path

from pqbroker.storage.disk.commits.commit_record import BEGIN, COMMIT_HEADER_BYTES, cell_seed
from pqbroker.storage.disk.commits.commit_scan import CommitAt, scan_commits
from pqbroker.storage.disk.directory import read_both
from tests.storage.cells import RocksCell, blobs, content, copy_alive, rows

ROUNDS = 5
IN_ROWS = COMMIT_HEADER_BYTES + 6


async def killed(path: Path, *, with_blobs: bool = False) -> RocksCell:
    """What kill -9 left of a cell with rounds K0, K1 … which the index has in memory alone."""
    living = RocksCell(path / "living")
    shard = await living.open()
    for number in range(ROUNDS):
        await shard.commit(rows((b"K%d" % number, b"value %d" % number)))
        if with_blobs:
            await shard.commit(blobs(shard, [(number, content(number, 5_000))]))
    copy_alive(living.path, path / "cell")
    await shard.close()
    return RocksCell(path / "cell")


def rounds(path: Path) -> list[CommitAt]:
    """The rounds in log and segments of a cell, in order."""
    seed = cell_seed(read_both(path)[0].cell)
    files = [*path.glob("index-*/commits/*.commits"), *path.glob("blobs/*.segment")]
    found = [record for file in files for record in scan_commits(file, 0, seed).records]
    return sorted((each for each in found if not each.header.flags & BEGIN), key=lambda each: each.header.number)


def damage(record: CommitAt, at: int, mask: bytes = b"\x55\xaa\x55") -> None:
    """Change bytes of a record, counted from its beginning, by a mask: by default more than one bit."""
    data = bytearray(record.path.read_bytes())
    for number, bits in enumerate(mask):
        data[record.position + at + number] ^= bits
    record.path.write_bytes(data)


def flip(record: CommitAt, at: int) -> None:
    damage(record, at, b"\x08")


def pools(cell: RocksCell) -> dict[str, Path]:
    return {"main": cell.path / "blobs"}
