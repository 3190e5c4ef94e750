"""Salvage of a stopped node, cell by cell: what it would give up, then, on demand, without that."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.doctor.salvaging.cell_plan import CellPlan, LearnedScheme
from pqbroker.doctor.salvaging.losses import CellSalvage, Loss
from pqbroker.storage.disk.commits.commit_scan import CommitAt, Gap
from pqbroker.storage.disk.directory import CELLS
from pqbroker.storage.disk.mending.damaged_rounds import LogDamage
from pqbroker.storage.disk.mending.salvage import CellRows, Lost, Repair, accept, look_past_damage, salvage
from pqbroker.storage.disk.mending.salvage_mark import MarkState, read_mark
from pqbroker.storage.engine_kinds import kind_of
from pqbroker.storage.ids import SYSTEM_CELL, CellId

WHOLE_CELL = (
    "nothing of it can be read, so every row of the cell may have been in it; what no later commit wrote is named"
    " below, and what came first with it has no name any more"
)


@dataclass(frozen=True, slots=True)
class NodeSalvage:
    """Damage of a node's commit logs, and what a salvage gives up for it. Nothing: there is nothing to salvage."""

    losses: tuple[Loss, ...]
    is_damaged: bool


def salvage_node(path: Path, pools: Mapping[str, Path], *, performs: bool) -> NodeSalvage:
    """Look at all cells of a stopped node, and salvage those that are damaged if `performs`. EngineCannot,
    EngineError, OSError."""
    kind_of(str(path)).check_salvage()
    scheme = LearnedScheme()
    others = sorted(CellId(int(place.name)) for place in path.glob(f"{CELLS}/*") if place.name.isdecimal())
    losses: list[Loss] = []
    is_damaged = False
    for cell in (SYSTEM_CELL, *others) if others else ():
        _learn(*_place(path, pools, cell), cell, scheme, others)
    for cell in (SYSTEM_CELL, *others):
        place, of_cell = _place(path, pools, cell)
        found = _look(place, of_cell, cell, scheme, others)
        if found is None:
            continue
        is_damaged = True
        if performs:
            found = _perform(place, of_cell, cell, scheme, others)
        label = "" if cell == SYSTEM_CELL else f"cell {cell}: "
        losses += [loss._replace(where=label + loss.where) for loss in found]
    return NodeSalvage(tuple(losses), is_damaged)


def accept_node(path: Path, pools: Mapping[str, Path]) -> int:
    """Accept the salvages of all cells; how many there were. EngineCannot, EngineError, OSError."""
    kind_of(str(path)).check_salvage()
    cells = [CellId(int(place.name)) for place in path.glob(f"{CELLS}/*") if place.name.isdecimal()]
    return sum(accept(*_place(path, pools, cell)) for cell in (SYSTEM_CELL, *sorted(cells)))


def _place(path: Path, pools: Mapping[str, Path], cell: CellId) -> tuple[Path, dict[str, Path]]:
    """The directory of a cell, and where its pools are that are not in it."""
    if cell == SYSTEM_CELL:
        return path, dict(pools)
    place = path / CELLS / str(cell)
    return place, {name: at / CELLS / str(cell) for name, at in pools.items() if name != MAIN_POOL}


def _learn(
    place: Path, pools: Mapping[str, Path], cell: CellId, scheme: LearnedScheme, others: list[CellId]
) -> None:
    with look_past_damage(place, pools) as (rows, _, lost):
        CellPlan(CellSalvage(rows, lost), cell, scheme, others).learn()


def _look(
    place: Path, pools: Mapping[str, Path], cell: CellId, scheme: LearnedScheme, others: list[CellId]
) -> list[Loss] | None:
    """Return what a salvage of the cell would give up; None when there is nothing to salvage."""
    with look_past_damage(place, pools) as (rows, damage, lost):
        if not damage.is_damaged and read_mark(place).state is not MarkState.BEGUN:
            return None
        found = CellSalvage(rows, lost)
        CellPlan(found, cell, scheme, others).plan()
        return [*_name_rounds(damage), *found.losses]


def _perform(
    place: Path, pools: Mapping[str, Path], cell: CellId, scheme: LearnedScheme, others: list[CellId]
) -> list[Loss]:
    losses: list[Loss] = []

    def plan(rows: CellRows, lost: Lost) -> Repair:
        found = CellSalvage(rows, lost)
        CellPlan(found, cell, scheme, others).plan()
        losses.extend(found.losses)
        return Repair(found.changes, found.skipped)

    damage = salvage(place, pools, plan)
    return [*_name_rounds(damage), *losses]


def _name_rounds(damage: LogDamage) -> list[Loss]:
    found = [
        Loss("mended", f"commit {record.header.number}", f"one bit is wrong, at {_at(record)}: nothing is lost")
        for record, _ in damage.mended
    ]
    found += [
        Loss("payload", f"commit {record.header.number}", f"a part of its payload is lost, before {_at(record)}")
        for record in damage.torn_payloads
    ]
    if damage.given_up:
        places = ", ".join(f"{gap.end - gap.position} bytes at {_at(gap)}" for gap in damage.gaps) or "it is gone"
        found.append(Loss("given up", damage.numbers, f"{places}: {WHOLE_CELL}"))
    return found


def _at(found: CommitAt | Gap) -> str:
    """Return its place by the file's name alone: the index's directory has another one after a salvage."""
    return f"byte {found.position} of {found.path.name}"
