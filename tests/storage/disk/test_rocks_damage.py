"""A cell on disk whose files were damaged: refuse or say so, never serve what is wrong."""

import json
import logging
import random
import shutil
from pathlib import Path

import pytest

from pqbroker.storage.disk.directory import read_both
from pqbroker.storage.disk.manifest_check import check_manifest
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE, encode_copy
from pqbroker.storage.disk.segments import encode_record, segment_name
from pqbroker.storage.engine import BlobCorrupt, EngineError
from tests.storage.cells import RocksCell, blob_key, blobs, content, copy_alive, dead, rows

END = b"\xff"


@pytest.fixture
def cell(tmp_path: Path) -> RocksCell:
    return RocksCell(tmp_path / "cell")


async def test_every_flipped_byte_of_a_segment_is_refused_and_logged_with_its_blob(
    cell: RocksCell, caplog: pytest.LogCaptureFixture
) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, 40_000)), (2, content(2, 5_000))]))
    await shard.close()
    (segment,) = cell.segments()
    end = 40_000 + 48 + 4 * 2 + 5_000 + 48 + 4
    intact = segment.read_bytes()[:end]  # behind are the round's rows
    shard = await cell.open()
    for position in {*range(60), *range(0, len(intact), 1_999), len(intact) - 1}:
        segment.write_bytes(intact[:position] + bytes([intact[position] ^ 1]) + intact[position + 1 :])
        hit, spared = (1, 2) if position < len(intact) - 5_000 - 52 else (2, 1)
        caplog.clear()
        with caplog.at_level(logging.ERROR), pytest.raises(BlobCorrupt) as told:
            await shard.read([(blob_key(hit), 0, 40_000)])
        assert told.value.blob == blob_key(hit)
        assert blob_key(hit).hex() in caplog.text
        assert segment.name in caplog.text
        (served,) = await shard.read([(blob_key(spared), 0, 40_000)])
        assert bytes(served) == content(spared, 40_000 if spared == 1 else 5_000)
    await shard.close()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="what gives EIO here is there on Linux only")
async def test_what_the_disk_does_not_give_back_is_corrupt(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, 5_000)), (2, content(2, 5_000)), (3, b"inline")]))
    (segment,) = cell.segments()
    segment.unlink()
    segment.symlink_to("/proc/self/mem")  # nothing can be read of it where a segment begins
    for asked in ([1], [3, 1, 2]):
        with pytest.raises(BlobCorrupt, match=r"Input/output error") as told:
            await shard.read([(blob_key(number), 0, 5_000) for number in asked])
        assert told.value.blob == blob_key(1)
    (served,) = await shard.read([(blob_key(3), 0, 10)])
    assert bytes(served) == b"inline"
    await shard.close()


async def test_a_segment_that_is_gone_makes_its_blobs_corrupt_and_the_cell_opens(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, 40_000)), (2, b"inline")]))
    await shard.close()
    cell.segments()[0].unlink()
    shard = await cell.open()
    with pytest.raises(BlobCorrupt):
        await shard.read([(blob_key(1), 0, 10)])
    (served,) = await shard.read([(blob_key(2), 0, 10)])
    assert bytes(served) == b"inline"
    await shard.commit(dead(1))
    await shard.close()


async def test_an_index_that_lost_commits_which_segments_have_is_refused(cell: RocksCell, tmp_path: Path) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"K", b"v")))
    await shard.close()
    shutil.copytree(cell.index(), tmp_path / "early")
    shard = await cell.open()
    await shard.commit(rows((b"L", b"v")))
    for number in range(3):
        await shard.commit(blobs(shard, [(number, content(number, 5_000))]))
    await shard.close()
    shutil.rmtree(cell.index())
    shutil.copytree(tmp_path / "early", cell.path / "index-2")
    with pytest.raises(EngineError, match=r"commit 2 is missing, though commit 3 .*restore"):
        await cell.open()


async def test_an_index_that_lost_commits_takes_them_from_segments_where_all_stand_there(
    cell: RocksCell, tmp_path: Path
) -> None:
    shard = await cell.open()
    await shard.commit(rows((b"K", b"v")))
    await shard.close()
    shutil.copytree(cell.index(), tmp_path / "early")
    shard = await cell.open()
    for number in range(3):
        await shard.commit(blobs(shard, [(number, content(number, 5_000))]))
    await shard.close()
    shutil.rmtree(cell.index())
    shutil.copytree(tmp_path / "early", cell.path / "index-2")
    shard = await cell.open()
    found = await shard.read([(blob_key(number), 0, 5_000) for number in range(3)])
    assert [bytes(part) for part in found] == [content(number, 5_000) for number in range(3)]
    await shard.close()


async def test_one_payload_without_its_rows_is_what_a_crash_leaves_and_is_removed(cell: RocksCell) -> None:
    shard = await cell.open()
    await shard.commit(blobs(shard, [(1, content(1, 5_000))]))
    await shard.close()
    (segment,) = cell.segments()
    whole = segment.stat().st_size
    left = b"".join(encode_record(blob_key(2), [content(2, 5_000)], 5_000, 2, 0))
    segment.write_bytes(segment.read_bytes() + left)
    orphan = segment.with_name(segment_name(1, 9))
    orphan.write_bytes(left)
    shard = await cell.open()
    assert segment.stat().st_size == whole
    assert not orphan.exists()
    assert await shard.scan_blobs(b"", END, 9) == [(blob_key(1), 5_000)]
    await shard.close()


async def test_files_of_others_among_the_segments_are_left_alone(cell: RocksCell) -> None:
    await (await cell.open()).close()
    strange = [cell.path / "blobs" / name for name in ("1-7.segment", "copy-of.segment", "notes")]
    for file in strange:
        file.write_bytes(b"mine")
    await (await cell.open()).close()
    assert [file.read_bytes() for file in strange] == [b"mine"] * 3


async def test_a_flipped_byte_amid_the_log_of_the_index_is_refused(cell: RocksCell, tmp_path: Path) -> None:
    shard = await cell.open()
    for number in range(300):
        await shard.commit(rows((b"K%d" % number, bytes(500))))
    # A copy of the open cell is what kill -9 leaves: the log has not been flushed.
    copy = RocksCell(tmp_path / "copy")
    copy_alive(cell.path, copy.path)
    await shard.close()
    (log,) = copy.index().glob("commits/*.commits")
    data = bytearray(log.read_bytes())
    data[70_000] ^= 1
    log.write_bytes(data)
    with pytest.raises(EngineError, match="restore"):
        await copy.open()


@pytest.mark.timeout(60)  # RocksDB would read for ever
async def test_an_entry_of_a_wrong_kind_in_the_manifest_is_refused(cell: RocksCell) -> None:
    await (await cell.open()).close()
    without_copy(cell.index())
    (manifest,) = cell.index().glob("MANIFEST-*")
    whole = manifest.read_bytes()
    position = entries = 0
    while position < len(whole):
        damaged = bytearray(whole)
        damaged[position + 6] ^= 4
        manifest.write_bytes(damaged)
        with pytest.raises(EngineError, match=f"entry of a wrong kind at byte {position}; restore"):
            check_manifest(cell.index())
        with pytest.raises(EngineError, match=f"entry of a wrong kind at byte {position}; restore"):
            await cell.open()
        manifest = cell.index() / manifest.name  # each opening has renamed the index
        position += 7 + int.from_bytes(whole[position + 4 : position + 6], "little")
        entries += 1
    assert entries > 2
    manifest.write_bytes(whole)
    await (await cell.open()).close()


async def test_a_directory_of_a_newer_version_is_refused_and_left_alone(cell: RocksCell) -> None:
    await (await cell.open()).close()
    facts = cell.path / FACTS_FILE
    text = json.dumps({**json.loads(facts.read_text()), "format": 99, "new": "field"}).encode()
    facts.write_bytes(text)
    (cell.path / FACTS_COPY).write_bytes(encode_copy(text))
    before = cell.index()
    with pytest.raises(EngineError, match="newer version"):
        await cell.open()
    assert cell.index() == before


@pytest.mark.parametrize("name", [FACTS_FILE, FACTS_COPY])
async def test_each_flipped_bit_of_one_fact_file_is_named_and_repaired_by_the_other(
    cell: RocksCell, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await (await cell.open()).close()
    file = cell.path / name
    before = file.read_bytes()
    facts = read_both(cell.path)
    for bit in range(0, 8 * len(before), 7):
        damaged = bytearray(before)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        found, told = read_both(cell.path)
        assert found == facts[0], bit
        assert str(file) in (told or ""), bit
    await (await cell.open()).close()
    assert file.read_bytes() == before
    assert f"{file} is damaged" in caplog.text


@pytest.mark.parametrize("name", [FACTS_FILE, FACTS_COPY])
async def test_a_missing_fact_file_is_written_again_from_the_other(cell: RocksCell, name: str) -> None:
    await (await cell.open()).close()
    before = (cell.path / name).read_bytes()
    (cell.path / name).unlink()
    await (await cell.open()).close()
    assert (cell.path / name).read_bytes() == before


async def test_facts_written_between_copy_and_file_are_taken_from_the_copy(cell: RocksCell) -> None:
    await (await cell.open()).close()
    older = (cell.path / FACTS_FILE).read_bytes()
    newer = older.replace(b'"fsync"', b'"interval"')
    (cell.path / FACTS_COPY).write_bytes(encode_copy(newer))
    assert read_both(cell.path)[0].durability == "interval"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}'])
async def test_facts_that_cannot_be_read_are_refused(cell: RocksCell, damage: str) -> None:
    await (await cell.open()).close()
    (cell.path / FACTS_FILE).write_text(damage)
    (cell.path / FACTS_COPY).write_text(damage)
    with pytest.raises(EngineError, match="cannot be read"):
        await cell.open()


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("format", 0),
        ("format", 0.5),
        ("format", "1"),
        ("format", True),
        ("cell", 5),
        ("pools", "main"),
        ("pools", [1]),
        ("durability", "fsyng"),
        ("durability", ["fsync"]),
        ("ready", "no"),
    ],
)
async def test_a_fact_that_was_never_written_is_refused(cell: RocksCell, fact: str, value: object) -> None:
    await (await cell.open()).close()
    (cell.path / FACTS_COPY).unlink()
    facts = cell.path / FACTS_FILE
    facts.write_text(json.dumps({**json.loads(facts.read_text()), fact: value}))
    with pytest.raises(EngineError, match=f"cell cannot be read .*{fact}.*restore it from a copy"):
        await cell.open()


async def test_a_cell_without_its_index_is_refused_rather_than_started_empty(cell: RocksCell) -> None:
    await (await cell.open()).close()
    shutil.rmtree(cell.index())
    with pytest.raises(EngineError, match="has none"):
        await cell.open()


async def test_an_index_without_its_facts_is_refused(cell: RocksCell) -> None:
    await (await cell.open()).close()
    (cell.path / FACTS_FILE).unlink()
    (cell.path / FACTS_COPY).unlink()
    with pytest.raises(EngineError, match="missing"):
        await cell.open()


async def test_two_indexes_are_refused(cell: RocksCell) -> None:
    await (await cell.open()).close()
    shutil.copytree(cell.index(), cell.path / "index-7")
    with pytest.raises(EngineError, match="index-1, index-7"):
        await cell.open()


async def test_an_index_without_its_manifest_is_refused_with_the_cause(cell: RocksCell) -> None:
    await (await cell.open()).close()
    without_copy(cell.index())
    (cell.index() / "CURRENT").unlink()
    with pytest.raises(EngineError, match="cannot be opened"):
        await cell.open()
    with pytest.raises(EngineError, match="cannot be opened"):
        await cell.open()


def without_copy(index: Path) -> None:
    """Have the manifest be there once alone."""
    for copy in index.glob("copy-of-*"):
        copy.unlink()


def incompressible(number: int) -> bytes:
    return random.Random(number).randbytes(500)


async def damage_a_table(cell: RocksCell, marker: bytes) -> None:
    """Fill the index, and make the first of its blocks that has the marker unreadable."""
    shard = await cell.open()
    await shard.commit(rows(*((b"K%03d" % number, incompressible(number)) for number in range(300))))
    await shard.commit(blobs(shard, [(number, incompressible(1000 + number)) for number in range(300)]))
    for number in range(300, 400):
        await shard.commit(blobs(shard, [(number, content(number, 50_000))]))
    await shard.close()
    await (await cell.open()).close()  # its log becomes a table
    (table,) = cell.index().glob("*.sst")
    data = bytearray(table.read_bytes())
    data[data.index(marker)] ^= 1
    table.write_bytes(data)


@pytest.mark.parametrize("number", [20, 150])
async def test_a_scan_does_not_end_at_rows_that_cannot_be_read(cell: RocksCell, number: int) -> None:
    await damage_a_table(cell, incompressible(number))
    shard = await cell.open()
    with pytest.raises(EngineError, match=r"the index is damaged: .*restore a copy"):
        await shard.scan(b"K", b"L", 1_000)
    with pytest.raises(EngineError, match=r"the index is damaged: .*restore a copy"):
        await shard.get([b"K%03d" % number])
    assert len(await shard.scan(b"K2", b"L", 1_000)) == 100
    await shard.close()


@pytest.mark.parametrize(("number", "reverse"), [(0, False), (150, False), (150, True), (299, True)])
async def test_blobs_are_not_passed_over_where_rows_cannot_be_read(
    cell: RocksCell, number: int, *, reverse: bool
) -> None:
    await damage_a_table(cell, incompressible(1000 + number))
    shard = await cell.open()
    with pytest.raises(EngineError, match=r"the index is damaged: .*restore a copy"):
        await shard.scan_blobs(b"", END, 1_000, reverse=reverse)
    await shard.close()


async def test_segments_whose_rows_cannot_be_read_stay_and_the_cell_is_refused(cell: RocksCell) -> None:
    await damage_a_table(cell, b"smain\0")
    segments = cell.segments()
    assert len(segments) > 1
    with pytest.raises(EngineError, match=r"the index is damaged: .*restore a copy"):
        await cell.open()
    assert cell.segments() == segments


async def test_a_blob_whose_row_cannot_be_read_is_corrupt_and_the_others_are_served(cell: RocksCell) -> None:
    await damage_a_table(cell, incompressible(1150))
    shard = await cell.open()
    for ask in (shard.read, shard.verify):
        with pytest.raises(BlobCorrupt, match="the index is damaged") as told:
            await ask([(blob_key(150), 0, 500)])
        assert told.value.blob == blob_key(150)
        (served,) = await ask([(blob_key(20), 0, 500)])
        assert served == incompressible(1020)
    await shard.close()
