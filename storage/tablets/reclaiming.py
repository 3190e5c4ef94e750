"""Drops tablets that nobody needs any more, in the background. What is interrupted is left to the next start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.cell import Cell

_log = logging.getLogger(__name__)


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
                await self._cell.drop_tablet(tablet_id)
            if forget is not None:
                await forget()
        except (CommitRefused, ShardLost) as refusal:
            _log.warning("the space of deleted tablets is reclaimed at the next start: %s", refusal)
