"""The index as such: what a walk over its rows sees."""

from pathlib import Path

import pytest

from pqbroker.storage import rocks_index
from pqbroker.storage.rocks_index import RocksIndex


def test_a_walk_ends_at_its_bound_though_nobody_else_keeps_it(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path / "index")
    index.open(create=True, synced=True)
    batch = index.new_batch()
    keys = [b"r%06d" % number for number in range(2000)]
    for key in keys:
        batch.put(key, b"")
    index.write(batch)
    for padding in range(1, 60):
        walk = index.rows(b"r", b"r" + b"\xff" * padding)
        used_again = [bytes(1 + padding) for _ in range(100)]
        assert [key for key, _ in walk] == keys, len(used_again)
    index.close()


@pytest.mark.parametrize(("rows", "row_bytes"), [(16_000, 4), (100, 16_000)])
def test_full_tables_are_exchanged_before_a_write_and_never_within_one(
    tmp_path: Path, rows: int, row_bytes: int
) -> None:
    index = RocksIndex(tmp_path / "index")
    index.open(create=True, synced=True)
    for number in range(30):
        batch = index.new_batch()
        for row in range(rows):
            batch.put(b"%d-%d" % (number, row), bytes(row_bytes))
        index.write(batch)
    index.close()  # rocksdict flushes here too
    log = (tmp_path / "index" / "LOG").read_text(encoding="utf-8")
    assert log.count("New memtable created") == log.count("Manual flush start") == 2 + 1


def test_an_index_that_opened_without_room_writes_and_compacts_files_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_index, "_TABLE_BYTES", 1000)
    has_room = [True]
    index = RocksIndex(tmp_path / "index", lambda size: has_room[0])
    index.open(create=True, synced=True)
    index.close()
    has_room[0] = False
    index.open(create=False, synced=True)
    for number in range(3):
        write(index, number)
    assert files(tmp_path / "index") == 0
    assert "disable_auto_compactions=true" in last_options(tmp_path / "index")
    has_room[0] = True
    index.compact(is_on=True)
    assert "disable_auto_compactions=true" in last_options(tmp_path / "index")
    write(index, 3)
    index.close()
    assert files(tmp_path / "index") > 0
    assert "disable_auto_compactions=false" in last_options(tmp_path / "index")


def write(index: RocksIndex, number: int) -> None:
    batch = index.new_batch()
    batch.put(b"%d" % number, bytes(2000))
    index.write(batch)
    index.sync()


def files(index: Path) -> int:
    return len(list(index.glob("*.sst")))


def last_options(index: Path) -> str:
    return max(index.glob("OPTIONS-*")).read_text(encoding="utf-8")
