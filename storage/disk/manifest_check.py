"""The manifest of the index, which RocksDB writes in the form of its logs: can all of it be read?

A file of this form is blocks of 32 KiB; a write is one fragment or several, none of which spans two blocks:
    crc32c u32, masked · length u16 · kind u8 (1 all of a write, 2 first, 3 middle, 4 last) · payload    little-endian
"""

import re
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.engine import IndexDamaged

_BLOCK_BYTES = 32_768
_HEADER = Struct("<IHB")
_CHECKED_FROM = 6
_ALL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_RECYCLED = frozenset((*range(5, 9), 11))
"""Kinds of fragments in files that are written over again, which RocksDB does with none of ours."""
_MAY_BEGIN = re.compile(b"[\x01\x02]")
_MASK = 0xA282EAD8


class _Fragment(NamedTuple):
    kind: int
    end: int


def is_damaged(log: bytes) -> bool:
    """Return True if a manifest has an unreadable write: other than a last one whose end was never written. A length
    that is too large is taken by RocksDB for such a one, with all behind it.
    """
    position = _first_unreadable(log)
    if position is None:
        return False
    is_in_last_block = position - position % _BLOCK_BYTES + _BLOCK_BYTES >= len(log)
    return not is_in_last_block or _begins_behind(log, position) or _matches(log, position, len(log))


def is_whole(log: bytes) -> bool:
    """Return True if every write of a manifest can be read, and there is one."""
    return bool(log) and _unreadable_from(log) is None


def check_manifest(index: Path) -> None:
    """IndexDamaged for a manifest at which RocksDB would read for ever: before it opens the index.

    RocksDB 9 never ends where a fragment is of a kind that only a file which is written over again has.
    """
    try:
        manifest = index / (index / "CURRENT").read_text("ascii").strip()
        log = manifest.read_bytes()
    except (OSError, ValueError):  # RocksDB says what is wrong
        return
    position = _first_unreadable(log)
    if position is None or position + _HEADER.size > len(log):
        return
    if log[position + _CHECKED_FROM] in _RECYCLED:
        raise IndexDamaged(f"the index is damaged: {manifest} has an entry of a wrong kind at byte {position}")


def _first_unreadable(log: bytes) -> int | None:
    """Return where the first unreadable fragment begins; None when all are readable."""
    position = 0
    while position < len(log):
        room = _BLOCK_BYTES - position % _BLOCK_BYTES
        if room >= _HEADER.size:
            fragment = _fragment(log, position)
            if fragment is None:
                return position
            position = fragment.end
        else:
            position += room
    return None


def _unreadable_from(log: bytes) -> int | None:
    """Return where the first unreadable write begins; None when all are readable."""
    position = begin = 0
    is_within = False
    while position < len(log):
        room = _BLOCK_BYTES - position % _BLOCK_BYTES
        if room < _HEADER.size:
            position += room
            continue
        if not is_within:
            begin = position
        fragment = _fragment(log, position)
        if fragment is None or (fragment.kind in (_MIDDLE, _LAST)) is not is_within:
            return begin
        is_within = fragment.kind in (_FIRST, _MIDDLE)
        position = fragment.end
    return begin if is_within else None


def _begins_behind(log: bytes, begin: int) -> bool:
    """Return True if another write begins behind that at `begin`, wherever it may be: no length there is trusted."""
    kinds = _MAY_BEGIN.finditer(log, begin + _HEADER.size)
    return any(_fragment(log, kind.start() - _CHECKED_FROM) is not None for kind in kinds)


def _fragment(log: bytes, position: int) -> _Fragment | None:
    """Return the fragment at a position; None if the position has none that is whole."""
    limit = min(len(log), position - position % _BLOCK_BYTES + _BLOCK_BYTES)
    if position + _HEADER.size > limit:
        return None
    _, length, kind = _HEADER.unpack_from(log, position)
    end = position + _HEADER.size + length
    if not _ALL <= kind <= _LAST or end > limit:
        return None
    return _Fragment(kind, end) if _matches(log, position, end) else None


def _matches(log: bytes, position: int, end: int) -> bool:
    """Return True if the bytes from `position` to `end` are a fragment by their checksum."""
    if position + _HEADER.size > end:
        return False
    (masked, _, _) = _HEADER.unpack_from(log, position)
    checksum = crc32c(memoryview(log)[position + _CHECKED_FROM : end])
    return bool(((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF == masked)
