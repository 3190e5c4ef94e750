"""Tells glibc's allocator to keep freed memory for the next request. Not an allocator; elsewhere it does nothing.

By default a freed buffer of 128 KiB or more goes back to the system, and the next request pays for fresh zeroed
pages: 58 µs for 128 KiB instead of 1.4 (measured), which is more than all else that a Produce of it costs the loop.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_BYTES = 512 << 20
"""Larger blocks only come from mmap and go back when freed."""
_TRIM_BYTES = 64 << 20
"""More than this free at the heap's end goes back."""


def keep_freed_memory() -> None:
    """One heap for all threads, which keeps up to 64 MiB free at its end."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_M_ARENA_MAX, 1)
