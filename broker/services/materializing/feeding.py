"""Feeding of the sorted tables of a node: a feed for each materialization that is not paused, while the cells are open.

A look each second, and whenever one is asked for, begins the feeds that the scheme has, and ends those of records that
changed or of an opening that is over. Without any nothing is loaded.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.storage.tablets.scheme_objects import MATERIALIZATIONS
from pqbroker.tables.serving.share import WriteRate

if TYPE_CHECKING:
    from pqbroker.broker.services.materializing.fed_partitions import FedSpan
    from pqbroker.broker.services.materializing.feed import Feed
    from pqbroker.tables.serving.feed_progress import FeedProgress

FEEDS_LOOK_S: Final = 1.0
_log = logging.getLogger(__name__)


class PartsElsewhere(NamedTuple):
    """Parts of a materialization that other nodes run, as they have told last. `spans`: of partitions; `progress`: that
    of the first tablet, None: this node runs it."""

    spans: "Sequence[FedSpan]" = ()
    progress: "FeedProgress | None" = None


NOTHING_ELSEWHERE: Final = PartsElsewhere()


class FeedCounters:
    """Counters of all feeds since the start."""

    __slots__ = ("dead_letters", "records", "rows")

    def __init__(self) -> None:
        self.records = 0
        self.rows = 0
        self.dead_letters = 0


class FeedShare:
    """Things that the feeds of a node have in common. `slots`: held while records become rows."""

    __slots__ = ("counters", "elsewhere", "rate", "slots")

    def __init__(
        self, counters: FeedCounters, elsewhere: dict[bytes, PartsElsewhere], settings: BrokerSettings
    ) -> None:
        self.counters = counters
        self.elsewhere = elsewhere
        self.rate = WriteRate(settings.table_feed_rate)
        self.slots = asyncio.Semaphore(settings.table_feeds_max)


class Feeding:
    """Feeds of a node by the id of their table."""

    def __init__(self) -> None:
        self.feeds: dict[bytes, Feed] = {}
        self.counters = FeedCounters()
        self.elsewhere: dict[bytes, PartsElsewhere] = {}
        """Parts at other nodes by the id of the table, as of the last look."""
        self._share: FeedShare | None = None
        self._unreadable: dict[bytes, Any] = {}
        """Stored rows that no version wrote, by the id of the table."""
        self._wanted = asyncio.Event()

    def look_soon(self) -> None:
        """Look in the loop's next turn."""
        self._wanted.set()

    async def run(self, node: TablesNode) -> None:
        """Follow the scheme until the task is cancelled."""
        try:
            while True:
                self._wanted.clear()
                await self.look(node)
                await self._wait()
        finally:
            await self._end(list(self.feeds))

    async def look(self, node: TablesNode) -> None:
        """End the feeds that are over; begin those that are not begun."""
        opened = node.cell.current
        rows: Any = opened.scheme.rows(MATERIALIZATIONS)
        if not rows and not self.feeds:
            self.elsewhere.clear()
            return
        for table_id in [table_id for table_id in self.elsewhere if (table_id,) not in rows]:
            del self.elsewhere[table_id]
        wanted = {key[0]: row for key, row in rows.items() if not row.get("is_paused")}
        over = [
            table_id for table_id, feed in self.feeds.items()
            if feed.opened is not opened or feed.row is not wanted.get(table_id)
        ]  # fmt: skip
        await self._end(over)
        for table_id, row in wanted.items():
            if table_id not in self.feeds and self._unreadable.get(table_id) is not row:
                await self._begin(node, table_id, row)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FEEDS_LOOK_S):
                await self._wanted.wait()

    async def _begin(self, node: TablesNode, table_id: bytes, row: Any) -> None:
        try:
            record = MaterializationRecord.read(table_id, row)
        except ValueError as unreadable:
            self._unreadable[table_id] = row
            _log.error("%s; drop it and make it again", unreadable)
            return
        feeds = await asyncio.to_thread(_load)
        if self._share is None:
            self._share = FeedShare(self.counters, self.elsewhere, node.settings)
        feed: Feed = feeds.Feed(node, record, row, self._share)
        feed.start()
        self.feeds[table_id] = feed

    async def _end(self, table_ids: list[bytes]) -> None:
        feeds = [self.feeds.pop(table_id) for table_id in table_ids]
        await asyncio.gather(*(feed.stop() for feed in feeds))


def _load() -> Any:
    from pqbroker.broker.services.materializing import feed

    return feed
