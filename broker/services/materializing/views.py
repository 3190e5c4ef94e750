"""Materializations as they are shown: state, reason, progress, dead letters."""

from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.broker.services.materializing.callers import FeedingNode
from pqbroker.broker.services.materializing.fed_elsewhere import look_elsewhere
from pqbroker.broker.services.materializing.fed_partitions import span_of
from pqbroker.broker.services.materializing.fed_table import find_fed
from pqbroker.broker.services.materializing.feed import FeedRefusal
from pqbroker.broker.services.materializing.feeding import NOTHING_ELSEWHERE, PartsElsewhere
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedProgress, RunLetters
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
    elsewhere: PartsElsewhere
    """Parts at other nodes, as of the last look."""

    @property
    def letters(self) -> RunLetters:
        """Return the dead letters of the run."""
        return self._known.letters_of(self.record.run)

    @property
    def _known(self) -> FeedProgress:
        return self.table.tablets[0].progress if self.elsewhere.progress is None else self.elsewhere.progress

    def progress(self) -> list[PartitionProgress]:
        """Return the progress in each partition, which may be thousands."""
        elsewhere = {span.partition: span for span in self.elsewhere.spans}
        found = []
        for partition in () if self.topic is None else self.topic.partitions:
            span = elsewhere.get(partition.index) or span_of(partition)
            stands = self._known.offset_of(self.record.run, partition.index)
            offset = span.start_offset if stands is None else stands
            found.append(PartitionProgress(partition.index, offset, span.end_offset))
        return found

    @property
    def lag(self) -> int:
        """Return how many offsets are not read yet."""
        return sum(each.lag for each in self.progress())


def view_of(node: FeedingNode, table: SortedTable, record: MaterializationRecord) -> MaterializationView:
    """Return a materialization as it is now."""
    state, refusal = _state(node, record)
    topic = node.cell.current.topics.by_id(record.topic_id)
    elsewhere = node.feeding.elsewhere.get(record.table_id, NOTHING_ELSEWHERE)
    return MaterializationView(table, record, state, refusal, topic, elsewhere)


async def look_at_all(node: FeedingNode, view: MaterializationView) -> MaterializationView:
    """Return a view with its parts at other nodes as they are now. TableError NODE_SILENT; KafkaError."""
    found = await look_elsewhere(node, view.topic, view.table, view.record)
    if found != NOTHING_ELSEWHERE or view.elsewhere != NOTHING_ELSEWHERE:
        node.feeding.elsewhere[view.record.table_id] = found
    return view_of(node, view.table, view.record)


def _state(node: FeedingNode, record: MaterializationRecord) -> tuple[str, FeedRefusal | None]:
    if record.is_paused:
        return "paused", None
    feed = node.feeding.feeds.get(record.table_id)
    try:
        find_fed(node, node.cell.current, record)
    except TableError as now:  # the feed may not have looked since
        refusal: FeedRefusal | None = FeedRefusal(now.code, now.message, now.cure)
    else:
        refusal = None if feed is None else feed.refusal
    if refusal is None:
        return "running", None
    return "waiting" if refusal.is_passing else "stopped", refusal
