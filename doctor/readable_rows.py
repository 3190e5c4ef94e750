"""The rows of many tablets in order, those of a damaged block passed over: each costs the tablets whose keys it has."""

from collections.abc import Callable, Iterable, Iterator

from pqbroker.storage.disk.offline import OfflineCell
from pqbroker.storage.engine import IndexDamaged


def readable_rows(
    cell: OfflineCell, prefix: bytes, tablets: Iterable[int], skip: Callable[[int | None], None]
) -> Iterator[tuple[bytes, bytes]]:
    """Rows whose keys begin with `prefix` and a tablet's id.

    Where one cannot be read `skip` is called with its tablet (None: between those in `tablets`), whose other rows
    behind it are passed over. The block itself is reported by the cell.
    """
    lo = prefix
    for tablet in sorted(tablets):
        first, following = prefix + tablet.to_bytes(8, "big"), prefix + (tablet + 1).to_bytes(8, "big")
        yield from _readable(cell, lo, first, None, skip)
        yield from _readable(cell, first, following, tablet, skip)
        lo = following
    yield from _readable(cell, lo, prefix[:-1] + bytes((prefix[-1] + 1,)), None, skip)


def _readable(
    cell: OfflineCell, lo: bytes, hi: bytes, tablet: int | None, skip: Callable[[int | None], None]
) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield from cell.rows(lo, hi)
    except IndexDamaged:
        skip(tablet)
