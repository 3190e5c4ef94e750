"""Walk over the rows of RocksDB, between two keys. rocksdict 0.3.29 heeds no lower bound, and ends at a block that is
unreadable as at the last row."""

from collections.abc import Iterator
from itertools import takewhile
from typing import cast

from rocksdict import Rdict, ReadOptions

from pqbroker.storage.disk.index import TellsDamage


def walk(
    rows: Rdict, telling: TellsDamage, lo: bytes, hi: bytes, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Rows with lo <= key < hi as they were at the call, in order or from the end. The walk raises IndexDamaged."""
    below = ReadOptions()
    below.set_iterate_upper_bound(hi)
    items = rows.items(backwards=reverse, from_key=hi if reverse else lo, read_opt=below)
    found = _all_of(cast("Iterator[tuple[bytes, bytes]]", items), rows, telling, (lo, hi), reverse=reverse)
    return takewhile(lambda item: item[0] >= lo, found) if reverse else found


def _all_of(
    items: Iterator[tuple[bytes, bytes]],
    rows: Rdict,
    telling: TellsDamage,
    bounds: tuple[bytes, bytes],
    *,
    reverse: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """The items; IndexDamaged where they ended at a block that cannot be read.

    Keeps the upper bound while they are walked: RocksDB points at its bytes, and ends elsewhere once they are free.
    """
    lo, hi = bounds
    last = hi if reverse else lo
    for item in items:
        last = item[0]
        yield item
    del items  # an error's frames would keep it, and it the whole index open
    with telling:
        _walk_on(rows, last, hi, reverse=reverse)


def _walk_on(rows: Rdict, last: bytes, hi: bytes, *, reverse: bool) -> None:
    """Walk from a key to where rows end; RocksDB's error when they end at a block that cannot be read."""
    below = ReadOptions()
    below.set_iterate_upper_bound(hi)
    walk = rows.iter(below)
    seek, step = (walk.seek_for_prev, walk.prev) if reverse else (walk.seek, walk.next)
    seek(last)
    while walk.valid():
        step()
    walk.status()
