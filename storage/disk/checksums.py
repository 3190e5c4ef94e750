"""crc32c of the 32 KiB pages of a blob: computed page by page where they are written, compared all at once where read.

The checksum of bytes end to end follows from those of its parts: a part's checksum is pushed on by a linear map that
knows only the length of what comes behind it (zlib's crc32_combine; Mark Adler). For one length, a page, the map is
four tables of 256 words, so that a mebibyte takes one call, which lets the interpreter lock go, instead of 32 under it.
"""

from collections.abc import Sequence

from crc32c import crc32c

from pqbroker.storage.engine import Buffer

SEGMENT_PAGE_BYTES = 32_768
_KEEP_LOCK = 0
"""A page takes 3 µs; giving the interpreter lock away and getting it back takes more (10 % of a reader's CPU)."""
_LET_LOCK_GO = 1


def page_count(size: int) -> int:
    return (size + SEGMENT_PAGE_BYTES - 1) // SEGMENT_PAGE_BYTES


def page_checksums(buffers: Sequence[Buffer]) -> list[int]:
    """crc32c of every page of the buffers end to end; pages run across buffers."""
    checksums = []
    checksum, room = 0, SEGMENT_PAGE_BYTES
    for buffer in buffers:
        size = len(buffer)
        if size < room:
            checksum = crc32c(buffer, checksum, _KEEP_LOCK)
            room -= size
            continue
        view, position = memoryview(buffer), 0
        while size - position >= room:
            checksums.append(crc32c(view[position : position + room], checksum, _KEEP_LOCK))
            position += room
            checksum, room = 0, SEGMENT_PAGE_BYTES
        if position < size:
            checksum = crc32c(view[position:], 0, _KEEP_LOCK)
            room -= size - position
    if room < SEGMENT_PAGE_BYTES:
        checksums.append(checksum)
    return checksums


def first_wrong_page(pages: memoryview, wanted: Sequence[int]) -> int | None:
    """The number of the first page whose checksum is not the wanted one; None when all are right."""
    whole = len(pages) // SEGMENT_PAGE_BYTES
    if whole > 1 and crc32c(pages[: whole * SEGMENT_PAGE_BYTES], 0, _LET_LOCK_GO) == _end_to_end(wanted[:whole]):
        whole_are_right = whole
    else:
        whole_are_right = 0
    for number in range(whole_are_right, len(wanted)):
        page = pages[number * SEGMENT_PAGE_BYTES : (number + 1) * SEGMENT_PAGE_BYTES]
        if crc32c(page, 0, _KEEP_LOCK) != wanted[number]:
            return number
    return None


def _end_to_end(checksums: Sequence[int]) -> int:
    """The checksum of whole pages end to end, from theirs."""
    low, lower_middle, upper_middle, high = _PAST_A_PAGE
    joined = 0
    for checksum in checksums:
        joined = (
            low[joined & 255]
            ^ lower_middle[joined >> 8 & 255]
            ^ upper_middle[joined >> 16 & 255]
            ^ high[joined >> 24]
            ^ checksum
        )
    return joined


def _past_a_page() -> tuple[list[int], ...]:
    """Return what a checksum becomes when a page of zeros follows, less that page's own: by each of its four bytes,
    lowest first."""
    zeros = bytes(SEGMENT_PAGE_BYTES)
    own = crc32c(zeros)
    by_bit = [crc32c(zeros, 1 << bit) ^ own for bit in range(32)]
    tables: tuple[list[int], ...] = ([0], [0], [0], [0])
    for bit, moved in enumerate(by_bit):
        table = tables[bit // 8]
        table += [known ^ moved for known in table]
    return tables


_PAST_A_PAGE = _past_a_page()
