"""Producer ids, from blocks that the scheme has made durable: an id is never given twice, restarts included.

A node has a block of its own, and asks for the next one where the scheme is: `allocate` there, in this process or over
a link. A block that is lost on its way is given to nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pqbroker.storage.tablets.scheme import PRODUCER_IDS_PER_BLOCK, Scheme

PRODUCER_ID_MAX = (1 << 63) - 1
"""Largest id on the wire."""


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The answer to a node that asks for producer ids: `count` of them from `first` on."""

    first: int
    count: int

    def ids(self) -> range:
        """Return the ids. ValueError for a block that no scheme gives."""
        if not (0 <= self.first <= PRODUCER_ID_MAX - self.count and 0 < self.count <= PRODUCER_IDS_PER_BLOCK):
            raise ValueError(f"{self.count} producer ids from {self.first} on: there is no such block")
        return range(self.first, self.first + self.count)


async def allocate(scheme: Scheme) -> ProducerIdBlock:
    """Give a node a block of its own, durably. CommitRefused, ShardLost."""
    block = await scheme.producer_id_block()
    return ProducerIdBlock(block.start, len(block))


class ProducerIds:
    """The ids of one node. They come from memory while the block lasts; then one caller asks for the next block and the
    others wait for it. `ask` performs `allocate` where the scheme is, and raises as it does."""

    def __init__(self, ask: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._ask = ask
        self._block = range(0)
        self._refilling = asyncio.Lock()

    def take(self) -> int | None:
        """The next id, or None when the block is used up."""
        if not self._block:
            return None
        taken, self._block = self._block[0], self._block[1:]
        return taken

    async def take_from_next_block(self) -> int:
        """Return the next id, of the next block where this one is used up. Raises as `allocate`; ValueError."""
        async with self._refilling:
            if not self._block:
                self._block = (await self._ask()).ids()
        taken = self.take()
        return taken if taken is not None else await self.take_from_next_block()
