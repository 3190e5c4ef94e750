"""One partition of a topic: the write cycle of semantics A.5 as plan, then apply or rollback. No I/O, no clock.

    state     event                 next      what happens
    idle      plan…                 writing   batches stamped and put behind the durable head; nobody sees them yet
    writing   apply (durable)       idle      EndOffset or StartOffset moves, blobs and producers change
    writing   rollback (refused)    idle      everything is as before the plan

Between plan and its end nothing else may change the partition: the flag `is_writing` is the lock.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pqbroker.pq.log import producers
from pqbroker.pq.log.blob_layout import BlobLayout
from pqbroker.pq.log.commit_timestamps import CommitTimestamps, unreserved
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.log.keys import OFFSET_MAX, data_range, data_start, meta_key, producer_key, session_keys
from pqbroker.pq.log.leader_epochs import Epochs
from pqbroker.pq.log.partition_settings import PartitionSettings
from pqbroker.pq.log.producers import Duplicate, Producers, StoredBatch
from pqbroker.pq.log.retention import TRIMMED_BLOBS_MAX, FirstUnread, start_after_retention
from pqbroker.pq.log.row_facts import PartitionFacts, Weighed, row_weights
from pqbroker.pq.log.sessions import Sessions
from pqbroker.pq.log.start_state import Meta, StoredPartition
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.protocol import records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv.commands import DeleteRange
from pqbroker.storage.unreadable import StoredUnreadable

NO_TIMESTAMP = -1
PlannedBatch = tuple[memoryview, BatchHeader]


class OfNode(NamedTuple):
    """The things that all partitions of a node share; `by_reference` as in `BlobLayout`."""

    by_reference: bool = True
    timestamps: CommitTimestamps | None = None
    """None: a partition alone gives its own."""


class Partition:
    """State of one partition (A.2)."""

    __slots__ = (
        "_layout", "bodies", "end_offset", "epochs", "facts", "generation", "has_leftovers", "head", "index",
        "is_writing", "producers", "sessions", "settings", "start_offset", "unreadable",
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
        self.sessions = Sessions(stored.sessions)
        self.facts = PartitionFacts(index, stored.facts, of_node.timestamps or unreserved())
        self.is_writing = False
        self.has_leftovers = False
        """True while parts of a batch that was refused are stored; the next write wipes them."""
        self.unreadable: StoredUnreadable | None = None
        """Damage of the rows, for which every request is refused; None: there is none. With damage, the offsets mean
        nothing."""
        self._layout = BlobLayout(index, self.head, by_reference=of_node.by_reference)

    @property
    def is_active(self) -> bool:
        """Return True if the partition takes writes by pq.inactive.partitions."""
        return str(self.index) not in self.settings.topic.pq_inactive_partitions

    @property
    def size_bytes(self) -> int:
        return self.bodies.size + self.head.size

    def why_closed(self) -> KafkaError | None:
        """Return the error that would refuse any batch now: not mounted, PARTITION_INACTIVE, PARTITION_IS_FULL."""
        try:
            self._check_open(self.no_change(0))
        except KafkaError as refusal:
            return refusal
        return None

    def gaps(self) -> list[tuple[int, int]]:
        """Holes [from, to) in the offsets."""
        start = self.start_offset
        spans = [(start, start), *self.bodies.spans(), *((blob.offset, blob.end) for blob in self.head.blobs)]
        return [(end, offset) for (_, end), (offset, _) in pairwise(spans) if end < offset]

    def needs_content(self, bytes_max: int) -> bool:
        """Return True if a cycle of `bytes_max` would copy or index head content that is not in memory."""
        return self._layout.needs_content(bytes_max, self.settings.topic.pq_low_watermark_bytes)

    def plan(self, batches: Sequence[PlannedBatch], now_ms: int, weights: Sequence[Weighed] = ()) -> Cycle:
        """Plan the storing of produced batches; `weights` of the rows of each. Batches that cannot be stored have a
        KafkaError for an outcome.

        Needs the head's content in memory where `needs_content` says so. An empty plan means that nothing is
        to be done.
        """
        assert not self.is_writing
        cycle = self.no_change(now_ms)
        self._fill(cycle, batches, weights)
        return cycle

    def plan_at(self, offset: int, batch: PlannedBatch, now_ms: int, weights: Weighed = None) -> Cycle:
        """Plan the storing of a batch at an offset of the writer's choosing (mirroring, A.5): what lies between it and
        the end becomes a gap. OFFSET_OUT_OF_RANGE for an offset before the end."""
        assert not self.is_writing
        cycle = self.no_change(now_ms)
        if offset < self.end_offset:
            text = f"offset {offset} is taken: the partition ends at {self.end_offset}"
            cycle.outcomes.append(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
            return cycle
        cycle.first_offset = cycle.end_offset = offset
        if self.start_offset == self.end_offset:
            cycle.start_offset = offset
        self._fill(cycle, (batch,), (weights,))
        return cycle

    def plan_trim(self, offset: int, now_ms: int) -> Cycle:
        """Plan to move StartOffset up to `offset`, deleting the blobs that lie before it whole (DeleteRecords,
        retention); less far, where these are more than `TRIMMED_BLOBS_MAX`."""
        assert not self.is_writing
        assert self.start_offset <= offset <= self.end_offset
        if self.bodies.find(offset) > TRIMMED_BLOBS_MAX:
            offset = self.bodies.offsets[TRIMMED_BLOBS_MAX]
        cycle = self.no_change(now_ms)
        if offset == self.start_offset:
            return cycle
        self.is_writing = True
        cycle.start_offset = offset
        first = first_kept(self.bodies, self.head, offset)
        lo, hi = data_range(self.index)[0], data_start(self.index, first)
        cycle.commands.append(DeleteRange(lo, True, hi, False))
        if (trimmed := self.facts.trim(first)) is not None:
            cycle.commands.append(trimmed)
        epochs = list(self.epochs.to_store())
        cycle.store(meta_key(self.index), Meta(offset, self.end_offset, epochs).encode())
        return cycle

    def is_retention_due(self, now_ms: int, first_unread: FirstUnread) -> bool:
        """Return True if `plan_retention` would find something to do now."""
        if self._start_after_retention(now_ms, first_unread) is not None:
            return True
        if self._expired(self.start_offset, now_ms):
            return True
        return bool(self.sessions.expired(self.start_offset, now_ms, self.settings.producers_kept_ms))

    def plan_retention(self, now_ms: int, first_unread: FirstUnread) -> Cycle:
        """Plan what age, size and important groups (`first_unread`) demand, and the forgetting of producers that were
        idle for too long; an empty plan when there is nothing."""
        offset = self._start_after_retention(now_ms, first_unread)
        cycle = self.plan_trim(max(offset, self.start_offset) if offset is not None else self.start_offset, now_ms)
        cycle.forgotten = self._expired(cycle.start_offset, now_ms)
        self._plan_forgetting(cycle)
        kept_ms = self.settings.producers_kept_ms
        cycle.forgotten_sessions = self.sessions.expired(cycle.start_offset, now_ms, kept_ms)
        cycle.gone += session_keys(self.index, cycle.forgotten_sessions)
        self.is_writing = not cycle.is_empty
        return cycle

    def plan_close(self, now_ms: int) -> Cycle:
        """Plan to make the whole head one body blob; what is not in memory goes by reference."""
        assert not self.is_writing
        cycle = self.no_change(now_ms)
        if self.head.blobs:
            self.is_writing = True
            self._layout.close(cycle, [(self.head.run.end, self.end_offset)], [1])
            self._plan_facts(cycle)
        return cycle

    def apply(self, cycle: Cycle) -> None:
        """The plan is durable."""
        assert self.is_writing
        head = self.head
        if cycle.facts is not None:
            self.facts.apply(cycle.facts, cycle.head_blob.offset if cycle.head_blob is not None else None)
        for body in cycle.bodies:
            self.bodies.append(body.offset, body.end, body.size, cycle.now_ms, body.index.max_timestamp)
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

    def _start_after_retention(self, now_ms: int, first_unread: FirstUnread) -> int | None:
        return start_after_retention(self.bodies, self.head, self.end_offset, self.settings, now_ms, first_unread)

    def _expired(self, start_offset: int, now_ms: int) -> list[int]:
        settings = self.settings
        count_max = settings.topic.pq_producer_ids_max
        return self.producers.expired(start_offset, now_ms, settings.producers_kept_ms, count_max)

    def no_change(self, now_ms: int) -> Cycle:
        """A cycle in which nothing happens."""
        return Cycle(self.start_offset, self.end_offset, self.head.run.end, now_ms)

    def _apply_trim(self, offset: int) -> None:
        self.start_offset = offset
        self.bodies.drop_first(self.bodies.find(offset))
        if not len(self.bodies):
            self.head.drop_first(sum(blob.end <= offset for blob in self.head.blobs))
        self.epochs.trim(offset)
        self.facts.apply_trim(first_kept(self.bodies, self.head, offset))

    def _fill(self, cycle: Cycle, batches: Iterable[PlannedBatch], weights: Sequence[Weighed]) -> None:
        """Put the batches that can be stored into the cycle, and what has to be stored with them."""
        run = self.head.run
        ends: list[tuple[int, int]] = []
        rows = cycle.rows = self.facts.begin(self.size_bytes) if self.settings.keeps_facts else None
        for batch, header in batches:
            try:
                cycle.outcomes.append(self._admit(cycle, batch, header))
            except KafkaError as refusal:
                cycle.outcomes.append(refusal)
                continue
            if run.end > (ends[-1][0] if ends else cycle.mark):
                ends.append((run.end, cycle.end_offset))
                if rows is not None:
                    given = weights[len(cycle.outcomes) - 1] if weights else None
                    given = row_weights(given, header.last_offset_delta + 1, len(batch))
                    self.facts.take(rows, cycle.end_offset, given, cycle.now_ms)
        if ends:
            self.is_writing = True
            topic = self.settings.topic
            self._layout.place(cycle, ends, topic.pq_low_watermark_bytes)
            if rows is not None or self.facts.blobs:
                self._plan_facts(cycle)
            for producer_id, state in cycle.producers.items():
                cycle.store(producer_key(self.index, producer_id), producers.encode(state))
            if len(self.producers.producers) + len(cycle.producers) > topic.pq_producer_ids_max:
                cycle.forgotten = self.producers.displaced(cycle.producers, topic.pq_producer_ids_max)
                self._plan_forgetting(cycle)
            if not self.epochs.is_stored or cycle.start_offset != self.start_offset:
                self._store_epoch(cycle)
            if cycle.parts or self.has_leftovers:
                cycle.touches_parts = True
                if self.has_leftovers:
                    self._layout.wipe_leftovers(cycle)

    def _admit(self, cycle: Cycle, batch: memoryview, header: BatchHeader) -> Written:
        """Check one batch and append it to the head's run, or find that it is stored already. Raises KafkaError."""
        producer_id = header.producer_id
        count = header.last_offset_delta + 1
        sequence = -1
        state = None
        if producer_id >= 0:
            state = cycle.producers.get(producer_id) or self.producers.producers.get(producer_id)
            if state is None:
                self.producers.check_first(producer_id, header.producer_epoch, header.base_sequence)
            verdict = producers.check(state, header.producer_epoch, header.base_sequence, count)
            if type(verdict) is Duplicate:
                cycle.duplicates += count
                cycle.duplicate_bytes += len(batch)
                return Written(verdict.base_offset, verdict.log_append_time_ms, self.start_offset)
            assert type(verdict) is int
            sequence = verdict
        topic = self.settings.topic
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if topic.message_timestamp_type == "LogAppendTime":
            max_timestamp = append_time = cycle.now_ms
        elif max_timestamp != NO_TIMESTAMP:
            self.settings.check_timestamps(batch, header, cycle.now_ms)
        has_limits = topic.pq_max_count_in_partition >= 0 or topic.pq_max_size_in_partition >= 0
        if has_limits or topic.pq_inactive_partitions or self.settings.is_special:
            self._check_open(cycle)
        base_offset = cycle.end_offset
        if base_offset + count > OFFSET_MAX:
            text = f"{count} records do not fit below offset {OFFSET_MAX} any more: write to another partition"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        if append_time >= 0:
            records.stamp_log_append_time(batch, append_time)
        records.stamp(batch, base_offset, self.generation)
        run = self.head.run
        run.append(batch, base_offset, max_timestamp, run.end == cycle.mark)
        cycle.end_offset = base_offset + count
        if producer_id >= 0:
            stored = StoredBatch(sequence, sequence + count - 1, base_offset, append_time)
            cycle.producers[producer_id] = producers.taken(
                state, header.producer_epoch, stored, max_timestamp, cycle.now_ms
            )
        return Written(base_offset, append_time, cycle.start_offset)

    def _check_open(self, cycle: Cycle) -> None:
        """PARTITION_INACTIVE, PARTITION_IS_FULL (A.12.1, A.15, G.5): lasting conditions, so not a retriable code (H35)
        unless the topic wants one."""
        topic = self.settings.topic
        self.settings.check_mounted(self.index)
        if not self.is_active:
            text = f"partition {self.index} is inactive by pq.inactive.partitions: write to another one"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        if 0 <= topic.pq_max_count_in_partition <= cycle.end_offset - self.start_offset:
            raise self.settings.full(f"pq.max.count.in.partition={topic.pq_max_count_in_partition}")
        if 0 <= topic.pq_max_size_in_partition <= self.size_bytes + self.head.run.end - cycle.mark:
            raise self.settings.full(f"pq.max.size.in.partition={topic.pq_max_size_in_partition}")
        if (weight_max := self.settings.weight_max) is not None:
            new = 0 if cycle.rows is None else cycle.rows.weight_after - cycle.rows.weight_before
            if self.facts.kept_weight(self.bodies, self.head) + new >= weight_max:
                raise self.settings.full(f"max_ordered_tablet_data_weight={weight_max}")

    def _plan_facts(self, cycle: Cycle) -> None:
        """After the blobs are planned."""
        blobs = self.head.blobs
        merged = len(blobs) if cycle.placement is None else cycle.placement.merged
        cycle.facts = change = self.facts.plan(cycle.rows, blobs[len(blobs) - merged :], cycle.made_blobs)
        if change is not None:
            cycle.puts += change.puts
            cycle.gone += change.gone

    def _plan_forgetting(self, cycle: Cycle) -> None:
        cycle.gone += [producer_key(self.index, producer_id) for producer_id in cycle.forgotten]

    def _store_epoch(self, cycle: Cycle) -> None:
        """The first batch of a generation makes its epoch known; one that moves the start makes that known."""
        cycle.stores_epoch = True
        end_offset = max(self.end_offset, cycle.start_offset)
        cycle.store(meta_key(self.index), Meta(cycle.start_offset, end_offset, self.epochs.entries).encode())
