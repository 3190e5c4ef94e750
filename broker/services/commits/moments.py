"""Moments at which several tables and topics are read as one: none of their transactions is visible in a part of them.

    quiet      begin                quiet, one under way
    quiet      take: none under way taken: who begins waits until it is over
    quiet      take: some under way waits, and so does who begins; after a limit it is refused

Names of tables and topics tell which transactions a reader has to do with.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from pqbroker.tables.refusals import TableError


class Moments:
    """The moments of one opening of the node's cells. `limit_s`: seconds that a reader waits at most."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._under_way: dict[object, frozenset[str]] = {}
        """Names that a transaction writes to, from its begin until it is visible everywhere."""
        self._taken: dict[object, frozenset[str]] = {}
        self._changed: asyncio.Event | None = None
        """Set with the next end of either, where somebody waits for it."""

    async def begin(self, names: Collection[str]) -> object:
        """Return what `end` takes, once no moment of these names is being taken."""
        wanted, token = frozenset(names), object()
        while any(wanted & some for some in self._taken.values()):
            await self._change()
        self._under_way[token] = wanted
        return token

    def end(self, token: object) -> None:
        """A transaction is visible everywhere, or will be nowhere."""
        del self._under_way[token]
        self._tell()

    @asynccontextmanager
    async def take(self, names: Collection[str]) -> AsyncIterator[None]:
        """Hold a moment for the block, at which no transaction over these names is visible in a part. TableError
        ROW_LOCKED after `limit_s`."""
        wanted, token = frozenset(names), object()
        self._taken[token] = wanted
        try:
            await self._until_quiet(wanted)
            yield
        finally:
            del self._taken[token]
            self._tell()

    async def _until_quiet(self, wanted: frozenset[str]) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                while any(wanted & some for some in self._under_way.values()):
                    await self._change()
        except TimeoutError:
            text = f"a transaction over {', '.join(sorted(wanted))[:200]} is not visible everywhere after"
            cure = "Try again, or read one table or topic in a query; GET /v1/cells shows cells that are not open."
            raise TableError("ROW_LOCKED", f"{text} {self._limit_s:g} s", cure) from None

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()
