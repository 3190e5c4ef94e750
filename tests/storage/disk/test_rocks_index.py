"""The index as such: what a walk over its rows sees."""

from pathlib import Path

import pytest

from pqbroker.storage.disk import rocks_index
from pqbroker.storage.disk.commits import recent_rows
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import IndexDamaged


def test_a_walk_ends_at_its_bound_though_nobody_else_keeps_it(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path / "index")
    index.open(create=True)
    batch = IndexChanges()
    keys = [b"r%06d" % number for number in range(2000)]
    for key in keys:
        batch.put(key, b"")
    index.write(batch, 1)
    for padding in range(1, 60):
        walk = index.rows(b"r", b"r" + b"\xff" * padding)
        used_again = [bytes(1 + padding) for _ in range(100)]
        assert [key for key, _ in walk] == keys, len(used_again)
    index.close()


def test_rows_of_rounds_that_rocksdb_has_not_are_read_walked_and_kept(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path / "index")
    index.open(create=True)
    changed(index, 1, put=(b"a", b"c", b"d"))
    changed(index, 2, delete=(b"a",), put=(b"b",))
    assert index.get([b"a", b"b", b"c", b"x"]) == [None, b"2", b"1", None]
    changed(index, 3, delete_range=(b"c", b"d"), put=(b"e",))
    assert index.get([b"c", b"e"]) == [None, b"3"]
    changed(index, 4, put=(b"c",), delete=(b"e",))
    assert list(index.rows(b"", b"z")) == [(b"b", b"2"), (b"c", b"4"), (b"d", b"1")]
    changed(index, 5, delete=(b"d",))
    index.close()
    index.open(create=False)
    assert list(index.rows(b"", b"z")) == [(b"b", b"2"), (b"c", b"4")]
    index.close()


def test_a_flush_takes_every_round_before_it(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path / "index")
    index.open(create=True)
    index.begin(0)
    changed(index, 1, put=(b"a",))
    assert index.flushed() == 0
    index.flush(wait=True)
    assert index.flushed() == 1
    assert files(tmp_path / "index") == 1
    index.close()


@pytest.mark.parametrize(("rows", "row_bytes"), [(16_000, 4), (100, 16_000)])
def test_full_tables_are_exchanged_before_a_write_and_never_within_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, row_bytes: int
) -> None:
    monkeypatch.setattr(rocks_index, "_MEMTABLE_BYTES", 16 << 20)
    index = RocksIndex(tmp_path / "index")
    index.open(create=True)
    for number in range(30):
        batch = IndexChanges()
        for row in range(rows):
            batch.put(b"%d-%d" % (number, row), bytes(row_bytes))
        index.write(batch, number + 1)
    index.close()  # rocksdict flushes here too
    log = (tmp_path / "index" / "LOG").read_text(encoding="utf-8")
    assert log.count("New memtable created") == log.count("Manual flush start") == 2 + 1


def test_an_index_that_opened_without_room_writes_and_compacts_files_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_index, "_MEMTABLE_BYTES", 1000)
    monkeypatch.setattr(recent_rows, "ROUNDS_MAX", 1)
    has_room = [True]
    index = RocksIndex(tmp_path / "index", lambda size: has_room[0])
    index.open(create=True)
    index.close()
    has_room[0] = False
    index.open(create=False)
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


def changed(
    index: RocksIndex,
    number: int,
    *,
    put: tuple[bytes, ...] = (),
    delete: tuple[bytes, ...] = (),
    delete_range: tuple[bytes, bytes] | None = None,
) -> None:
    """A round of these changes; values are its number."""
    changes = IndexChanges()
    for key in delete:
        changes.delete(key)
    if delete_range is not None:
        changes.delete_range(*delete_range)
    for key in put:
        changes.put(key, b"%d" % number)
    index.write(changes, number)


def write(index: RocksIndex, number: int) -> None:
    batch = IndexChanges()
    batch.put(b"%d" % number, bytes(2000))
    index.write(batch, number + 1)


def files(index: Path) -> int:
    return len(list(index.glob("*.sst")))


def last_options(index: Path) -> str:
    return max(index.glob("OPTIONS-*")).read_text(encoding="utf-8")


@pytest.mark.parametrize(("told", "is_damage"), [("for appending", False), ("for random read", True)])
def test_a_new_file_that_finds_no_directory_is_no_damage(tmp_path: Path, told: str, is_damage: bool) -> None:
    """A flush whose directory was renamed away left its cell damaged until the broker was started again."""
    index, found = RocksIndex(tmp_path / "index"), list[str]()
    index.on_damage = lambda place, cause: found.append(place)
    text = f"IO error: No such file or directory: While open a file {told}: /d/index-1/000010.sst: No such file"
    assert isinstance(index.tell(text), IndexDamaged) is is_damage
    assert found == ["the index"] * is_damage
