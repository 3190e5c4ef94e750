"""Producer ids, from blocks that the scheme has made durable: an id is never given twice, restarts included."""

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """Ids come from memory while the block lasts; then one caller fetches the next and the others wait for it."""

    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        self._next_block = next_block
        self._block = range(0)
        self._refilling = asyncio.Lock()

    def take(self) -> int | None:
        """The next id, or None when the block is used up."""
        if not self._block:
            return None
        taken, self._block = self._block[0], self._block[1:]
        return taken

    async def take_from_next_block(self) -> int:
        async with self._refilling:
            if not self._block:
                self._block = await self._next_block()
        taken = self.take()
        return taken if taken is not None else await self.take_from_next_block()
