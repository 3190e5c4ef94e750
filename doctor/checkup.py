"""The whole check-up of a stopped node's cells, from its index down to the records in its blobs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pqbroker.doctor.findings import RESTORE, Findings
from pqbroker.doctor.stored_blobs import StoredBlobs
from pqbroker.doctor.tablet_rows import TabletRows
from pqbroker.doctor.tablets import Home, Known, check_tablets
from pqbroker.storage.bundles.hive import CellState
from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.directory import CELLS
from pqbroker.storage.disk.mending.facts_copy import is_left_by_crash
from pqbroker.storage.disk.mending.salvage_mark import MarkState, SalvageMark, read_mark
from pqbroker.storage.disk.offline import OfflineCell
from pqbroker.storage.engine import EngineError, IndexDamaged
from pqbroker.storage.engine_kinds import kind_of
from pqbroker.storage.ids import SYSTEM_CELL, CellId
from pqbroker.storage.quarantine import HELD_CURE

ROW_KINDS = (index_rows.ROW, index_rows.BLOB, index_rows.SEGMENT, index_rows.number_keys()[0][:1])
NUMBER_ROWS = (b"n", b"o")
INDEX_END = b"\xff"


async def examine(path: Path, pools: Mapping[str, Path], findings: Findings, expect: Callable[[int], None]) -> None:
    """Verify the cells at `path`, which nobody has open, and collect what is found. Changes nothing.

    `expect` gets the number of bytes of blobs to verify, cell after cell before the first of each is. Raises
    EngineError when the directory cannot be looked at as a whole: in use, not whole, of a newer version, its index
    damaged where every start needs it; EngineCannot when its engine has no such look.
    """
    expected = 0

    def expect_more(size: int) -> None:
        nonlocal expected
        expected += size
        expect(expected)

    kind = kind_of(str(path))
    with kind.look_into(path, pools) as system:
        known = await _examine_cell(system, findings, expect_more, Home())
    for cell in _other_cells(path, known):
        findings.cell = f"cell {cell}: "
        place = path / CELLS / str(cell)
        of_cell = {name: directory / CELLS / str(cell) for name, directory in pools.items()}
        try:
            with kind.look_into(place, of_cell) as beside:
                await _examine_cell(beside, findings, expect_more, Home(cell, known))
        except EngineError as cannot:
            record = known.cells.get(cell)
            if record is None or record.state is CellState.READY:
                findings.damage("cell", str(place), str(cannot))
            else:  # nothing was ever in it, or is any more
                what = "made" if record.state is CellState.CREATING else "removed"
                findings.harmless("cell", str(place), f"it is half {what}", "nothing: the next start goes on")
    findings.cell = ""
    owned = None if known.scheme is None else {tablet.tablet_id for tablet in known.scheme.owned_tablets()}
    for where, what, cure in findings.transactions.unfinished(owned):
        findings.harmless("transactions", where, what, cure)


def _other_cells(path: Path, known: Known) -> list[CellId]:
    """Cells beside the system cell: those that have a directory, that objects name, or that the hive has ready."""
    there = {CellId(int(place.name)) for place in path.glob(f"{CELLS}/*") if place.name.isdecimal()}
    named = {owned.cell for owned in (known.scheme.owned_tablets() if known.scheme else ())}
    ready = {record.cell for record in known.cells.values() if record.state is CellState.READY}
    return sorted((there | named | ready) - {SYSTEM_CELL})


async def _examine_cell(
    cell: OfflineCell, findings: Findings, expect: Callable[[int], None], home: Home
) -> Known:
    """Verify one cell; what it says of the node, or what is given with its home."""
    cell.listen(DamagedBlocks(findings).found)
    if cell.facts_damage is not None:
        told = findings.harmless if is_left_by_crash(cell.path) else findings.damage
        told("cell", str(cell.path), cell.facts_damage, "nothing: the next start writes it again")
    if cell.manifest_damage is not None:
        findings.damage("index", str(cell.path), cell.manifest_damage, "nothing: the next start writes it again")
    _tell_salvage(read_mark(cell.path), findings)
    _check_kinds(cell, findings)
    last_number = _last_number(cell, findings)
    rows = TabletRows(cell, findings)
    rows.load()
    blobs = StoredBlobs(cell, findings)
    expect(blobs.load(rows.records))
    blobs.check_owners(rows.records, rows.pools, rows.unreadable)
    known = await check_tablets(cell, rows, blobs, findings, home)
    blobs.check_leaks(rows.records)
    blobs.check_segments(last_number)
    blobs.verify_rest()
    return known


def _tell_salvage(mark: SalvageMark, findings: Findings) -> None:
    """Name what a salvage gave up, until it is accepted."""
    findings.skipped = mark.skipped
    if mark.state is not MarkState.ACCEPTED:
        for place, what in mark.places.items():
            findings.harmless("salvage", place, f"{what}; it is not accepted yet, so nothing is removed", HELD_CURE)


class DamagedBlocks:
    """Tells each part of the index that cannot be read once, however often it is met."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._places: set[str] = set()

    def found(self, place: str, cause: str) -> None:
        if place not in self._places:
            self._places.add(place)
            self._findings.damage("index", place, f"it cannot be read: {cause}", RESTORE)


def _last_number(cell: OfflineCell, findings: Findings) -> int:
    """The last commit's number; a hole before it is damage."""
    with suppress(IndexDamaged):  # told by the cell
        for _ in cell.rows(*NUMBER_ROWS):
            pass
    rows = cell.get(index_rows.number_keys())
    try:
        return index_rows.last_number(rows)
    except EngineError as lost:
        findings.damage("index", "commits", str(lost))
        return index_rows.newest_number(rows)


def _check_kinds(cell: OfflineCell, findings: Findings) -> None:
    """Check that every row is of a known kind, by jumps from kind to kind."""
    lo = b""
    for kind in (*sorted(ROW_KINDS), INDEX_END):
        with suppress(IndexDamaged):  # told by the cell
            for key, _ in cell.rows(lo, kind):
                findings.damage("index", f"row {key.hex()}", "a row of no known kind", "run the version that wrote it")
        lo = bytes((kind[0] + 1,)) if kind != INDEX_END else kind
