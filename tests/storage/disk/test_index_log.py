"""A power cut tore the last write to the index's own log, which cells of format 1 have: the cell opens with all before
it. Damage stays damage."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.index_log import is_torn
from pqbroker.storage.engine import EngineError, Shard
from tests.storage.cells import RocksCell
from tests.storage.disk.earlier_form import make_earlier

UNIT_BYTES = 4096
LAST_BYTES = 70_000
"""Three blocks of the log, so that the last write has a first, a middle and a last fragment."""


class Written:
    """A cell as kill -9 left it; `begin` is where the last write to its log begins."""

    def __init__(self, cell: RocksCell, log: bytes, begin: int) -> None:
        self.cell = cell
        self.log = log
        self.begin = begin

    @property
    def units(self) -> list[tuple[int, int]]:
        """The pieces in which a disk may have written the last write."""
        starts = range(self.begin - self.begin % UNIT_BYTES, len(self.log), UNIT_BYTES)
        return [(max(start, self.begin), min(start + UNIT_BYTES, len(self.log))) for start in starts]

    def put(self, log: bytes) -> Path:
        """Have this log instead; the index's directory."""
        log_of(self.cell).write_bytes(log)
        return self.cell.index()

    def lacks(self, *units: tuple[int, int]) -> bytes:
        """The log without some units, of which the file system made room for all."""
        log = bytearray(self.log)
        for start, end in units:
            log[start:end] = bytes(end - start)
        return bytes(log)


def log_of(cell: RocksCell) -> Path:
    return max(cell.index().glob("*.log"), key=lambda file: file.stat().st_size)


@pytest.fixture(params=[300, 12_000, LAST_BYTES])
async def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    source = random.Random(request.param)
    living, cell = RocksCell(tmp_path / "living"), RocksCell(tmp_path / "cell")
    values = [source.randbytes(500) for _ in range(30)]
    begins = await make_earlier(living, cell, [*values, source.randbytes(request.param)])
    if request.param < UNIT_BYTES:  # else the write is within one unit, and is there or not
        shutil.rmtree(cell.path)
        shutil.rmtree(living.path)
        values[-1] += source.randbytes(-(begins[-1] + 200) % UNIT_BYTES)
        begins = await make_earlier(living, cell, [*values, source.randbytes(request.param)])
    return Written(cell, log_of(cell).read_bytes(), begins[-1])


async def keys(shard: Shard) -> list[bytes]:
    return [key for key, _ in await shard.scan(b"A", b"Z", 100)]


async def test_a_torn_last_write_is_left_out_and_all_before_it_is_there(written: Written) -> None:
    assert len(written.units) > 1
    torn = [written.lacks(unit) for unit in written.units[:-1]]
    torn.append(written.lacks(*written.units[:-1]))
    torn.append(written.lacks(*written.units[1:]))
    for number, log in enumerate(torn):
        cell = RocksCell(written.cell.path.with_name(f"copy-{number}"))
        shutil.copytree(written.cell.path, cell.path)
        log_of(cell).write_bytes(log)
        for _ in range(2):
            shard = await cell.open()
            found = await keys(shard)
            assert found[:30] == [b"K%02d" % each for each in range(30)]
            assert b"K30" not in found
            await shard.close()


async def test_what_is_whole_is_not_torn(written: Written) -> None:
    assert not is_torn(written.cell.index())
    shard = await written.cell.open()
    assert (await keys(shard))[-1] == b"K30"
    await shard.close()


@pytest.mark.parametrize("place", [lambda log, begin: begin + 1, lambda log, begin: (begin + len(log)) // 2])
async def test_a_last_write_that_was_all_written_is_damaged(
    written: Written, place: Callable[[bytes, int], int]
) -> None:
    log = bytearray(written.log)
    log[place(written.log, written.begin)] ^= 1
    assert not is_torn(written.put(bytes(log)))
    with pytest.raises(EngineError, match="restore"):
        await written.cell.open()


async def test_a_unit_that_lacks_amid_the_log_is_damage(written: Written) -> None:
    assert not is_torn(written.put(written.lacks((4096, 8192))))
    with pytest.raises(EngineError, match="restore"):
        await written.cell.open()


async def test_a_torn_write_does_not_excuse_an_earlier_log(written: Written) -> None:
    index = written.put(written.lacks(written.units[0]))
    assert is_torn(index)
    earlier = index / "000001.log"
    earlier.write_bytes(written.log)
    assert is_torn(index)
    earlier.write_bytes(written.lacks(written.units[0]))
    assert not is_torn(index)


def test_a_directory_without_logs_is_not_torn(tmp_path: Path) -> None:
    assert not is_torn(tmp_path)
    (tmp_path / "000004.log").touch()
    assert not is_torn(tmp_path)
