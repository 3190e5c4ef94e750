"""Work on this node's tablets of tables for the first one, over the peer link: begun by one question, asked for again
until it is done, so that no question waits for long.
"""

import asyncio
import logging
from typing import Any, Final

from pqbroker.broker.node.parts import Node
from pqbroker.broker.peers.peer_methods import WORK_GOES_ON
from pqbroker.broker.services.sorted_tables.tablets_here import follow_scheme_again, work_here
from pqbroker.broker.services.tables.partitions_here import follow_scheme, work_on_partitions
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.tables.refusals import TableError

log = logging.getLogger(__name__)

WORK_WAIT_S: Final = 5.0
"""Seconds that the end of some work is waited for, before the first node has to ask again."""
WORKS_MAX: Final = 1000
"""Works that are under way, or whose end the first node has not asked for."""
_UNASKED_S: Final = 60.0
"""Seconds that the outcome of some work is kept."""


class ServedTablets:
    """Works by the numbers that the first node gave them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._works: dict[int, asyncio.Task[Any]] = {}
        self._following: asyncio.Task[None] | None = None

    async def answer(self, asked: Any) -> Any:
        """Return what came of some work, or that it is not done. ValueError for what is none."""
        try:
            number, head = asked
            work = self._works.get(number) or self._begin(int(number), dict(head))
        except (LookupError, TypeError, ValueError) as bad:
            raise _no_work(bad) from None
        await asyncio.wait((work,), timeout=WORK_WAIT_S)
        if not work.done():
            return WORK_GOES_ON
        self._works.pop(number, None)
        try:
            return work.result()
        except (LookupError, TypeError, ValueError) as bad:
            log.warning("work on tablets that the first node asks for is not done", exc_info=bad)
            raise _no_work(bad) from None

    def close(self) -> None:
        """The first node is gone: its works end by themselves, and tablets follow the scheme."""
        ending, self._works = list(self._works.values()), {}
        self._following = asyncio.get_running_loop().create_task(self._follow(ending))

    def _begin(self, number: int, head: dict[str, Any]) -> "asyncio.Task[Any]":
        if len(self._works) >= WORKS_MAX:
            raise ValueError(f"{WORKS_MAX} works are under way")
        loop = asyncio.get_running_loop()
        work = self._works[number] = loop.create_task(self._run(head))
        work.add_done_callback(lambda _: loop.call_later(_UNASKED_S, self._works.pop, number, None))
        return work

    async def _run(self, head: dict[str, Any]) -> Any:
        try:
            opened = self._node.cell.current
            if "topic" in head:
                await work_on_partitions(opened.topics, head)
                return {"told": None}
            return {"told": await work_here(opened.sorted_tables, head)}
        except TableError as error:
            return {"error": [error.code, error.message, error.cure]}
        except (CommitRefused, ShardLost) as refused:
            return {"refused": str(refused)}

    async def _follow(self, ending: "list[asyncio.Task[Any]]") -> None:
        if ending:
            await asyncio.wait(ending)
        try:
            follow_scheme(self._node.cell.current.topics)
            await follow_scheme_again(self._node.cell.current.sorted_tables)
        except (CommitRefused, ShardLost) as refused:
            log.warning("sorted tablets follow the scheme later: %s", refused)


def _no_work(bad: Exception) -> ValueError:
    return ValueError(f"work on tablets was expected: {bad!r}")
