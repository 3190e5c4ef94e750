"""The whole check-up of a stopped cell, from its index down to the records in its blobs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pqbroker.broker.doctor.findings import RESTORE, Findings
from pqbroker.broker.doctor.stored_blobs import StoredBlobs
from pqbroker.broker.doctor.tablet_rows import TabletRows
from pqbroker.broker.doctor.tablets import check_tablets
from pqbroker.storage import indexrows
from pqbroker.storage.engine import EngineError, IndexDamaged
from pqbroker.storage.offline import OfflineCell, look_into

ROW_KINDS = (indexrows.ROW, indexrows.BLOB, indexrows.SEGMENT, indexrows.number_keys()[0][:1])
NUMBER_ROWS = (b"n", b"o")
INDEX_END = b"\xff"


async def examine(path: Path, pools: Mapping[str, Path], findings: Findings, expect: Callable[[int], None]) -> None:
    """Verify the cell at `path`, which nobody has open, and collect what is found. Changes nothing.

    `expect` is told how many bytes of blobs there are to verify, before the first is. Raises EngineError when the
    directory cannot be looked at as a whole: in use, not whole, of a newer version, its index damaged
    where every start needs it.
    """
    with look_into(path, pools) as cell:
        cell.listen(DamagedBlocks(findings).found)
        _check_kinds(cell, findings)
        last_number = _last_number(cell, findings)
        rows = TabletRows(cell, findings)
        rows.load()
        blobs = StoredBlobs(cell, findings)
        expect(blobs.load(rows.records))
        blobs.check_owners(rows.records, rows.pools, rows.unreadable)
        await check_tablets(cell, rows, blobs, findings)
        blobs.check_leaks(rows.records)
        blobs.check_segments(last_number)
        blobs.verify_rest()


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
    rows = cell.get(indexrows.number_keys())
    try:
        return indexrows.last_number(rows)
    except EngineError as lost:
        findings.damage("index", "commits", str(lost))
        return max(int.from_bytes(row or b"", "big") for row in rows)


def _check_kinds(cell: OfflineCell, findings: Findings) -> None:
    """No row but of the kinds that are known; looked up by jumps from kind to kind."""
    lo = b""
    for kind in (*sorted(ROW_KINDS), INDEX_END):
        with suppress(IndexDamaged):  # told by the cell
            for key, _ in cell.rows(lo, kind):
                findings.damage("index", f"row {key.hex()}", "a row of no known kind", "run the version that wrote it")
        lo = bytes((kind[0] + 1,)) if kind != INDEX_END else kind
