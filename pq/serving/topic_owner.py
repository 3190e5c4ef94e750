"""A topic as the owner of its tablets: what a move of one of them asks."""

import asyncio
from collections.abc import Callable

from pqbroker.pq.serving.tablet import PqTablet
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_topics import TopicChanges


class TopicOwner:
    """A `TabletOwner`. `find` gives the topic of a name that is served now, static or not."""

    def __init__(
        self, topic: Topic, records: TopicChanges, changes: asyncio.Lock, find: Callable[[str], Topic | None]
    ) -> None:
        self._topic = topic
        self._records = records
        self.changes = changes
        self._find = find

    @property
    def name(self) -> str:
        return self._topic.record.name

    @property
    def owner_id(self) -> str:
        return self._topic.record.topic_id.hex()

    def home_of(self, tablet_id: TabletId) -> CellId | None:
        topic = self._topic
        if self._find(self.name) is not topic or tablet_id not in topic.tablets:
            return None
        return topic.record.home_of(tablet_id)

    def tablet(self, tablet_id: TabletId) -> PqTablet | None:
        return self._topic.tablets.get(tablet_id)

    async def name_home(self, tablet_id: TabletId, cell: CellId) -> None:
        await self._records.change(self.name, lambda known: known.moved(tablet_id, cell))
        # The scheme may know more than is served: a growth whose taking back was refused too.
        self._topic.record = self._topic.record.moved(tablet_id, cell)
