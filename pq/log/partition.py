"""One partition of a topic: its state, and how a write cycle changes it (semantics A.5). No I/O, no clock.

    state     event                 next      what happens
    idle      plan_…                writing   batches stamped and put behind the durable head; nobody sees them yet
    writing   apply (durable)       idle      EndOffset or StartOffset moves, blobs and producers change
    writing   rollback (refused)    idle      everything is as before the plan

Cycles are planned in blob_cycles.py, trim_cycles.py, replacing_cycles.py, staged_cycles.py, transacted_cycles.py.
Between plan and its end nothing else may change the partition: the flag `is_writing` is the lock.
"""

from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from pqbroker.pq.log.blob_layout import BlobLayout
from pqbroker.pq.log.commit_timestamps import CommitTimestamps, unreserved
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.log.leader_epochs import Epochs
from pqbroker.pq.log.partition_settings import PartitionSettings
from pqbroker.pq.log.producer_transactions import ProducerTransactions
from pqbroker.pq.log.producers import Producers
from pqbroker.pq.log.row_facts import PartitionFacts
from pqbroker.pq.log.sessions import Sessions
from pqbroker.pq.log.start_state import StoredPartition
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.storage.unreadable import StoredUnreadable


class OfNode(NamedTuple):
    """The things that all partitions of a node share; `by_reference` as in `BlobLayout`."""

    by_reference: bool = True
    timestamps: CommitTimestamps | None = None
    """None: a partition alone gives its own."""


class Partition:
    """State of one partition (A.2)."""

    __slots__ = (
        "bodies", "cleaned", "end_offset", "epochs", "facts", "generation", "has_leftovers", "head", "index",
        "is_writing", "layout", "producers", "sessions", "settings", "start_offset", "transactions",
        "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        generation: int,
        settings: PartitionSettings,
        stored: StoredPartition,
        of_node: OfNode,
    ) -> None:
        start_state = stored.start_state
        self.index = index
        self.generation = generation
        self.settings = settings
        self.bodies = start_state.bodies
        self.head = start_state.head
        self.start_offset = start_state.start_offset
        self.end_offset = start_state.end_offset
        self.epochs = Epochs(stored.meta.epochs, generation, start_state.end_offset)
        self.epochs.trim(start_state.start_offset)
        self.producers = Producers(stored.producers)
        self.transactions = ProducerTransactions(stored.producers, stored.aborted)
        self.sessions = Sessions(stored.sessions)
        self.facts = PartitionFacts(index, stored.facts, of_node.timestamps or unreserved())
        self.cleaned = stored.cleaned
        self.is_writing = False
        self.has_leftovers = False
        """True while parts of a batch that was refused are stored; the next write wipes them."""
        self.unreadable: StoredUnreadable | None = None
        """Damage of the rows, for which every request is refused; None: there is none. With damage, the offsets mean
        nothing."""
        self.layout = BlobLayout(index, self.head, by_reference=of_node.by_reference)

    @property
    def is_active(self) -> bool:
        """Return True if the partition takes writes by pq.inactive.partitions."""
        return str(self.index) not in self.settings.topic.pq_inactive_partitions

    @property
    def size_bytes(self) -> int:
        return self.bodies.size + self.head.size

    def gaps(self) -> list[tuple[int, int]]:
        """Holes [from, to) in the offsets."""
        start = self.start_offset
        spans = [(start, start), *self.bodies.spans(), *((blob.offset, blob.end) for blob in self.head.blobs)]
        return [(end, offset) for (_, end), (offset, _) in pairwise(spans) if end < offset]

    def needs_content(self, bytes_max: int) -> bool:
        """Return True if a cycle of `bytes_max` would copy or index head content that is not in memory."""
        return self.layout.needs_content(bytes_max, self.settings.topic.pq_low_watermark_bytes)

    @property
    def stable_offset(self) -> int:
        """The last stable offset: before it no Kafka transaction is open."""
        if not self.transactions.open:
            return self.end_offset
        return max(self.transactions.first_open, self.start_offset)

    @property
    def why_unstable(self) -> str | None:
        """Return which Kafka transaction holds the last stable offset, for people; None: none is open."""
        for producer_id, offset in self.transactions.open.items():
            state = self.producers.producers[producer_id]
            since_ms = state.transactional.open_ms if state.transactional is not None else state.written_ms
            since = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="seconds")
            return f"producer {producer_id} has an open Kafka transaction from offset {offset} on, since {since}"
        return None

    def no_change(self, now_ms: int) -> Cycle:
        """A cycle in which nothing happens."""
        return Cycle(self.start_offset, self.end_offset, self.head.run.end, now_ms)

    def apply(self, cycle: Cycle) -> None:
        """The plan is durable."""
        assert self.is_writing
        head = self.head
        if cycle.facts is not None:
            self.facts.apply(cycle.facts, cycle.head_blob.offset if cycle.head_blob is not None else None)
        for body in cycle.bodies:
            self.bodies.append(body.offset, body.end, body.size, cycle.now_ms, body.index.max_timestamp)
        for replaced in cycle.replaced:
            first = self.bodies.number_of(replaced.names[0])
            assert first is not None, replaced
            self.bodies.replace(first, first + len(replaced.names), replaced.size, replaced.max_timestamp)
        if cycle.cleaned is not None:
            self.cleaned = cycle.cleaned
        if cycle.bodies:
            head.restart(cycle.head_blob)
        elif cycle.head_blob is not None:
            assert cycle.placement is not None
            head.add(cycle.head_blob, cycle.placement)
        if cycle.head_blob is not None:
            head.written_ms = cycle.now_ms
        if cycle.stores_epoch:
            self.epochs.is_stored = True
        self.end_offset = cycle.end_offset
        if cycle.start_offset != self.start_offset:
            self._apply_trim(cycle.start_offset)
        if cycle.producers:
            self.producers.take(cycle.producers)
        if cycle.transactions is not None:
            self.transactions.apply(cycle.transactions)
        if cycle.forgotten:
            self.producers.forget(cycle.forgotten, self.start_offset)
        if cycle.sessions or cycle.forgotten_sessions:
            self.sessions.take(cycle.sessions)
            self.sessions.forget(cycle.forgotten_sessions)
        if cycle.touches_parts:
            self.has_leftovers = False
        self.is_writing = False

    def stamp(self, cycle: Cycle, timestamp: int) -> None:
        """Give all rows of a plan, which nobody has seen yet, the timestamp of the commit that they share in."""
        if cycle.facts is not None:
            stored = self.facts.stamp(cycle.facts, cycle.first_offset, timestamp)
            cycle.puts = [
                (key, (stored[key],), len(stored[key]), is_row) if key in stored else (key, data, size, is_row)
                for key, data, size, is_row in cycle.puts
            ]

    def rollback(self, cycle: Cycle) -> None:
        """The plan was refused: nothing of it is stored."""
        assert self.is_writing
        self.head.run.truncate(cycle.mark)
        self.has_leftovers = self.has_leftovers or cycle.touches_parts
        self.is_writing = False

    def _apply_trim(self, offset: int) -> None:
        self.start_offset = offset
        self.bodies.drop_first(self.bodies.find(offset))
        if not len(self.bodies):
            self.head.drop_first(sum(blob.end <= offset for blob in self.head.blobs))
        self.epochs.trim(offset)
        first = first_kept(self.bodies, self.head, offset)
        self.facts.apply_trim(first)
        self.transactions.apply_trim(first)
