"""A look at a stopped cell: what no start can serve is refused, and the directory stays as it was."""

import re
import tempfile
from pathlib import Path

import pytest

from pqbroker.storage.disk.preview import preview
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import EngineError
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_topics import TopicChanges
from pqbroker.storage.tablets.start_check import check_start
from pqbroker.storage.tablets.tablet import TabletType
from tests.faults.flipped_index import tree
from tests.storage.cells import blobs, content

pytestmark = pytest.mark.spec("J.2")

TOPIC_TABLET = TabletId(1 << 16)


async def make(path: Path, *, tablets: int = 0, with_scheme: bool = True) -> None:
    cell = await Cell.open(RocksEngine(path, ballast_bytes=0))
    if with_scheme:
        scheme = await Scheme.open(TabletHost(cell))
        await TopicChanges(scheme, lambda: 1).create("t", 1, {}, 1)
        await scheme.stop()
    ids = [TabletId(TOPIC_TABLET + number) for number in range(tablets)]
    await cell.create_tablets([(tablet_id, TabletType.PERSQUEUE, "t") for tablet_id in ids])
    await cell.close()


async def look(path: Path) -> None:
    await preview(path, {"main": path / "blobs"}, check_start)


async def test_a_sound_cell_and_a_new_directory_are_let_pass_unchanged(tmp_path: Path) -> None:
    await look(tmp_path / "none")
    await make(tmp_path / "data")
    before = tree(tmp_path / "data")
    await look(tmp_path / "data")
    assert tree(tmp_path / "data") == before


async def test_a_length_in_the_manifest_that_points_behind_its_end_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await make(path)
    (manifest,) = path.glob("index-*/MANIFEST-*")
    whole = manifest.read_bytes()
    last = last_entry(whole)
    manifest.write_bytes(whole[: last + 5] + b"\x70" + whole[last + 6 :])
    await look(path)  # its copy mends it
    (copy,) = path.glob("index-*/copy-of-MANIFEST-*")
    copy.unlink()
    before = tree(path)
    with pytest.raises(EngineError, match=rf"{re.escape(str(manifest))} has an entry that cannot be read; restore"):
        await look(path)
    assert tree(path) == before
    manifest.write_bytes(whole[: last + 9])  # what a power cut leaves of its last entry
    await look(path)


def last_entry(log: bytes) -> int:
    """Where the last entry of a manifest of less than a block begins."""
    position = following = 0
    while following < len(log):
        position = following
        following += 7 + int.from_bytes(log[position + 4 : position + 6], "little")
    return position


async def test_an_empty_scheme_beside_tablets_of_topics_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    cell = await Cell.open(RocksEngine(path, ballast_bytes=0))
    await cell.create_tablets([(TabletId(1), TabletType.SCHEME, "scheme"), (TOPIC_TABLET, TabletType.PERSQUEUE, "t")])
    await cell.close()
    with pytest.raises(EngineError, match=r"the scheme cannot be read: its log is empty.*restore"):
        await look(path)


async def test_a_directory_in_use_is_left_to_the_start_to_refuse(tmp_path: Path) -> None:
    cell = await Cell.open(RocksEngine(tmp_path / "data", ballast_bytes=0))
    await look(tmp_path / "data")
    await cell.close()


async def test_a_directory_that_is_written_to_without_its_lock_is_left_to_the_start(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await make(path)
    shard = await RocksEngine(path, ballast_bytes=0).open()
    (path / "lock").unlink()
    for first in range(0, 2000, 100):
        numbers = range(first, first + 100)
        commits = [shard.commit(blobs(shard, [(number, content(number, 9000))])) for number in numbers]
        await look(path)
        for commit in commits:
            await commit
    await shard.close()


async def test_where_nothing_can_be_written_a_start_goes_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(tmp_path / "data")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    await look(tmp_path / "data")
