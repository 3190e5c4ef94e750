"""One partition of a topic: the write cycle of semantics A.5 as plan, then apply or rollback. No I/O, no clock.

    state     event                 next      what happens
    idle      plan…                 writing   batches stamped and put behind the durable head; nobody sees them yet
    writing   apply (durable)       idle      EndOffset or StartOffset moves, blobs and producers change
    writing   rollback (refused)    idle      everything is as before the plan

Between plan and its end nothing else may change the partition: the flag `is_writing` is the lock.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq import sources
from pqbroker.pq.cycle import Cycle, Written
from pqbroker.pq.epochs import Epochs
from pqbroker.pq.keys import OFFSET_MAX, data_range, meta_key, part_range, producer_key
from pqbroker.pq.placing import Placing
from pqbroker.pq.recovery import Meta, Recovered
from pqbroker.pq.retention import TRIMMED_BLOBS_MAX, FirstUnread, start_after_retention
from pqbroker.pq.sources import Duplicate, Producer, Sources, StoredBatch
from pqbroker.protocol import records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv_commands import INLINE, DeleteRange, Write

NO_TIMESTAMP = -1


class Partition:
    """State of one partition (A.2); `by_reference` as in `Placing`."""

    __slots__ = (
        "_after_max_ms", "_before_max_ms", "_count_max", "_is_limited", "_placing", "_size_max", "_stamps_append_time",
        "bodies", "config", "end_offset", "epochs", "generation", "has_leftovers", "head", "index", "is_active",
        "is_writing", "sources", "start_offset",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        generation: int,
        config: TopicConfig,
        recovered: Recovered,
        meta: Meta,
        producers: Iterable[tuple[int, Producer]] = (),
        *,
        by_reference: bool = True,
    ) -> None:
        self.index = index
        self.generation = generation
        self.bodies = recovered.bodies
        self.head = recovered.head
        self.start_offset = recovered.start_offset
        self.end_offset = recovered.end_offset
        self.epochs = Epochs(meta.epochs, generation, recovered.end_offset)
        self.epochs.trim(recovered.start_offset)
        self.sources = Sources(producers)
        self.is_writing = False
        self.has_leftovers = False
        """Whether parts of a batch that was then refused are stored; the next writer wipes them."""
        self._placing = Placing(index, self.head, by_reference=by_reference)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Take the topic's config; it holds from the next cycle on."""
        self.config = config
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._count_max = config.pq_max_count_in_partition
        self._size_max = config.pq_max_size_in_partition
        self.is_active = str(self.index) not in config.pq_inactive_partitions
        self._is_limited = self._count_max >= 0 or self._size_max >= 0 or not self.is_active

    @property
    def size_bytes(self) -> int:
        return self.bodies.size + self.head.size

    def why_closed(self) -> KafkaError | None:
        """What any batch would be refused with now: PARTITION_INACTIVE, PARTITION_IS_FULL."""
        try:
            self._check_open(self._cycle(0))
        except KafkaError as refusal:
            return refusal
        return None

    def gaps(self) -> list[tuple[int, int]]:
        """Holes [from, to) in the offsets."""
        start = self.start_offset
        spans = [(start, start), *self.bodies.spans(), *((blob.offset, blob.end) for blob in self.head.blobs)]
        return [(end, offset) for (_, end), (offset, _) in pairwise(spans) if end < offset]

    def needs_content(self, bytes_max: int) -> bool:
        """Whether a cycle of so many bytes would copy or index head content that is not in memory."""
        return self._placing.needs_content(bytes_max, self.config.pq_low_watermark_bytes)

    def plan(self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int) -> Cycle:
        """Plan the storing of produced batches. Batches that cannot be stored have a KafkaError for an outcome.

        Needs the head's content in memory where `needs_content` says so. Without commands in the plan nothing is to
        be done.
        """
        assert not self.is_writing
        cycle = self._cycle(now_ms)
        self._fill(cycle, batches)
        return cycle

    def plan_at(self, offset: int, batch: tuple[memoryview, BatchHeader], now_ms: int) -> Cycle:
        """Plan the storing of a batch at an offset of the writer's choosing (mirroring, A.5): what lies between it and
        the end becomes a gap. OFFSET_OUT_OF_RANGE for an offset before the end."""
        assert not self.is_writing
        cycle = self._cycle(now_ms)
        if offset < self.end_offset:
            text = f"offset {offset} is taken: the partition ends at {self.end_offset}"
            cycle.outcomes.append(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
            return cycle
        cycle.first_offset = cycle.end_offset = offset
        if self.start_offset == self.end_offset:
            cycle.start_offset = offset
        self._fill(cycle, (batch,))
        return cycle

    def plan_trim(self, offset: int, now_ms: int) -> Cycle:
        """Plan to move StartOffset up to `offset`, deleting the blobs that lie before it whole (DeleteRecords,
        retention); less far, where these are more than `TRIMMED_BLOBS_MAX`."""
        assert not self.is_writing
        assert self.start_offset <= offset <= self.end_offset
        if self.bodies.find(offset) > TRIMMED_BLOBS_MAX:
            offset = self.bodies.offsets[TRIMMED_BLOBS_MAX]
        cycle = self._cycle(now_ms)
        if offset == self.start_offset:
            return cycle
        self.is_writing = True
        cycle.start_offset = offset
        lo, hi = data_range(self.index)
        kept = self.bodies.find(offset)
        if kept < len(self.bodies):
            hi = self.bodies.key(self.index, kept)
        else:
            hi = next((blob.key(self.index) for blob in self.head.blobs if blob.end > offset), hi)
        cycle.commands.append(DeleteRange(lo, True, hi, False))
        epochs = list(self.epochs.to_store())
        self._write_meta(cycle, Meta(offset, self.end_offset, epochs))
        return cycle

    def is_retention_due(self, now_ms: int, producers_kept_ms: int, first_unread: FirstUnread) -> bool:
        """Whether `plan_retention` would find something to do now."""
        if self._start_after_retention(now_ms, first_unread) is not None:
            return True
        return bool(self._expired(self.start_offset, now_ms, producers_kept_ms))

    def plan_retention(self, now_ms: int, producers_kept_ms: int, first_unread: FirstUnread) -> Cycle:
        """Plan what age, size and important groups (`first_unread`) demand, and the forgetting of producers that were
        idle for so long; a plan without commands when there is nothing."""
        offset = self._start_after_retention(now_ms, first_unread)
        cycle = self.plan_trim(max(offset, self.start_offset) if offset is not None else self.start_offset, now_ms)
        cycle.forgotten = self._expired(cycle.start_offset, now_ms, producers_kept_ms)
        self._plan_forgetting(cycle)
        self.is_writing = bool(cycle.commands)
        return cycle

    def plan_close(self, now_ms: int) -> Cycle:
        """Plan to make the whole head one body blob; what is not in memory goes by reference."""
        assert not self.is_writing
        cycle = self._cycle(now_ms)
        if self.head.blobs:
            self.is_writing = True
            self._placing.close(cycle, [(self.head.run.end, self.end_offset)], [1])
        return cycle

    def apply(self, cycle: Cycle) -> None:
        """The plan is durable."""
        assert self.is_writing
        head = self.head
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
        self.sources.take(cycle.sources)
        self.sources.forget(cycle.forgotten, self.start_offset)
        if cycle.touches_parts:
            self.has_leftovers = False
        self.is_writing = False

    def rollback(self, cycle: Cycle) -> None:
        """The plan was refused: nothing of it is stored."""
        assert self.is_writing
        self.head.run.truncate(cycle.mark)
        self.has_leftovers = self.has_leftovers or cycle.touches_parts
        self.is_writing = False

    def _start_after_retention(self, now_ms: int, first_unread: FirstUnread) -> int | None:
        return start_after_retention(self.bodies, self.head, self.end_offset, self.config, now_ms, first_unread)

    def _expired(self, start_offset: int, now_ms: int, kept_ms: int) -> list[int]:
        kept_ms = max(kept_ms, self.config.pq_source_id_lifetime_ms)
        return self.sources.expired(start_offset, now_ms, kept_ms, self.config.pq_source_id_max_counts)

    def _cycle(self, now_ms: int) -> Cycle:
        return Cycle(self.start_offset, self.end_offset, self.head.run.end, now_ms)

    def _apply_trim(self, offset: int) -> None:
        self.start_offset = offset
        self.bodies.drop_first(self.bodies.find(offset))
        if not len(self.bodies):
            self.head.drop_first(sum(blob.end <= offset for blob in self.head.blobs))
        self.epochs.trim(offset)

    def _fill(self, cycle: Cycle, batches: Iterable[tuple[memoryview, BatchHeader]]) -> None:
        """Put the batches that can be stored into the cycle, and what has to be stored with them."""
        run = self.head.run
        ends: list[tuple[int, int]] = []
        for batch, header in batches:
            try:
                cycle.outcomes.append(self._admit(cycle, batch, header))
            except KafkaError as refusal:
                cycle.outcomes.append(refusal)
                continue
            if run.end > (ends[-1][0] if ends else cycle.mark):
                ends.append((run.end, cycle.end_offset))
        if ends:
            self.is_writing = True
            self._placing.place(cycle, ends, self.config.pq_low_watermark_bytes)
            for producer_id, state in cycle.sources.items():
                stored = sources.encode(state)
                cycle.commands.append(Write(producer_key(self.index, producer_id), (stored,), len(stored), INLINE))
            if len(self.sources.producers) + len(cycle.sources) > self.config.pq_source_id_max_counts:
                cycle.forgotten = self.sources.displaced(cycle.sources, self.config.pq_source_id_max_counts)
                self._plan_forgetting(cycle)
            if not self.epochs.is_stored or cycle.start_offset != self.start_offset:
                self._store_epoch(cycle)
            if cycle.parts or self.has_leftovers:
                cycle.touches_parts = True
                self._wipe_leftovers(cycle)

    def _admit(self, cycle: Cycle, batch: memoryview, header: BatchHeader) -> Written:
        """Check one batch and put it behind what is there, or find that it is stored already. Raises KafkaError."""
        producer_id = header.producer_id
        count = header.last_offset_delta + 1
        sequence = -1
        state = None
        if producer_id >= 0:
            state = cycle.sources.get(producer_id) or self.sources.producers.get(producer_id)
            if state is None:
                self.sources.check_first(producer_id, header.producer_epoch, header.base_sequence)
            verdict = sources.check(state, header.producer_epoch, header.base_sequence, count)
            if type(verdict) is Duplicate:
                cycle.duplicates += count
                cycle.duplicate_bytes += len(batch)
                return Written(verdict.base_offset, verdict.log_append_time_ms, self.start_offset)
            assert type(verdict) is int
            sequence = verdict
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if self._stamps_append_time:
            max_timestamp = append_time = cycle.now_ms
        elif max_timestamp != NO_TIMESTAMP:
            self._check_timestamps(header, cycle.now_ms)
        if self._is_limited:
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
            cycle.sources[producer_id] = sources.taken(
                state, header.producer_epoch, stored, max_timestamp, cycle.now_ms
            )
        return Written(base_offset, append_time, cycle.start_offset)

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        """INVALID_TIMESTAMP (clients 4.16) by what the batch header tells of its records."""
        if header.max_timestamp - now_ms > self._after_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.max_timestamp} is over message.timestamp.after.max.ms ahead of {now_ms}",
            )
        if now_ms - header.base_timestamp > self._before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.base_timestamp} is over message.timestamp.before.max.ms behind {now_ms}",
            )

    def _check_open(self, cycle: Cycle) -> None:
        """PARTITION_INACTIVE, PARTITION_IS_FULL (A.12.1, A.15, G.5): lasting conditions, so not a retriable code (H35)
        unless the topic wants one."""
        if not self.is_active:
            text = f"partition {self.index} is inactive by pq.inactive.partitions: write to another one"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        if 0 <= self._count_max <= cycle.end_offset - self.start_offset:
            raise self._full(f"pq.max.count.in.partition={self._count_max}")
        if 0 <= self._size_max <= self.size_bytes + self.head.run.end - cycle.mark:
            raise self._full(f"pq.max.size.in.partition={self._size_max}")

    def _full(self, limit: str) -> KafkaError:
        return KafkaError(ErrorCode[self.config.pq_partition_full_error], f"the partition holds {limit}")

    def _plan_forgetting(self, cycle: Cycle) -> None:
        for producer_id in cycle.forgotten:
            key = producer_key(self.index, producer_id)
            cycle.commands.append(DeleteRange(key, True, key, True))

    def _wipe_leftovers(self, cycle: Cycle) -> None:
        """Have what an earlier large batch left deleted before anything else, if there is any."""
        if not self.has_leftovers:
            return
        lo, hi = part_range(self.index)
        wipe = DeleteRange(lo, True, hi, False)
        if cycle.parts:
            cycle.parts.insert(0, wipe)
        else:
            cycle.commands.append(wipe)

    def _store_epoch(self, cycle: Cycle) -> None:
        """The first batch of a generation makes its epoch known; one that moves the start makes that known."""
        cycle.stores_epoch = True
        self._write_meta(cycle, Meta(cycle.start_offset, max(self.end_offset, cycle.start_offset), self.epochs.entries))

    def _write_meta(self, cycle: Cycle, meta: Meta) -> None:
        stored = meta.encode()
        cycle.commands.append(Write(meta_key(self.index), (stored,), len(stored), INLINE))
