"""Names the sectors of a round that were written as zeros. A sector that a power cut left out reads as zeros too, but
is not named. Pure.

A round is bytes end to end that begin somewhere in a sector of 512 bytes; its sectors are counted from that one. A map:

    number of runs + 1 · for each run: sectors since the last one · its sectors    each as LEB128, never 0
    one byte 255 or more of them

No byte of a map is 0, so no sector of it reads as zeros unless it was left out, and no flipped bit makes it read so.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from struct import Struct
from typing import Final

from pqbroker.storage.engine import Buffer

SECTOR_BYTES: Final = 512
_ZEROS: Final = bytes(SECTOR_BYTES)
_CHUNK_BYTES: Final = 1 << 16
_ZERO_CHUNK: Final = bytes(_CHUNK_BYTES)
_LOOKS_MAX: Final = 200
"""Samples around which one looks before the whole is searched, which costs as much."""
_END: Final = b"\xff"
_SHORT: Final = [bytes((number,)) for number in range(128)]
"""Small numbers as LEB128: nearly all of a map, which may have thousands."""
Run = tuple[int, int]
"""Sectors that follow one another: the number of the first, and how many they are."""


def may_have_zero_sectors(rows: bytes, payload: Sequence[Buffer] = ()) -> bool:
    """Return True unless no sector of a round is zeros, wherever the round lies: its payload's buffers, and its rows.

    What lies between and before them, headers, is never zeros. The last sector may hold the end of the rows alone.
    """
    if not rows[-1] or (len(rows) >= SECTOR_BYTES and rows.find(_ZEROS) >= 0):
        return True
    return bool(payload) and _has_long_zeros(payload)


def find_zero_sectors(buffers: Sequence[Buffer], position: int) -> list[Run]:
    """The sectors that hold nothing of the round but zeros; `position`: where in its file the round begins."""
    runs: list[Run] = []
    first = position // SECTOR_BYTES
    for at, chunk in _aligned_chunks(buffers, position):
        sector = at // SECTOR_BYTES - first
        if chunk == _ZERO_CHUNK:
            _add(runs, sector, _CHUNK_BYTES // SECTOR_BYTES)
        elif chunk.find(_ZEROS) >= 0 or not chunk[-1] or at % SECTOR_BYTES:
            _find_in_chunk(runs, chunk, sector, at % SECTOR_BYTES)
    return runs


def _find_in_chunk(runs: list[Run], chunk: bytes, sector: int, skipped: int) -> None:
    """Add the zero sectors of a chunk that begins in `sector`, `skipped` bytes behind its beginning."""
    begin = -skipped % SECTOR_BYTES
    if begin:
        if not any(chunk[:begin]):
            _add(runs, sector, 1)
        sector += 1
    if len(chunk) <= begin:
        return
    whole = (len(chunk) - begin) // SECTOR_BYTES
    sectors = _forms(whole).unpack_from(chunk, begin)
    _add_each(runs, [number for number, content in enumerate(sectors, sector) if content == _ZEROS])
    rest = chunk[begin + whole * SECTOR_BYTES :]
    if rest and not any(rest):
        _add(runs, sector + whole, 1)


@cache
def _forms(sectors: int) -> Struct:
    """Cuts bytes into whole sectors, at most a chunk's."""
    return Struct(f"{SECTOR_BYTES}s" * sectors)


def encode_runs(runs: Iterable[Run], size: int = 0) -> bytes:
    """The map that names the runs, `size` bytes long at least."""
    listed = list(runs)
    numbers = [len(listed) + 1]
    behind = 0
    for start, count in listed:
        numbers += (start - behind, count)
        behind = start + count
    assert min(numbers) > 0
    encoded = b"".join([_SHORT[number] if number < len(_SHORT) else _leb128(number) for number in numbers])
    return encoded + _END * max(1, size - len(encoded))


def decode_runs(encoded: Buffer) -> list[Run]:
    """The runs that a map names. ValueError for bytes that `encode_runs` never wrote."""
    numbers = _numbers(bytes(encoded))
    runs: list[Run] = []
    behind = 0
    try:
        for _ in range(next(numbers) - 1):
            start = behind + next(numbers)
            behind = start + next(numbers)
            runs.append((start, behind - start))
    except StopIteration:
        raise ValueError(f"a map of zero sectors of {len(encoded)} bytes ends early") from None
    return runs


def _add_each(runs: list[Run], sectors: Sequence[int]) -> None:
    """Add sectors in their order: thousands of a large round."""
    if not sectors:
        return
    start, count = runs.pop() if runs else (sectors[0], 0)
    end = start + count
    for sector in sectors:
        if sector != end:
            runs.append((start, end - start))
            start = sector
        end = sector + 1
    runs.append((start, end - start))


def _add(runs: list[Run], sector: int, count: int) -> None:
    if runs and runs[-1][0] + runs[-1][1] == sector:
        runs[-1] = runs[-1][0], runs[-1][1] + count
    else:
        runs.append((sector, count))


def _aligned_chunks(buffers: Sequence[Buffer], position: int) -> Iterator[tuple[int, bytes]]:
    """The bytes in chunks that end where `_CHUNK_BYTES` of the file end, each with its position."""
    gathered: list[Buffer] = []
    room = _CHUNK_BYTES - position % _CHUNK_BYTES
    for buffer in buffers:
        view = memoryview(buffer)
        while len(view) >= room:
            gathered.append(view[:room])
            chunk = b"".join(gathered)
            yield position, chunk
            position += len(chunk)
            view, gathered, room = view[room:], [], _CHUNK_BYTES
        if len(view):
            gathered.append(view)
            room -= len(view)
    if gathered:
        yield position, b"".join(gathered)


def _has_long_zeros(buffers: Sequence[Buffer]) -> bool:
    """Return True if the buffers, end to end, hold a run of SECTOR_BYTES zeros.

    Such a run contains a sample, since one byte in SECTOR_BYTES is sampled. Other bytes are read only around a sample
    that is zero.
    """
    position = 0
    for buffer in buffers:
        view = memoryview(buffer)
        first = -position % SECTOR_BYTES
        samples = bytes(view[first::SECTOR_BYTES])
        if 0 in samples and _may_have_long_zeros(view, first, samples):
            return _are_found(buffers)
        position += len(view)
    return False


def _may_have_long_zeros(view: memoryview, first: int, samples: bytes) -> bool:
    """Return True unless no sample that is zero has as many zeros around it; at the view's ends it may continue
    elsewhere.

    `samples`: the view's bytes from `first` on, one of each sector's.
    """
    at, looks = -1, 0
    last = len(view) - 1
    while (at := samples.find(0, at + 1)) >= 0:
        position = first + at * SECTOR_BYTES
        if 0 < position < last and view[position - 1] and view[position + 1]:
            continue  # a zero by chance: one byte in 256 is one
        around = bytes(view[max(position - SECTOR_BYTES + 1, 0) : position + SECTOR_BYTES])
        looks += 1
        if looks > _LOOKS_MAX or len(around) < 2 * SECTOR_BYTES - 1 or around.find(_ZEROS) >= 0:
            return True
    return False


def _are_found(buffers: Sequence[Buffer]) -> bool:
    before = b""
    for _, chunk in _aligned_chunks(buffers, 0):
        joined = before + chunk if before else chunk
        if joined.find(_ZEROS) >= 0:
            return True
        before = joined[1 - SECTOR_BYTES :]
    return False


def _leb128(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _numbers(encoded: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in encoded:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0
