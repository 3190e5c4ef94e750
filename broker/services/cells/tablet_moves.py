"""Moves tablets of topics from one cell of the node to another while they are served.

    copied, then what changed meanwhile -> held: writes wait -> blocked in its cell, the rest copied
        -> the scheme names the other cell: one commit, which decides -> started there with what waits
        -> refused, or either cell lost before that: it continues where it was, and the copy is removed

A copy that a crash leaves is removed when its cell is opened, since no topic has it there.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pqbroker.pq.serving.tablet import PqTablet
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.kv.tablet_copy import TabletCopy
from pqbroker.storage.quarantine import Quarantined
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_state import TopicRecord

MOVE_ATTEMPTS_MAX = 5
"""A tablet that is restarted while it is copied is copied again."""
_PASSES = 2
"""Before writes wait: the second one takes what came during the first, so that they wait for little."""


class TabletMoves:
    """Moves of tablets in one opening of the node's cells."""

    def __init__(self, scheme: Scheme, topics: Topics, cells: OpenCells) -> None:
        self._scheme = scheme
        self._topics = topics
        self._cells = cells

    async def move(self, topic: Topic, tablet_id: TabletId, cell: CellId) -> None:
        """Have a topic's tablet live in another open cell; nothing to do where it does, or is gone. Not to be
        cancelled.

        BundleRefused: one of the cells is not open, or the tablet cannot be read; CommitRefused, ShardLost.
        """
        for _ in range(MOVE_ATTEMPTS_MAX):
            is_gone = self._topics.get(topic.record.name, or_static=True) is not topic or tablet_id not in topic.tablets
            if is_gone or _home_of(topic.record, tablet_id) == cell:
                return
            try:
                if await self._try(topic, tablet_id, cell):
                    return
            except (BlobCorrupt, BlobMissing, Quarantined) as damage:
                text = f"tablet {tablet_id} of {topic.record.name} cannot be copied: {damage}"
                raise BundleRefused(text) from damage
        raise BundleRefused(f"tablet {tablet_id} of {topic.record.name} is restarted again and again; try again later")

    async def _try(self, topic: Topic, tablet_id: TabletId, cell: CellId) -> bool:
        """False: the tablet was restarted, moved or removed meanwhile."""
        home, target = self._open(_home_of(topic.record, tablet_id)), self._open(cell)
        home.cell.quarantine.check_held()
        tablet, moved = topic.tablets[tablet_id], home.cell.tablets()[tablet_id]
        await _clear(target, tablet_id)
        try:
            owner = topic.record.topic_id.hex()
            await target.cell.create_tablets([(tablet_id, moved.type, owner)], moved.generation + 2)
            copy = TabletCopy(tablet.kv, target.cell.storage(tablet_id))
            for _ in range(_PASSES):
                await copy.follow()
        except BaseException:
            target.reclaim([tablet_id])
            raise
        async with self._topics.changes:
            is_same = topic.tablets.get(tablet_id) is tablet and home.tablet(tablet_id) is tablet
            if not is_same or home.cell.tablets()[tablet_id].generation != moved.generation:
                target.reclaim([tablet_id])
                return False
            await tablet.hold()
            record = await self._decide(topic, tablet, copy, _Move(tablet_id, home, target, cell))
            topic.record = record
            home.let_go(tablet_id)
            home.reclaim([tablet_id])
            await target.start(tablet_id, tablet, self._topics.changes, tablet.lose)
        return True

    async def _decide(self, topic: Topic, tablet: PqTablet, copy: TabletCopy, move: "_Move") -> TopicRecord:
        """Copy the rest of a tablet whose writes wait, and have the scheme name its new cell; else it continues where
        it was."""
        tablet_id, home, _, cell = move
        try:
            await home.cell.restart_tablet(tablet_id)
            if not await copy.follow():
                raise BlobMissing("a blob is not there")
        except BaseException:
            await _stay(tablet, move)
            raise
        try:
            return await self._scheme.change_topic(topic.record.name, lambda known: _moved(known, tablet_id, cell))
        except ShardLost:
            tablet.lose()  # both are there: which of them is the tablet, the scheme says when it is opened again
            raise
        except BaseException:
            await _stay(tablet, move)
            raise

    def _open(self, cell: CellId) -> TabletHost:
        host = self._cells.host(cell)
        if host is None or host.cell.lost.done():
            raise BundleRefused(f"cell {cell} is not open")
        return host


class _Move(NamedTuple):
    """One attempt."""

    tablet_id: TabletId
    home: TabletHost
    target: TabletHost
    cell: CellId


async def _stay(tablet: PqTablet, move: _Move) -> None:
    """The tablet continues in its cell, with what waits."""
    move.target.reclaim([move.tablet_id])
    await tablet.start(move.home.cell.storage(move.tablet_id))


def _home_of(record: TopicRecord, tablet_id: TabletId) -> CellId:
    return record.cell_of(record.tablets.index(tablet_id))


def _moved(record: TopicRecord, tablet_id: TabletId, cell: CellId) -> TopicRecord:
    homes: Sequence[CellId] = [
        cell if known == tablet_id else record.cell_of(number) for number, known in enumerate(record.tablets)
    ]
    return replace(record, cells=tuple(homes) if any(each != SYSTEM_CELL for each in homes) else ())


async def _clear(target: TabletHost, tablet_id: TabletId) -> None:
    """Remove what an earlier move left there."""
    if tablet_id in target.cell.tablets():
        await target.reclaimed()
        await target.cell.drop_tablet(tablet_id)
