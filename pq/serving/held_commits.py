"""Commits of offsets that are held back for a moment: their partitions are on the way from one node to another.

Clients see a slow answer then. A refusal would reach their programs: librdkafka retries one commit a few times only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

HELD_S: Final = 5.0
"""Seconds that a commit is held at most. Heartbeats of the client may wait behind it on their connection: this is less
than the shortest session that a group has by default."""
_LOOK_S: Final = 0.02

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""


class HeldCommits:
    """Commits by group, in the order in which they came. `is_awaited`: returns True for a partition whose offsets are
    not known yet, and will be."""

    def __init__(self, is_awaited: Callable[[TopicPartition], bool]) -> None:
        self._is_awaited = is_awaited
        self._last: dict[str, asyncio.Future[None]] = {}
        """The commit of each group that came last, of those that are held; resolves when that is enqueued."""

    def must_wait(self, group_id: str, partitions: Collection[TopicPartition]) -> bool:
        """Return True if a commit is to be held: for its partitions, or behind an earlier one of its group."""
        return group_id in self._last or any(map(self._is_awaited, partitions))

    @asynccontextmanager
    async def held(self, group_id: str, partitions: Collection[TopicPartition]) -> AsyncIterator[None]:
        """Enter the block once the offsets are known, or after `HELD_S`; it enqueues the commit. Blocks of one group
        are entered in the order of the calls."""
        loop = asyncio.get_running_loop()
        before, enqueued = self._last.get(group_id), loop.create_future()
        self._last[group_id], until = enqueued, loop.time() + HELD_S
        try:
            if before is not None:
                await asyncio.wait([before])
            while any(map(self._is_awaited, partitions)) and loop.time() < until:  # noqa: ASYNC110 (many events)
                await asyncio.sleep(_LOOK_S)
            yield
        finally:
            enqueued.set_result(None)
            if self._last[group_id] is enqueued:
                del self._last[group_id]
