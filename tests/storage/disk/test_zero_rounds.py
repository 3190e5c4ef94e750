"""Cells whose last round holds zeros, after kill -9: one flipped bit is never taken for a power cut."""

import json
import logging
from pathlib import Path

import pytest

from pqbroker.storage.disk.directory import FORMAT
from pqbroker.storage.engine import BlobCorrupt, EngineError
from tests.storage.cells import MIB, RocksCell, blob_key, blobs, copy_alive
from tests.storage.disk.commits.logs import flip

ROWS = {"rows": [bytes(3_000)], "rows that end in zeros": [b"\1" + bytes(5_000)]}
BLOBS = {
    "zeros": [bytes(40_000)],
    "images": [(bytes(1_500) + b"\xff" * 700) * 30],
    "several": [bytes(10_000), b"PQC2PQB1" * 4_000, b"\xaa" * 9_000 + bytes(9_000)],
    "large": [bytes(300_000)],
}
SHAPES = {**ROWS, **BLOBS}


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def killed(cell: RocksCell, values: list[bytes], name: str = "killed") -> RocksCell:
    """What kill -9 leaves of a cell whose last round stores a blob of each value, with a row."""
    shard = await cell.open()
    for number in range(3):
        await shard.commit(blobs(shard, [(100 + number, b"before")]))
    batch = blobs(shard, list(enumerate(values)))
    batch.put(b"K", b"\0" * 200)
    await shard.commit(batch)
    copy = RocksCell(cell.path.with_name(name))
    copy_alive(cell.path, copy.path)
    await shard.close()
    return copy


async def read_back(cell: RocksCell, values: list[bytes]) -> None:
    shard = await cell.open()
    try:
        assert await shard.scan(b"K", b"L", 9) == [(b"K", b"\0" * 200)]
        found = await shard.read([(blob_key(number), 0, MIB) for number in range(len(values))])
        assert [bytes(part) for part in found] == values
    finally:
        await shard.close()


async def damage_of(cell: RocksCell, values: list[bytes]) -> BlobCorrupt | EngineError | None:
    """What names the damage; None: all was read back."""
    try:
        await read_back(cell, values)
    except (BlobCorrupt, EngineError) as named:
        return named
    return None


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
async def test_a_round_with_zeros_survives_a_kill(cell: RocksCell, values: list[bytes]) -> None:
    await read_back(await killed(cell, values), values)


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
async def test_a_flipped_bit_is_never_taken_for_a_power_cut(
    cell: RocksCell, values: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    left = await killed(cell, values)
    (file,) = left.segments() or (left.index() / "commits").glob("*.commits")
    whole = file.read_bytes()
    end = len(whole.rstrip(b"\0"))
    begin = max(end - sum(map(len, values)) - 400, 200)
    for position in (begin, (begin + end) // 2, end - 300, end - 60, end - 2):
        flipped = RocksCell(cell.path.with_name(f"flipped-{position}"))
        copy_alive(left.path, flipped.path)
        flip(flipped.path / file.relative_to(left.path), position)
        with caplog.at_level(logging.WARNING):
            named = await damage_of(flipped, values)
        assert named is None or isinstance(named, BlobCorrupt) or "damaged" in str(named)
        assert "a power cut tore" not in caplog.text


async def test_a_cell_of_the_format_before_is_marked_before_its_log_has_the_new_form(
    cell: RocksCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await cell.open()).close()
    facts = cell.path / "cell"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": FORMAT - 1}))

    def begin(*_: object) -> None:
        assert json.loads(facts.read_text())["format"] == FORMAT
        raise OSError(5, "cut short")

    with monkeypatch.context() as patch:
        patch.setattr("pqbroker.storage.disk.commits.log_start.CommitLog", begin)
        with pytest.raises(EngineError):
            await cell.open()
    values = [bytes(5_000)]
    await read_back(await killed(cell, values), values)
