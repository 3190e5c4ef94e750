"""Drops tablets that nobody needs any more, in the background. What is interrupted is left to the next start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from pqbroker.storage.engine import CommitRefused, DiskFull, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.cell import Cell

_log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Time until what a full disk refused is tried again."""


class Reclaiming:
    """The tablets of one cell that are being dropped."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, tablets: Iterable[TabletId], forget: Callable[[], Awaitable[None]] | None = None) -> None:
        """Drop the tablets, then call `forget`."""
        task = asyncio.get_running_loop().create_task(self._drop(tablets, forget))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finished(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _drop(self, tablets: Iterable[TabletId], forget: Callable[[], Awaitable[None]] | None) -> None:
        try:
            for tablet_id in tablets:
                await _with_room(partial(self._cell.drop_tablet, tablet_id))
            if forget is not None:
                await _with_room(forget)
        except (CommitRefused, ShardLost) as refusal:
            _log.warning("the space of deleted tablets is reclaimed at the next start: %s", refusal)


async def _with_room(change: Callable[[], Awaitable[None]]) -> None:
    """Make a change, however long the disk has no room for it: what it frees is the room that others wait for."""
    is_told = False
    while True:
        try:
            return await change()
        except DiskFull as refusal:
            if not is_told:
                _log.warning("the space of deleted tablets is reclaimed once the disk has room: %s", refusal)
                is_told = True
            await asyncio.sleep(RETRY_S)
