"""Read and ReadRange of a KV tablet, bounded in bytes, with what is to be known of each value (spec B.1).

What is answered was all durable at one moment, which comes after the call. Broker code that bounds its reads itself
goes to `KeyValueTablet.read`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.changing_values import read_unchanged
from pqbroker.storage.kv.commands import KeyRange, ValueChanged
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet

KV_READ_BYTES_MAX = 32 << 20
"""One answer's bytes; a call may ask for less, not for more."""
PAIR_BYTES = 32
"""Counted for each pair of a ReadRange on top of its key, and of its value if that is asked for."""


class Status(Enum):
    """The end of an answer. NODATA: there is no such key; OVERRUN: there is more than the limit lets through."""

    OK = "ok"
    NODATA = "nodata"
    OVERRUN = "overrun"


@dataclass(frozen=True, slots=True)
class Value:
    """A Read's answer: the buffers end to end are the bytes asked for, or at OVERRUN the first of them."""

    status: Status
    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Pair:
    """A key of a ReadRange; `size` in bytes, `created_ms` since 1970, `channel` where the value is (or INLINE).

    OVERRUN: the value alone is over the limit, so it is left out; a Read gets it piece by piece.
    """

    key: bytes
    size: int
    created_ms: int
    channel: int
    status: Status
    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Page:
    """A ReadRange's answer: whole pairs in key order. OVERRUN: continue behind the last key, which is not included."""

    status: Status
    pairs: Sequence[Pair]


async def read_value(
    tablet: KeyValueTablet, key: bytes, offset: int = 0, size: int = 0, *, bytes_max: int = KV_READ_BYTES_MAX
) -> Value:
    """Bytes [offset, offset + size) of a value, to its end when `size` is 0. Raises BlobCorrupt, ShardLost."""
    while True:
        entry = tablet.entry(key)
        if entry is None:
            return Value(Status.NODATA, ())
        rest = max(entry.size - offset, 0)
        wanted = min(size or rest, rest)
        taken = min(wanted, bytes_max, KV_READ_BYTES_MAX)
        if not taken:
            return Value(Status.OK if not wanted else Status.OVERRUN, ())
        try:
            (buffers,) = await read_unchanged(tablet, [(key, entry)], [(key, offset, taken)])
        except ValueChanged:
            continue
        return Value(Status.OK if wanted == taken else Status.OVERRUN, buffers)


async def read_range(
    tablet: KeyValueTablet, within: KeyRange | None, *, with_values: bool = False, bytes_max: int = KV_READ_BYTES_MAX
) -> Page:
    """The keys of a range (None: all) up to the limit, at least one. KeyValueError, BlobCorrupt, ShardLost."""
    limit = min(bytes_max, KV_READ_BYTES_MAX)
    while True:
        found, status = _gather(tablet, within, with_values, limit)
        read = [(key, entry) for key, entry in found if with_values and entry.size <= limit]
        try:
            values = await read_unchanged(tablet, read, [(key, 0, 0) for key, _ in read])
        except ValueChanged:
            continue
        contents = {key: value for (key, _), value in zip(read, values, strict=True)}
        return Page(status, [_pair(key, entry, with_values, contents.get(key)) for key, entry in found])


async def read_pairs(tablet: KeyValueTablet, within: KeyRange) -> AsyncIterator[Pair]:
    """Every key of a range with its value (but one over the limit), page after page: behind an OVERRUN it continues."""
    while True:
        page = await read_range(tablet, within, with_values=True)
        for pair in page.pairs:
            yield pair
        if page.status is not Status.OVERRUN:
            return
        within = replace(within, lo=page.pairs[-1].key, include_lo=False)


def _gather(
    tablet: KeyValueTablet, within: KeyRange | None, with_values: bool, limit: int
) -> tuple[list[tuple[bytes, Entry]], Status]:
    """The pairs of one page."""
    found: list[tuple[bytes, Entry]] = []
    taken = 0
    for key, entry in tablet.keys_within(within):
        taken += PAIR_BYTES + len(key) + (entry.size if with_values else 0)
        if found and taken > limit:
            return found, Status.OVERRUN
        found.append((key, entry))
    return found, Status.OK if found else Status.NODATA


def _pair(key: bytes, entry: Entry, with_values: bool, value: Sequence[Buffer] | None) -> Pair:
    status = Status.OVERRUN if with_values and value is None else Status.OK
    return Pair(key, entry.size, entry.created_ms, entry.channel, status, value or ())
