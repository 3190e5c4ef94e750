"""Materializations as they are shown: state, reason, progress, dead letters."""

from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.broker.services.materializing.callers import FeedingNode
from pqbroker.broker.services.materializing.fed_table import find_fed
from pqbroker.broker.services.materializing.feed import FeedRefusal
from pqbroker.pq.reading.query import READ_COMMITTED, visible_end
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import RunLetters
from pqbroker.tables.serving.table import SortedTable


class PartitionProgress(NamedTuple):
    """Progress in one partition."""

    partition: int
    offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return max(self.end_offset - self.offset, 0)


@dataclass(frozen=True, slots=True)
class MaterializationView:
    """A materialization as it is shown. `state`: running, waiting, stopped or paused."""

    table: SortedTable
    record: MaterializationRecord
    state: str
    refusal: FeedRefusal | None
    topic: Topic | None
    """None: it was deleted."""
    letters: RunLetters

    def progress(self) -> list[PartitionProgress]:
        """Return the progress in each partition, which may be thousands."""
        known = self.table.tablets[0].progress
        found = []
        for partition in () if self.topic is None else self.topic.partitions:
            stands = known.offset_of(self.record.run, partition.index)
            offset = partition.start_offset if stands is None else stands
            found.append(PartitionProgress(partition.index, offset, visible_end(partition.state, READ_COMMITTED)))
        return found

    @property
    def lag(self) -> int:
        """Return how many offsets are not read yet."""
        return sum(each.lag for each in self.progress())


def view_of(node: FeedingNode, table: SortedTable, record: MaterializationRecord) -> MaterializationView:
    """Return a materialization as it is now."""
    state, refusal = _state(node, record)
    topic = node.cell.current.topics.by_id(record.topic_id)
    letters = table.tablets[0].progress.letters_of(record.run)
    return MaterializationView(table, record, state, refusal, topic, letters)


def _state(node: FeedingNode, record: MaterializationRecord) -> tuple[str, FeedRefusal | None]:
    if record.is_paused:
        return "paused", None
    feed = node.feeding.feeds.get(record.table_id)
    try:
        find_fed(node.cell.current, record)
    except TableError as now:  # the feed may not have looked since
        refusal: FeedRefusal | None = FeedRefusal(now.code, now.message, now.cure)
    else:
        refusal = None if feed is None else feed.refusal
    if refusal is None:
        return "running", None
    return "waiting" if refusal.is_passing else "stopped", refusal
