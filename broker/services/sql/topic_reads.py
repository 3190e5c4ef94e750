"""The partitions of topics that one query reads at one node: where they end when it begins, and their stretches.

Those of another node are read over the peer link by the same calls; most bytes lie in files, which the worker reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pqbroker.broker.services.topics.partitions import needs_keys, unknown_topic
from pqbroker.broker.services.workers.shown_stretches import show_stretch
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation, visible_end
from pqbroker.pq.serving.open_scans import OpenScans
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import Buffer

STRETCH_BYTES: Final = 8 << 20
"""Stored bytes of a stretch that a worker is shown, about."""
AWAY_BYTES: Final = 1 << 20
"""Bytes of such a stretch that lie in memory of another node, about: they pass both loops."""
STRETCHES_MAX: Final = 4
"""Shown at once: each turn of question and answer takes the broker as long as a few stretches."""

TopicParts = Mapping[str, tuple[Topic, Sequence[int]]]
"""Partitions of topics that one node runs, by the topic's name."""
AskedPartitions = Mapping[str, tuple[str, Sequence[int]]]
"""Partitions as one node asks another for them: each topic by its id, in hexadecimal."""
Shown = tuple[dict[str, Any], Sequence[Buffer]]
"""Stretches as a worker is shown them: a document and its payload."""


class PartitionSnapshot(NamedTuple):
    """One partition when a query begins: nothing behind `end_offset` is the query's. `revision`: as columns made of it
    are kept."""

    partition: int
    start_offset: int
    end_offset: int
    is_unmounted: bool
    revision: str


Snapshots = Mapping[str, Sequence[PartitionSnapshot]]
"""Partitions of topics when a query begins, by the topic's name."""


class WantedStretches(NamedTuple):
    """Stretches as a worker asks for them (`tables/work/messages.py`), but for what its own node decides."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    end_offset: int
    timestamp_min: int
    is_verified: bool
    facts: bool
    commits: Sequence[int] | None
    bytes_max: int | None

    @classmethod
    def decode(cls, told: Any) -> "WantedStretches":
        """Read what another node asks for: the fields in their order. ValueError."""
        if not isinstance(told, list) or len(told) != len(cls._fields):
            raise ValueError("wanted stretches were expected")
        found = cls(*told)
        if not isinstance(found.commits, list | None):
            raise ValueError("times of commits were expected")
        least = (found.partition, found.offset, found.end_offset, found.timestamp_min, found.bytes_max or 0)
        numbers = [*least, *(found.commits or (0, 0))]
        are_numbers = all(isinstance(one, int) for one in numbers) and len(numbers) == 7
        if not isinstance(found.topic, str) or not are_numbers or found.partition < 0 or found.offset < 0:
            raise ValueError("wanted stretches have something else in place of a number or a name")
        return found


class NodeReads(Protocol):
    """Reads of one query at one node."""

    async def begin(self, parts: TopicParts) -> Snapshots:
        """Return these partitions as the query sees them from now on. KafkaError, TableError, QueryRefused."""

    async def stretches(self, wanted: WantedStretches) -> Shown:
        """Return the next stretches of a partition. KafkaError, QueryRefused."""

    def close(self) -> None:
        """The query has ended."""


class TopicReads:
    """Reads at this node. `find` finds a topic as it is served now, whose partitions of these indexes are here, if the
    caller may read it; KafkaError. `is_away`: the query runs at another node."""

    def __init__(
        self, find: Callable[[str, Sequence[int]], Topic], isolation: Isolation, *, is_away: bool = False
    ) -> None:
        self._find = find
        self._isolation = isolation
        self._is_away = is_away
        self._scans: list[tuple[OpenScans, int]] = []
        """Compacted partitions that it reads, and up to where."""

    def find(self, asked: AskedPartitions) -> TopicParts:
        """Return partitions that another node asks for. KafkaError."""
        found = {}
        for name, (topic_id, indexes) in asked.items():
            topic = self._find(name, indexes)
            for index in indexes:
                _partition(topic, topic_id, index)
            found[name] = topic, indexes
        return found

    async def begin(self, parts: TopicParts) -> Snapshots:
        """Do so without an await, so that all are of one moment: that in which the topics were found."""
        found = {}
        for name, (topic, indexes) in parts.items():
            found[name] = self._begin(topic, indexes)
        return found

    def _begin(self, topic: Topic, indexes: Sequence[int]) -> Sequence[PartitionSnapshot]:
        found = list[PartitionSnapshot]()
        for index in indexes:
            partition = topic.partitions[index]
            partition.check_readable()
            found.append(self._snapshot(partition))
        if needs_keys(topic):  # no cleaning takes out what only a record behind these ends makes superfluous
            for index, seen in zip(indexes, found, strict=True):
                scans = topic.partitions[index].scans
                scans.open(seen.end_offset)
                self._scans.append((scans, seen.end_offset))
        return found

    def _snapshot(self, partition: PartitionServer) -> PartitionSnapshot:
        state = partition.state
        mark = "" if self._isolation is READ_COMMITTED else "u"  # columns kept of one isolation are not for another
        # Each process counts the writers of its own: behind another one's generation no revision comes twice.
        of_node = f"{partition.storage.generation}." if self._is_away else ""
        return PartitionSnapshot(
            partition.index, state.start_offset, visible_end(state, self._isolation),
            partition.is_unmounted, mark + of_node + partition.revision,
        )  # fmt: skip

    async def stretches(self, wanted: WantedStretches) -> Shown:
        offset, end_offset = wanted.offset, wanted.end_offset
        topic = self._find(wanted.topic, (wanted.partition,))
        partition = _partition(topic, wanted.topic_id, wanted.partition)
        spans = partition.state.transactions.aborted if self._isolation is READ_COMMITTED else None
        bytes_max = self._bytes_max(partition, wanted)
        query = StretchQuery(offset, end_offset, bytes_max, wanted.timestamp_min, wanted.is_verified)
        is_one = wanted.is_verified or bytes_max < STRETCH_BYTES
        stretches = await partition.stretches.read(query, 1 if is_one else STRETCHES_MAX)
        shown: list[dict[str, Any]] = []
        payload: list[Buffer] = []
        for stretch in stretches:
            facts = None
            if wanted.facts:
                facts = await partition.facts.read(offset, stretch.next_offset)
                if _is_left_out(facts, stretch.next_offset - offset, wanted.commits):
                    stretch = stretch._replace(pieces=())
            shown.append({**show_stretch(stretch, payload), "offset": offset})
            if spans is not None:
                shown[-1]["aborted"] = spans.between(offset, stretch.next_offset)
            if facts is not None:
                payload.append(facts.encode())
                shown[-1] |= {"weight_before": facts.weight_before, "facts_bytes": len(payload[-1])}
            offset = stretch.next_offset
        return {"stretches": shown}, payload

    def _bytes_max(self, partition: PartitionServer, wanted: WantedStretches) -> int:
        bytes_max = min(wanted.bytes_max or STRETCH_BYTES, STRETCH_BYTES)
        bodies = partition.state.bodies
        is_in_memory = bodies.find(wanted.offset) == len(bodies)
        return min(bytes_max, AWAY_BYTES) if self._is_away and is_in_memory else bytes_max

    def close(self) -> None:
        for scans, end_offset in self._scans:
            scans.close(end_offset)
        self._scans = []


def _partition(topic: Topic, topic_id: str, index: int) -> PartitionServer:
    """KafkaError where the topic is another one of that name by now."""
    if topic.record.topic_id.hex() != topic_id or not 0 <= index < len(topic.partitions):
        raise unknown_topic()
    return topic.partitions[index]


def _is_left_out(facts: RowFacts, rows: int, commits: Sequence[int] | None) -> bool:
    """Return True if all these rows are known, and none was committed at such a time."""
    return commits is not None and len(facts) == rows and not facts.may_have_timestamp(*commits)
