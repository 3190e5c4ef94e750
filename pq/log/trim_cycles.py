"""Write cycles that delete the oldest records: for DeleteRecords, and for retention (semantics A.11)."""

from pqbroker.pq.log.head import first_kept
from pqbroker.pq.log.keys import (
    aborted_key,
    aborted_range,
    data_range,
    data_start,
    meta_key,
    producer_keys,
    session_keys,
)
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.retention import TRIMMED_BLOBS_MAX, FirstUnread, start_after_auto_trim, start_after_retention
from pqbroker.pq.log.start_state import Meta
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.storage.kv.commands import DeleteRange


def plan_trim(partition: Partition, offset: int, now_ms: int) -> Cycle:
    """Plan to move StartOffset up to `offset`, deleting the blobs that lie before it whole (DeleteRecords,
    retention); less far, where these are more than `TRIMMED_BLOBS_MAX`."""
    assert not partition.is_writing
    assert partition.start_offset <= offset <= partition.end_offset
    if partition.bodies.find(offset) > TRIMMED_BLOBS_MAX:
        offset = partition.bodies.offsets[TRIMMED_BLOBS_MAX]
    cycle = partition.no_change(now_ms)
    if offset == partition.start_offset:
        return cycle
    partition.is_writing = True
    cycle.start_offset = offset
    first = first_kept(partition.bodies, partition.head, offset)
    lo, hi = data_range(partition.index)[0], data_start(partition.index, first)
    cycle.commands.append(DeleteRange(lo, True, hi, False))
    if (trimmed := partition.facts.trim(first)) is not None:
        cycle.commands.append(trimmed)
    epochs = list(partition.epochs.to_store())
    has_aborted = _trim_aborted(partition, cycle, first)
    cycle.store(meta_key(partition.index), Meta(offset, partition.end_offset, epochs, has_aborted).encode())
    return cycle


def _trim_aborted(partition: Partition, cycle: Cycle, first: int) -> bool:
    """Delete what is stored of aborted transactions whose markers lie before the first blob. Return True if others are
    left."""
    aborted = partition.transactions.aborted
    if aborted is None:
        return False
    count = aborted.count_before(first)
    if count:
        lo, hi = aborted_range(partition.index)[0], aborted_key(partition.index, first)
        cycle.commands.append(DeleteRange(lo, True, hi, False))
    return count < len(aborted)


def plan_retention(partition: Partition, now_ms: int, first_unread: FirstUnread) -> Cycle:
    """Plan what age, size and important groups (`first_unread`) demand, and the forgetting of producers that were
    idle for too long; an empty plan when there is nothing."""
    offset = _start_after_retention(partition, now_ms, first_unread)
    start_offset = partition.start_offset
    cycle = plan_trim(partition, start_offset if offset is None else max(offset, start_offset), now_ms)
    cycle.forgotten = _expired(partition, cycle.start_offset, now_ms)
    cycle.gone += producer_keys(partition.index, cycle.forgotten)
    kept_ms = partition.settings.producers_kept_ms
    cycle.forgotten_sessions = partition.sessions.expired(cycle.start_offset, now_ms, kept_ms)
    cycle.gone += session_keys(partition.index, cycle.forgotten_sessions)
    partition.is_writing = not cycle.is_empty
    return cycle


def is_retention_due(partition: Partition, now_ms: int, first_unread: FirstUnread) -> bool:
    """Return True if `plan_retention` would find something to do now."""
    if _start_after_retention(partition, now_ms, first_unread) is not None:
        return True
    if _expired(partition, partition.start_offset, now_ms):
        return True
    return bool(partition.sessions.expired(partition.start_offset, now_ms, partition.settings.producers_kept_ms))


def _start_after_retention(partition: Partition, now_ms: int, first_unread: FirstUnread) -> int | None:
    kept = start_after_retention(
        partition.bodies, partition.head, partition.end_offset, partition.settings, now_ms, first_unread
    )
    if not partition.settings.topic.pq_auto_trim:
        return kept
    trimmed = start_after_auto_trim(
        partition.bodies, partition.head, (partition.start_offset, partition.end_offset), partition.settings.topic,
        now_ms, first_unread,
    )  # fmt: skip
    return max((offset for offset in (kept, trimmed) if offset is not None), default=None)


def _expired(partition: Partition, start_offset: int, now_ms: int) -> list[int]:
    settings = partition.settings
    count_max = settings.topic.pq_producer_ids_max
    return partition.producers.expired(start_offset, now_ms, settings.producers_kept_ms, count_max)
