"""The tablet floor over the disk engine: what was committed is there when the cell is opened again."""

from pathlib import Path

from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Concat, CopyRange, DeleteRange, Piece, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_topics import TopicChanges
from pqbroker.storage.tablets.tablet import TabletType

TABLET = TabletId(70_000)
CLOCK = 1_700_000_000_000


async def _open(path: Path) -> tuple[Cell, KeyValueTablet, Scheme]:
    cell = await Cell.open(RocksEngine(path, segment_bytes=1 << 20, ballast_bytes=0))
    scheme = await Scheme.open(TabletHost(cell))
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "owner")])
    tablet = KeyValueTablet(cell.storage(TABLET), inline_bytes_max=100, clock=lambda: CLOCK)
    await tablet.start()
    return cell, tablet, scheme


async def test_keys_topics_and_references_survive(tmp_path: Path) -> None:
    cell, tablet, scheme = await _open(tmp_path / "cell")
    topic = await TopicChanges(scheme, lambda: CLOCK).create("t", 3, {}, 1)
    large = bytes(range(256)) * 1000
    await tablet.execute([Write(b"a", [large], len(large)), Write(b"b", [b"tiny"], 4)])
    await tablet.execute([Concat((b"a", Piece([b"between"], 7), b"b"), b"c"), CopyRange(None, b"", b"copy/")])
    await scheme.stop()
    await cell.close()
    cell, tablet, scheme = await _open(tmp_path / "cell")
    assert scheme.topics == {"t": topic}
    await tablet.execute([DeleteRange(b"c", True, b"c", True)])
    assert [key for key, _ in tablet.keys(b"")] == [b"copy/a", b"copy/b"]
    (found,) = await tablet.read([(b"copy/a", 0, 0)])
    assert b"".join(found) == large
    assert cell.storage(TABLET).generation == 2
    await cell.close()


async def test_a_dropped_tablet_is_gone(tmp_path: Path) -> None:
    cell, tablet, _ = await _open(tmp_path / "cell")
    await tablet.execute([Write(b"%05d" % number, [bytes(200)], 200) for number in range(1200)])
    await cell.drop_tablet(TABLET)
    await cell.close()
    cell, tablet, _ = await _open(tmp_path / "cell")
    assert len(tablet) == 0
    assert cell.storage(TABLET).generation == 1
    await cell.close()


async def test_two_thousand_tablets_open_again(tmp_path: Path) -> None:
    cell, _, _ = await _open(tmp_path / "cell")
    await cell.create_tablets([(TabletId(100_000 + number), TabletType.PERSQUEUE, "t") for number in range(2000)])
    await cell.close()
    cell, _, _ = await _open(tmp_path / "cell")
    assert {cell.storage(TabletId(100_000 + number)).generation for number in range(2000)} == {2}
    await cell.close()
