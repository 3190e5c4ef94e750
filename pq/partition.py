"""One partition of a topic: the write cycle of semantics A.5 as plan, then apply or rollback. No I/O, no clock.

    state     event                 next      what happens
    idle      plan…                 writing   batches stamped and put behind the durable head; nobody sees them yet
    writing   apply (durable)       idle      EndOffset or StartOffset moves, blobs and producers change
    writing   rollback (refused)    idle      everything is as before the plan

Between plan and its end nothing else may change the partition: the flag `is_writing` is the lock.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq import sources
from pqbroker.pq.body import INDEX_GAP_BYTES, BodyIndex, Columns, encode_index
from pqbroker.pq.epochs import Epochs
from pqbroker.pq.head import HeadBlob, lay_out
from pqbroker.pq.keys import body_key, data_range, head_key, meta_key, producer_key
from pqbroker.pq.levels import Placement
from pqbroker.pq.merge import merge
from pqbroker.pq.recovery import Meta, Recovered
from pqbroker.pq.retention import start_after_retention
from pqbroker.pq.sources import Duplicate, Producer, Sources
from pqbroker.protocol import records
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.kv_commands import INLINE, Command, DeleteRange, Write

NO_TIMESTAMP = -1
TIMESTAMP_BOUND_UNKNOWN = (1 << 63) - 1


class Written(NamedTuple):
    """What a Produce is answered with; `log_append_time_ms` is -1 for CreateTime, `base_offset` -1 for an old
    duplicate."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class ClosedBody:
    """A body blob that a cycle makes: records [offset, end), from position `start` of the head's run."""

    offset: int
    end: int
    start: int
    size: int
    index: BodyIndex


class Cycle:
    """One planned KV request and what it will mean."""

    __slots__ = (
        "bodies", "commands", "duplicate_bytes", "duplicates", "end_offset", "forgotten", "head_blob", "mark", "now_ms",
        "outcomes", "placement", "sources", "start_offset", "stores_epoch",
    )  # fmt: skip

    def __init__(self, partition: "Partition", now_ms: int) -> None:
        self.now_ms = now_ms
        self.commands: list[Command] = []
        self.outcomes: list[Written | KafkaError] = []
        """One for each batch of the plan, in order."""
        self.start_offset = partition.start_offset
        self.end_offset = partition.end_offset
        self.sources: dict[int, Producer] = {}
        self.forgotten: list[int] = []
        self.duplicates = 0
        """Records of the plan's batches that are stored already."""
        self.duplicate_bytes = 0
        self.mark = partition.head.run.end
        self.head_blob: HeadBlob | None = None
        self.placement: Placement | None = None
        """How `head_blob` joins the head; None: it is the new head, behind `bodies`."""
        self.bodies: list[ClosedBody] = []
        self.stores_epoch = False


class Partition:
    """State of one partition (A.2). `by_reference=False` merges by copying only: the oracle of A.6."""

    __slots__ = (
        "_after_max_ms", "_before_max_ms", "_by_reference", "_count_max", "_size_max", "_stamps_append_time", "bodies",
        "config", "end_offset", "epochs", "generation", "head", "index", "is_writing", "sources", "start_offset",
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
        self._by_reference = by_reference
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Take the topic's config; it holds from the next cycle on."""
        self.config = config
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._count_max = config.pq_max_count_in_partition
        self._size_max = config.pq_max_size_in_partition

    @property
    def size_bytes(self) -> int:
        return self.bodies.size + self.head.size

    def needs_content(self, bytes_max: int) -> bool:
        """Whether a cycle of so many bytes would copy or index head content that is not in memory."""
        head = self.head
        if head.is_warm:
            return False
        if head.size + bytes_max >= self.config.pq_low_watermark_bytes:
            return True
        merged = head.levels.place(bytes_max).merged
        cold = [blob for blob in head.blobs[len(head.blobs) - merged :] if blob.position < head.run.base]
        return any(not (self._by_reference and blob.is_large) for blob in cold)

    def plan(self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int) -> Cycle:
        """Plan the storing of produced batches. Batches that cannot be stored have a KafkaError for an outcome.

        Needs the head's content in memory where `needs_content` says so. Without commands in the plan nothing is to
        be done.
        """
        assert not self.is_writing
        cycle = Cycle(self, now_ms)
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
            self._place(cycle, ends)
            for producer_id, state in cycle.sources.items():
                stored = sources.encode(state)
                cycle.commands.append(Write(producer_key(self.index, producer_id), (stored,), len(stored), INLINE))
            if not self.epochs.is_stored:
                self._store_epoch(cycle)
        return cycle

    def plan_trim(self, offset: int, now_ms: int) -> Cycle:
        """Plan to move StartOffset up to `offset`, deleting the blobs that lie before it whole (DeleteRecords,
        retention)."""
        assert not self.is_writing
        assert self.start_offset <= offset <= self.end_offset
        cycle = Cycle(self, now_ms)
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

    def is_retention_due(self, now_ms: int, producers_kept_ms: int) -> bool:
        """Whether `plan_retention` would find something to do now."""
        if start_after_retention(self.bodies, self.head, self.end_offset, self.config, now_ms) is not None:
            return True
        count_max = self.config.pq_source_id_max_counts
        return self.sources.is_due(now_ms) and bool(
            self.sources.expired(self.start_offset, now_ms, producers_kept_ms, count_max)
        )

    def plan_retention(self, now_ms: int, producers_kept_ms: int) -> Cycle:
        """Plan what age and size demand, and the forgetting of producers; a plan without commands when there is
        nothing."""
        offset = start_after_retention(self.bodies, self.head, self.end_offset, self.config, now_ms)
        cycle = self.plan_trim(max(offset, self.start_offset) if offset is not None else self.start_offset, now_ms)
        cycle.forgotten = self.sources.expired(
            cycle.start_offset, now_ms, producers_kept_ms, self.config.pq_source_id_max_counts
        )
        for producer_id in cycle.forgotten:
            key = producer_key(self.index, producer_id)
            cycle.commands.append(DeleteRange(key, True, key, True))
        self.is_writing = bool(cycle.commands)
        return cycle

    def plan_close(self, now_ms: int) -> Cycle:
        """Plan to make the whole head one body blob; what is not in memory goes by reference."""
        assert not self.is_writing
        cycle = Cycle(self, now_ms)
        if self.head.blobs:
            self.is_writing = True
            self._close(cycle, [(self.head.run.end, self.end_offset)], [1])
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
        self.sources.learn(cycle.sources)
        self.sources.forget(cycle.forgotten, self.start_offset)
        self.is_writing = False

    def rollback(self, cycle: Cycle) -> None:
        """The plan was refused: nothing of it is stored."""
        assert self.is_writing
        self.head.run.truncate(cycle.mark)
        self.is_writing = False

    def _apply_trim(self, offset: int) -> None:
        self.start_offset = offset
        self.bodies.drop_first(self.bodies.find(offset))
        if not len(self.bodies):
            self.head.drop_first(sum(blob.end <= offset for blob in self.head.blobs))
        self.epochs.trim(offset)

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
        if self._count_max >= 0 or self._size_max >= 0:
            self._check_room(cycle)
        base_offset = cycle.end_offset
        if append_time >= 0:
            records.stamp_log_append_time(batch, append_time)
        records.stamp(batch, base_offset, self.generation)
        run = self.head.run
        run.append(batch, base_offset, max_timestamp, run.end == cycle.mark)
        cycle.end_offset = base_offset + count
        if producer_id >= 0:
            cycle.sources[producer_id] = sources.taken(
                state, header.producer_epoch, sequence, count, base_offset, append_time, cycle.now_ms
            )
        return Written(base_offset, append_time, self.start_offset)

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

    def _check_room(self, cycle: Cycle) -> None:
        """PARTITION_IS_FULL (A.12.1, G.5): a lasting condition, so not a retriable code (H35)."""
        if 0 <= self._count_max <= cycle.end_offset - self.start_offset:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the partition holds pq.max.count.in.partition={self._count_max}"
            )
        if 0 <= self._size_max <= self.size_bytes + self.head.run.end - cycle.mark:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the partition holds pq.max.size.in.partition={self._size_max}"
            )

    def _place(self, cycle: Cycle, ends: list[tuple[int, int]]) -> None:
        """Decide which blobs the new batches and the head become; `ends` are position and offset behind each new
        batch."""
        head = self.head
        start = cycle.mark
        stop = ends[-1][0]
        sizes = [stop - start]
        if head.size + sizes[0] >= self.config.pq_low_watermark_bytes:
            sizes = [end - before for (before, _), (end, _) in pairwise([(start, 0), *ends])]
        layout = lay_out(head.levels, head.size, sizes, self.config.pq_low_watermark_bytes)
        if layout.placement is None:
            self._close(cycle, ends, layout.cuts)
            return
        merged = head.blobs[len(head.blobs) - layout.placement.merged :]
        self._plan_head_blob(cycle, merged, (start, stop), self.end_offset)
        cycle.placement = layout.placement

    def _close(self, cycle: Cycle, ends: list[tuple[int, int]], cuts: list[int]) -> None:
        """Plan bodies of the head and the batches before each of `cuts`, and a new head of the rest."""
        blobs: Sequence[HeadBlob] = self.head.blobs
        new_start, start_offset = cycle.mark, self.end_offset
        for cut in cuts:
            stop, end_offset = ends[cut - 1] if cut else (new_start, start_offset)
            start = blobs[0].position if blobs else new_start
            offset = blobs[0].offset if blobs else start_offset
            columns = self._columns(blobs, start, stop, offset)
            stored = encode_index(columns, stop - start, end_offset)
            output = body_key(self.index, offset, end_offset - offset)
            span = (max(new_start, start), stop)
            commands, _ = merge(self.index, blobs, self.head.run, span, output, stored, self._by_reference)
            cycle.commands += commands
            index = BodyIndex(columns, stop - start, end_offset)
            cycle.bodies.append(ClosedBody(offset, end_offset, start, stop - start + len(stored), index))
            blobs, new_start, start_offset = (), stop, end_offset
        if new_start < ends[-1][0]:
            self._plan_head_blob(cycle, (), (new_start, ends[-1][0]), start_offset)

    def _columns(self, blobs: Sequence[HeadBlob], start: int, stop: int, offset: int) -> Columns:
        """The sparse index of a body; of blobs that are not in memory only where they begin is known."""
        run = self.head.run
        if start >= run.base:
            return run.index_between(start, stop, offset, INDEX_GAP_BYTES)
        cold = [blob for blob in blobs if blob.position < run.base]
        positions = array("q", [blob.position - start for blob in cold])
        offsets = array("q", [blob.offset for blob in cold])
        stamps = array("q", [TIMESTAMP_BOUND_UNKNOWN] * len(cold))
        if run.base < stop:
            warm = run.index_between(run.base, stop, run.offset_at(run.base), INDEX_GAP_BYTES)
            positions.extend(position + run.base - start for position in warm[0])
            offsets.extend(warm[1])
            stamps.extend(warm[2])
        return positions, offsets, stamps

    def _plan_head_blob(self, cycle: Cycle, merged: Sequence[HeadBlob], span: tuple[int, int], offset: int) -> None:
        """Plan the head blob of `merged` and the new batches in the positions `span`, the first of which has
        `offset`."""
        run = self.head.run
        start, stop = span
        pieces = 1
        if merged:
            start, offset = merged[0].position, merged[0].offset
            output = head_key(self.index, offset, cycle.end_offset - offset)
            commands, pieces = merge(self.index, merged, run, span, output, b"", self._by_reference)
            cycle.commands += commands
        else:
            key = head_key(self.index, offset, cycle.end_offset - offset)
            cycle.commands.append(Write(key, run.slices(start, stop), stop - start))
        cycle.head_blob = HeadBlob(offset, cycle.end_offset, start, stop - start, pieces)

    def _store_epoch(self, cycle: Cycle) -> None:
        """The first batch of a generation makes its epoch known."""
        cycle.stores_epoch = True
        self._write_meta(cycle, Meta(self.start_offset, self.end_offset, self.epochs.entries))

    def _write_meta(self, cycle: Cycle, meta: Meta) -> None:
        stored = meta.encode()
        cycle.commands.append(Write(meta_key(self.index), (stored,), len(stored), INLINE))
