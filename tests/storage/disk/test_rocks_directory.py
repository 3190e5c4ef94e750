"""Opening a cell: the lock, the identity of pools, and openings that a crash cut short."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.directory import CellDirectory
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import EngineError
from tests.storage.cells import RocksCell, blob_key, blobs, content, rows

END = b"\xff"


class PowerCut(BaseException):
    """The process ends here."""


async def test_a_second_owner_is_told_who_has_the_cell(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    shard = await cell.open()
    with pytest.raises(EngineError, match=f"in use by process {os.getpid()};"):
        await cell.open()
    await shard.commit(rows((b"K", b"still mine")))
    await shard.close()
    await (await cell.open()).close()


async def test_a_failed_opening_gives_the_lock_back(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    await (await cell.open()).close()
    current = cell.index() / "CURRENT"
    kept = current.read_bytes()
    current.unlink()
    for copy in cell.index().glob("copy-of-*"):
        copy.unlink()
    with pytest.raises(EngineError, match="cannot be opened"):
        await cell.open()
    (cell.index() / "CURRENT").write_bytes(kept)
    await (await cell.open()).close()


async def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be used"):
        await RocksCell(tmp_path / "file").open()


def steps_of_an_opening(path: Path, monkeypatch: pytest.MonkeyPatch, stop_before: int) -> bool:
    """Open at `path` until the given change of the directory; False when there are fewer."""
    count = 0

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            nonlocal count
            if count == stop_before:
                raise PowerCut
            count += 1
            return change(*arguments, **options)

        return step

    with monkeypatch.context() as patch:
        for name in ("rename", "fsync", "write"):
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr(Path, "mkdir", counted(Path.mkdir))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        directory = CellDirectory(path, None)
        try:
            directory.take()
        except PowerCut:
            directory.release()
            return True
    directory.release()
    return False


@pytest.mark.parametrize("known", [False, True], ids=["new cell", "known cell"])
async def test_an_opening_cut_short_at_any_step_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    step = 0
    while True:
        cell = RocksCell(tmp_path / f"cell-{step}")
        generation = 0
        if known:
            shard = await cell.open()
            await shard.commit(blobs(shard, [(1, content(1, 5_000))]))
            generation = shard.generation
            await shard.close()
        if not steps_of_an_opening(cell.path, monkeypatch, step):
            break
        shard = await cell.open()
        assert shard.generation > generation
        assert await shard.scan_blobs(b"", END, 9) == ([(blob_key(1), 5_000)] if known else [])
        await shard.commit(rows((b"K", b"v")))
        await shard.close()
        shard = await cell.open()
        assert await shard.get([b"K"]) == [b"v"]
        await shard.close()
        step += 1
    assert step > 2


async def test_a_new_cell_that_was_never_whole_starts_again(tmp_path: Path) -> None:
    cell = RocksCell(tmp_path / "cell")
    directory = CellDirectory(cell.path, None)
    directory.take()
    (directory.index / "000001.half").write_bytes(b"half an index")
    directory.release()
    shard = await cell.open()
    assert shard.generation == 2
    assert await shard.scan(b"", END, 9) == []
    await shard.close()


def engine_with(path: Path, **pools: Path) -> RocksEngine:
    return RocksEngine(path / "cell", ballast_bytes=0, pools=pools)


async def test_blobs_go_to_the_pool_they_name(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, fast=tmp_path / "fast", slow=tmp_path / "slow")
    shard = await engine.open()
    batch = blobs(shard, [(1, content(1, 5_000))])
    batch.put_blob(blob_key(2), [content(2, 6_000)], 6_000, "slow")
    await shard.commit(batch)
    assert [len(list((tmp_path / name).glob("*.segment"))) for name in ("fast", "slow")] == [1, 1]
    await shard.close()
    shard = await engine.open()
    found = await shard.read([(blob_key(2), 0, 6_000), (blob_key(1), 0, 5_000)])
    assert [bytes(part) for part in found] == [content(2, 6_000), content(1, 5_000)]
    assert [pool.name for pool in shard.stats().pools] == ["fast", "slow"]
    await shard.close()


async def test_a_pool_that_is_not_mounted_refuses_to_start(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, fast=tmp_path / "fast")
    await (await engine.open()).close()
    (tmp_path / "fast").rename(tmp_path / "elsewhere")
    (tmp_path / "fast").mkdir()
    with pytest.raises(EngineError, match=r"pool fast is not at .*mount it"):
        await engine.open()
    assert list((tmp_path / "fast").iterdir()) == []


async def test_a_pool_of_another_cell_refuses_to_start(tmp_path: Path) -> None:
    await (await engine_with(tmp_path / "a", fast=tmp_path / "pool").open()).close()
    with pytest.raises(EngineError, match="is not pool fast of this cell"):
        await engine_with(tmp_path / "b", fast=tmp_path / "pool").open()


async def test_a_pool_that_is_no_longer_configured_refuses_to_start(tmp_path: Path) -> None:
    await (await engine_with(tmp_path, fast=tmp_path / "fast", slow=tmp_path / "slow").open()).close()
    with pytest.raises(EngineError, match="blobs in pool slow, which is not configured"):
        await engine_with(tmp_path, fast=tmp_path / "fast").open()


async def test_a_pool_can_be_added(tmp_path: Path) -> None:
    await (await engine_with(tmp_path, fast=tmp_path / "fast").open()).close()
    shard = await engine_with(tmp_path, fast=tmp_path / "fast", slow=tmp_path / "slow").open()
    assert shard.pools == ("fast", "slow")
    await shard.close()
