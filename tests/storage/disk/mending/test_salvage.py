"""A salvaged cell: what is whole is there, what was damaged is kept, and nothing is removed till it is accepted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.directory import CellDirectory, index_generation
from pqbroker.storage.disk.mending import salvage as salvaging
from pqbroker.storage.disk.mending.salvage import CellRows, Lost, Repair, accept, look_past_damage, salvage
from pqbroker.storage.disk.mending.salvage_mark import (
    NO_MARK,
    SALVAGED,
    MarkState,
    SalvageMark,
    read_mark,
    write_mark,
)
from pqbroker.storage.disk.mending.set_aside import DAMAGED
from pqbroker.storage.engine import EngineError
from pqbroker.storage.quarantine import Quarantined
from tests.faults.power.recording import resident
from tests.storage.cells import RocksCell, blob_key, content, copy_alive, dead, rows
from tests.storage.disk.mending.cells import IN_ROWS, ROUNDS, damage, flip, killed, pools, rounds


class Planned:
    """A plan that sets one row, and what it was given."""

    def __init__(self) -> None:
        self.lost: list[Lost] = []

    def __call__(self, found: CellRows, lost: Lost) -> Repair:
        self.lost.append(lost)
        changes = IndexChanges()
        changes.put(index_rows.ROW + b"repaired", b"%d" % len(found.get([b"rK0"])))
        return Repair(changes, {"topic-0": [(5, 100)]})


async def values(cell: RocksCell) -> list[bytes | None]:
    shard = await cell.open()
    found = await shard.get([b"K%d" % number for number in range(ROUNDS)])
    await shard.close()
    return found


ALL = [b"value %d" % number for number in range(ROUNDS)]


async def test_a_mended_cell_has_every_round(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    flip(rounds(cell.path)[2], IN_ROWS)
    with pytest.raises(EngineError, match="`pqbroker doctor --salvage`"):
        await cell.open()
    planned = Planned()
    assert len(salvage(cell.path, pools(cell), planned).mended) == 1
    assert planned.lost == [Lost(0, 0, frozenset())]
    assert await values(cell) == ALL


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_a_cell_with_a_lost_round_has_all_others(tmp_path: Path, number: int) -> None:
    cell = await killed(tmp_path)
    record = rounds(cell.path)[number]
    damage(record, IN_ROWS)
    planned = Planned()
    assert salvage(cell.path, pools(cell), planned).given_up == (number + 1,)
    (lost,) = planned.lost
    assert lost.rounds == 1
    assert record.header.record_bytes <= lost.size_bytes < record.header.record_bytes + 512
    assert lost.rewritten >= {b"rK%d" % later for later in range(number + 1, ROUNDS)}
    assert b"rK%d" % number not in lost.rewritten
    expected: list[bytes | None] = [*ALL]
    expected[number] = None
    assert await values(cell) == expected


async def test_the_repair_is_durable_and_commits_go_on_behind_it(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    damage(rounds(cell.path)[2], IN_ROWS)
    generation = index_generation(cell.path)
    salvage(cell.path, pools(cell), Planned())
    assert index_generation(cell.path) == generation + 1
    shard = await cell.open()
    assert await shard.get([b"repaired"]) == [b"1"]
    await shard.commit(rows((b"later", b"1")))
    await shard.close()
    shard = await cell.open()
    assert await shard.get([b"later", b"repaired"]) == [b"1", b"1"]
    await shard.close()


async def test_a_lost_round_with_a_payload_costs_that_payload_alone(tmp_path: Path) -> None:
    cell = await killed(tmp_path, with_blobs=True)
    record = [each for each in rounds(cell.path) if each.path.suffix == ".segment"][2]
    damage(record, IN_ROWS)
    salvage(cell.path, pools(cell), Planned())
    shard = await cell.open()
    assert [bytes(each) for each in await shard.read([(blob_key(number), 0, 5_000) for number in (0, 1, 3, 4)])] == [
        content(number, 5_000) for number in (0, 1, 3, 4)
    ]
    assert await shard.places([blob_key(2)]) == [None]
    await shard.close()
    (kept,) = (cell.path / DAMAGED).iterdir()
    assert kept.stat().st_size == record.header.record_bytes + record.header.payload_bytes


async def test_the_damaged_bytes_are_kept_as_they_were_found(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    record = rounds(cell.path)[2]
    damage(record, IN_ROWS)
    damaged = record.path.read_bytes()[record.position : record.position + record.header.record_bytes]
    salvage(cell.path, pools(cell), Planned())
    (kept,) = (cell.path / DAMAGED).iterdir()
    assert kept.read_bytes() == damaged
    assert kept.name in str(read_mark(cell.path).places)


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    damage(rounds(cell.path)[2], IN_ROWS)
    before = resident(cell.path)
    with look_past_damage(cell.path, pools(cell)) as (found, damaged, lost):
        assert found.get([b"rK1", b"rK2", b"rK3"]) == [b"value 1", None, b"value 3"]
        assert damaged.given_up == (3,)
        assert lost.rounds == 1
    assert resident(cell.path) == before


async def test_a_whole_cell_is_left_as_it_is(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    before = resident(cell.path)
    assert not salvage(cell.path, pools(cell), Planned()).is_damaged
    assert resident(cell.path) == before


async def test_a_salvaged_cell_is_held_until_it_is_accepted(tmp_path: Path) -> None:
    cell = await killed(tmp_path, with_blobs=True)
    damage(rounds(cell.path)[2], IN_ROWS)
    salvage(cell.path, pools(cell), Planned())
    for _ in range(2):
        shard = await cell.open()
        assert shard.quarantine.is_held
        assert not shard.quarantine.is_sound
        assert any(place.startswith("commit 3 at ") for place in shard.quarantine.damages)
        with pytest.raises(Quarantined, match="--salvage --accept"):
            shard.quarantine.check_held()
        await shard.close()
    shard = await cell.open()
    await shard.commit(dead(*range(ROUNDS)))
    await shard.close()
    assert cell.segments(), "a segment that is empty stays"
    assert accept(cell.path, pools(cell))
    assert not accept(cell.path, pools(cell))
    shard = await cell.open()
    assert shard.quarantine.is_sound
    assert not shard.quarantine.is_held
    await shard.close()
    assert (cell.path / DAMAGED).exists()
    assert read_mark(cell.path).skipped == {"topic-0": [[5, 100]]}


async def test_a_backup_of_a_salvaged_cell_carries_the_mark(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    damage(rounds(cell.path)[2], IN_ROWS)
    salvage(cell.path, pools(cell), Planned())
    shard = await cell.open()
    await shard.backup("one")
    await shard.close()
    restore(cell.path / "backups" / "one", tmp_path / "restored", {}, lambda size: None)
    assert read_mark(tmp_path / "restored") == read_mark(cell.path)
    shard = await RocksCell(tmp_path / "restored").open()
    assert shard.quarantine.is_held
    await shard.close()


async def test_a_cell_that_is_held_is_not_removed(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    engine = cell.engine()
    shard = await engine.sibling("7", must_exist=False).open()
    await shard.close()
    write_mark(cell.path / "cells" / "7", SalvageMark(MarkState.HELD))
    with pytest.raises(EngineError, match="was salvaged, so it is not deleted"):
        await engine.remove_sibling("7")
    write_mark(cell.path / "cells" / "7", SalvageMark(MarkState.ACCEPTED))
    await engine.remove_sibling("7")
    assert not (cell.path / "cells" / "7").exists()


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"[]", b'{"state": 1}', b'{"state": "held", "places": {"a": 1}}'])
async def test_a_mark_that_cannot_be_read_holds_the_cell(tmp_path: Path, text: bytes) -> None:
    cell = await killed(tmp_path)
    (cell.path / SALVAGED).write_bytes(text)
    shard = await cell.open()
    assert shard.quarantine.is_held
    await shard.close()


def test_without_a_mark_nothing_is_held(tmp_path: Path) -> None:
    assert read_mark(tmp_path) == NO_MARK
    assert not NO_MARK.damages


@pytest.mark.parametrize("name", ["set_aside", "write_mark", "start_log", "_write"])
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_salvage_that_was_interrupted_is_done_by_the_next(
    tmp_path: Path, name: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = await killed(tmp_path)
    for record in rounds(cell.path)[1:3]:
        damage(record, IN_ROWS)
    monkeypatch.setattr(salvaging, name, _stopping(getattr(salvaging, name), is_done=is_done))
    with pytest.raises(OSError, match="stopped"):
        salvage(cell.path, pools(cell), Planned())
    monkeypatch.undo()
    if read_mark(cell.path).state is MarkState.BEGUN:
        with pytest.raises(EngineError, match="was interrupted: run `pqbroker doctor --salvage --perform` again"):
            await cell.open()
        with pytest.raises(EngineError):
            accept(cell.path, pools(cell))
    planned = Planned()
    salvage(cell.path, pools(cell), planned)
    (lost,) = planned.lost
    assert lost.rounds >= 2
    assert read_mark(cell.path).state is MarkState.HELD
    assert (cell.path / DAMAGED).is_dir()
    expected: list[bytes | None] = [*ALL]
    expected[1:3] = None, None
    assert await values(cell) == expected


def _stopping(call: Callable[..., object], *, is_done: bool) -> Callable[..., object]:
    def stopped(*arguments: object, **named: object) -> object:
        if is_done:
            call(*arguments, **named)
        raise OSError("stopped")

    return stopped


async def test_a_second_salvage_keeps_what_the_first_one_named(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    damage(rounds(cell.path)[1], IN_ROWS)
    salvage(cell.path, pools(cell), Planned())
    shard = await cell.open()
    await shard.commit(rows((b"L", b"1")))
    await shard.commit(rows((b"M", b"1")))
    copy_alive(cell.path, tmp_path / "again")
    await shard.close()
    again = RocksCell(tmp_path / "again")
    damage(rounds(again.path)[-2], IN_ROWS)
    salvage(again.path, pools(again), Planned())
    mark = read_mark(again.path)
    assert len(mark.places) == 2
    assert mark.skipped == {"topic-0": [[5, 100], [5, 100]]}


async def test_a_cell_that_is_open_is_not_salvaged(tmp_path: Path) -> None:
    cell = await killed(tmp_path)
    directory = CellDirectory(cell.path, None)
    directory.take()
    with pytest.raises(EngineError, match="in use"):
        salvage(cell.path, pools(cell), Planned())
    with pytest.raises(EngineError, match="in use"):
        accept(cell.path, pools(cell))
    directory.release()
