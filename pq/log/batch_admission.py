"""Admission of one produced batch into a write cycle: duplicates, timestamps, limits of the partition (A.5)."""

from pqbroker.pq.log import producers
from pqbroker.pq.log.keys import OFFSET_MAX
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.producer_transactions import AbortedSpan, TransactionsChange, check_batch, opened
from pqbroker.pq.log.producers import Duplicate, StoredBatch
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.protocol import records
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import TRANSACTIONAL, BatchHeader

NO_TIMESTAMP = -1


def admit(partition: Partition, cycle: Cycle, batch: memoryview, header: BatchHeader) -> Written:
    """Check one batch and append it to the head's run, or find that it is stored already. Raises KafkaError."""
    producer_id = header.producer_id
    count = header.last_offset_delta + 1
    sequence = -1
    state = None
    if producer_id >= 0:
        state = cycle.producers.get(producer_id) or partition.producers.producers.get(producer_id)
        if state is None:
            partition.producers.check_first(producer_id, header.producer_epoch, header.base_sequence)
        verdict = producers.check(state, header.producer_epoch, header.base_sequence, count)
        if type(verdict) is Duplicate:
            cycle.duplicates += count
            cycle.duplicate_bytes += len(batch)
            return Written(verdict.base_offset, verdict.log_append_time_ms, partition.start_offset)
        assert type(verdict) is int
        sequence = verdict
        if state is not None and state.transactional is not None:
            check_batch(state, header)
        if header.attributes & TRANSACTIONAL and (state is None or not state.is_open):
            _check_open_count(partition, cycle)
    topic = partition.settings.topic
    max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
    if topic.message_timestamp_type == "LogAppendTime":
        max_timestamp = append_time = cycle.now_ms
    elif max_timestamp != NO_TIMESTAMP:
        partition.settings.check_timestamps(batch, header, cycle.now_ms)
    has_limits = topic.pq_max_count_in_partition >= 0 or topic.pq_max_size_in_partition >= 0
    if has_limits or topic.pq_inactive_partitions or partition.settings.is_special:
        _check_open(partition, cycle)
    base_offset = cycle.end_offset
    if base_offset + count > OFFSET_MAX:
        text = f"{count} records do not fit below offset {OFFSET_MAX} any more: write to another partition"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
    if append_time >= 0:
        records.stamp_log_append_time(batch, append_time)
    records.stamp(batch, base_offset, partition.generation)
    run = partition.head.run
    run.append(batch, base_offset, max_timestamp, run.end == cycle.mark)
    cycle.end_offset = base_offset + count
    if producer_id >= 0:
        stored = StoredBatch(sequence, sequence + count - 1, base_offset, append_time)
        cycle.producers[producer_id] = producers.taken(
            state, header.producer_epoch, stored, max_timestamp, cycle.now_ms
        )
        if header.attributes & TRANSACTIONAL and (state is None or not state.is_open):
            _open(cycle, producer_id, base_offset)
    return Written(base_offset, append_time, cycle.start_offset)


def take_marker(
    marker: EndMarker, partition: Partition, cycle: Cycle, batch: memoryview, header: BatchHeader
) -> Written:
    """Append the batch of a marker, whatever would refuse a producer's batch now; the transaction that it ends is over.

    TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH.
    """
    producer_id, epoch, coordinator_epoch, is_commit = marker
    state = cycle.producers.get(producer_id) or partition.producers.producers.get(producer_id)
    producers.check_marker(state, epoch, coordinator_epoch)
    written = take_decided(partition, cycle, batch, header)
    offset = written.base_offset
    cycle.producers[producer_id] = producers.marked(state, epoch, coordinator_epoch, offset, cycle.now_ms)
    if state is not None and state.transactional is not None and state.is_open:
        if cycle.transactions is None:
            cycle.transactions = TransactionsChange()
        change = cycle.transactions
        change.ended.add(producer_id)
        if not is_commit:
            stable_offset = partition.transactions.stable_without(change.ended, cycle.end_offset)
            span = AbortedSpan(offset, producer_id, state.transactional.open_offset, stable_offset)
            change.aborted.append(span)
    return written


def take_decided(partition: Partition, cycle: Cycle, batch: memoryview, header: BatchHeader) -> Written:
    """Append a batch of a transaction that is committed, whatever would refuse another batch now: it was checked
    before it was prepared."""
    max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
    if partition.settings.topic.message_timestamp_type == "LogAppendTime":
        max_timestamp = append_time = cycle.now_ms
        records.stamp_log_append_time(batch, append_time)
    base_offset = cycle.end_offset
    records.stamp(batch, base_offset, partition.generation)
    run = partition.head.run
    run.append(batch, base_offset, max_timestamp, run.end == cycle.mark)
    cycle.end_offset = base_offset + header.last_offset_delta + 1
    return Written(base_offset, append_time, cycle.start_offset)


def _open(cycle: Cycle, producer_id: int, base_offset: int) -> None:
    """The batch at an offset opens its producer's transaction, in the same request."""
    cycle.producers[producer_id] = opened(cycle.producers[producer_id], base_offset, cycle.now_ms)
    if cycle.transactions is None:
        cycle.transactions = TransactionsChange()
    cycle.transactions.opened[producer_id] = base_offset


def _check_open_count(partition: Partition, cycle: Cycle) -> None:
    """Check that one more producer may have an open transaction: none of them may be forgotten. POLICY_VIOLATION."""
    count, count_max = len(partition.transactions.open), partition.settings.topic.pq_producer_ids_max
    if cycle.transactions is not None:
        count += len(cycle.transactions.opened)
    if count >= count_max:
        text = (
            f"{count} producers have open transactions in partition {partition.index}, of at most "
            f"pq.producer.ids.max={count_max}: end some of them, or raise it"
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)


def why_closed(partition: Partition, *, is_feed: bool = False) -> KafkaError | None:
    """Return the error that would refuse any batch now: not mounted, PARTITION_INACTIVE, PARTITION_IS_FULL, or of the
    change feed of a table. `is_feed`: the batch is the feed's own."""
    try:
        if not is_feed:
            partition.settings.check_no_feed(partition.index)
        _check_room(partition, partition.no_change(0))
    except KafkaError as refusal:
        return refusal
    return None


def _check_open(partition: Partition, cycle: Cycle) -> None:
    """Raise the error that refuses a producer's batch: as `_check_room`, and of the change feed of a table."""
    partition.settings.check_no_feed(partition.index)
    _check_room(partition, cycle)


def _check_room(partition: Partition, cycle: Cycle) -> None:
    """PARTITION_INACTIVE, PARTITION_IS_FULL (A.12.1, A.15, G.5): lasting conditions, so not a retriable code (H35)
    unless the topic wants one."""
    topic = partition.settings.topic
    partition.settings.check_mounted(partition.index)
    if not partition.is_active:
        text = f"partition {partition.index} is inactive by pq.inactive.partitions: write to another one"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
    if 0 <= topic.pq_max_count_in_partition <= cycle.end_offset - partition.start_offset:
        raise partition.settings.full(f"pq.max.count.in.partition={topic.pq_max_count_in_partition}")
    if 0 <= topic.pq_max_size_in_partition <= partition.size_bytes + partition.head.run.end - cycle.mark:
        raise partition.settings.full(f"pq.max.size.in.partition={topic.pq_max_size_in_partition}")
    if (weight_max := partition.settings.weight_max) is not None:
        new = 0 if cycle.rows is None else cycle.rows.weight_after - cycle.rows.weight_before
        if partition.facts.kept_weight(partition.bodies, partition.head) + new >= weight_max:
            raise partition.settings.full(f"max_ordered_tablet_data_weight={weight_max}")
