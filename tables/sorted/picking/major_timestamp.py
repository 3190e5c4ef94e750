"""The major timestamp of a portion, and partitions whose chunks are dropped unread (C.8).

A task may remove versions below its major timestamp alone: everything older of the same keys is then in the portion,
so a removed deletion brings nothing back.
"""

from collections.abc import Collection, Iterator

from pqbroker.pq.log.commit_timestamps import milliseconds_of
from pqbroker.tables.sorted.picking.choice import Candidates, Choice, LeftOut, PickReason, age_order, candidates
from pqbroker.tables.sorted.picking.facts import PartitionChunks, TabletStores


def major_timestamp(tablet: TabletStores, partition: PartitionChunks | None, inputs: Collection[int]) -> int:
    """Return the timestamp below which a task on these chunks of a partition, or of Eden (None), may remove versions.

    It is the least one of all stores that may have keys of the portion and are not in it, dynamic stores too, and
    never above the tablet's barrier.
    """
    return min((tablet.barrier, *_least_timestamps(tablet, partition, inputs)))


def expired(tablet: TabletStores, partition: PartitionChunks, now_ms: int) -> Choice:
    """Choose all chunks of a partition to be dropped unread, or none.

    Every version of them is older than both ages, none is kept for its number, and no other store has an older one: a
    deletion among them hides nothing.
    """
    attributes = tablet.attributes
    found = candidates(partition.chunks, now_ms)
    is_allowed = attributes.enable_discarding_expired_partitions and attributes.min_data_versions == 0
    if not is_allowed or found.left_out or not found.chunks:
        return found.taking_none(LeftOut.NOT_CALLED_FOR)
    return _expired(tablet, partition, found, now_ms)


def _expired(tablet: TabletStores, partition: PartitionChunks, found: Candidates, now_ms: int) -> Choice:
    attributes = tablet.attributes
    greatest = max(chunk.greatest_timestamp for chunk in found.chunks)
    is_old = now_ms - milliseconds_of(greatest) > max(attributes.min_data_ttl, attributes.max_data_ttl)
    inputs = {chunk.number for chunk in found.chunks}
    if is_old and greatest < major_timestamp(tablet, partition, inputs):
        return found.taking(PickReason.EXPIRED, sorted(found.chunks, key=age_order), LeftOut.NOT_CALLED_FOR)
    return found.taking_none(LeftOut.NOT_CALLED_FOR)


def _least_timestamps(
    tablet: TabletStores, partition: PartitionChunks | None, inputs: Collection[int]
) -> Iterator[int]:
    for store in tablet.dynamic_stores():
        if store.least_timestamp is not None:
            yield store.least_timestamp
    for chunk in tablet.eden:
        if chunk.number not in inputs:
            yield chunk.least_timestamp
    for each in _below(tablet, partition, inputs):
        for chunk in each.chunks:
            if chunk.number not in inputs:
                yield chunk.least_timestamp


def _below(
    tablet: TabletStores, partition: PartitionChunks | None, inputs: Collection[int]
) -> Iterator[PartitionChunks]:
    """Yield the partitions whose chunks may have keys of the portion."""
    if partition is not None:
        yield partition
        return
    taken = [chunk for chunk in tablet.eden if chunk.number in inputs]
    for each in tablet.partitions:
        if any(chunk.touches(each.pivot, each.end) for chunk in taken):
            yield each
