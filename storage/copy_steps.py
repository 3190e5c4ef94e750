"""Steps of the copies of the cells of one backup: each waits for the others before its moment, and behind it.

    begun      the index is copied             may_take  all have begun
    taken      the moment is taken             may_end   all moments are taken
"""

import asyncio
from typing import Any, NamedTuple, Protocol


class CopySteps:
    """Steps of the copy of one cell. The copy sets `begun` and `taken`, the backup the other two."""

    __slots__ = ("begun", "may_end", "may_take", "taken")

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_take = asyncio.Event()
        self.taken = asyncio.Event()
        self.may_end = asyncio.Event()


class CopiedBytes(NamedTuple):
    """Figures of one copy: files, and bytes that were linked and copied."""

    files: int
    linked_bytes: int
    copied_bytes: int


class CellElsewhere(Protocol):
    """A cell that another process of the broker has open."""

    async def copy(self, name: str, steps: CopySteps) -> CopiedBytes:
        """Have the cell copied into the backup of this name, which this process makes. BackupRefused."""


async def reach(step: asyncio.Event, copy: "asyncio.Task[Any]") -> None:
    """Return when a copy has reached a step; raise what it failed with before."""
    waiting = asyncio.ensure_future(step.wait())
    ends: list[asyncio.Future[Any]] = [waiting, copy]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if not step.is_set():
        await copy
