"""The major timestamp of a portion, and partitions whose chunks are dropped unread (C.8).

A task may remove versions below its major timestamp alone: everything older of the same keys is then in the portion,
so a removed deletion brings nothing back.
"""

from collections.abc import Collection, Iterable, Iterator

from pqbroker.pq.log.commit_timestamps import milliseconds_of
from pqbroker.tables.sorted.picking.choice import Candidates, Choice, LeftOut, PickReason, age_order, candidates
from pqbroker.tables.sorted.picking.facts import DynamicStore, PartitionChunks, TabletStores


def major_timestamp(tablet: TabletStores, inputs: Collection[int]) -> int:
    """Return the timestamp below which a task on these chunks may remove versions.

    It is the least one of all stores that may have keys of the portion and are not in it: dynamic stores, Eden, and the
    partitions that the portion touches as they are now. It is never above the tablet's barrier.
    """
    taken = [chunk for chunk in tablet.chunks() if chunk.number in inputs]
    assert len(taken) == len(inputs), f"chunks {sorted(inputs)} are {sorted(chunk.number for chunk in taken)}"
    beside = [*tablet.eden]
    for partition in tablet.partitions:
        if any(chunk.touches(partition.pivot, partition.end) for chunk in taken):
            beside += partition.chunks
    held = (chunk.least_timestamp for chunk in beside if chunk.number not in inputs)
    return min((tablet.barrier, *held, *_of_memory(tablet.dynamic_stores())))


def major_timestamp_of_flush(tablet: TabletStores, number: int) -> int:
    """Return the same for the flush of a dynamic store, whose keys may be any of the tablet's."""
    held = (chunk.least_timestamp for chunk in tablet.chunks())
    others = (store for store in tablet.dynamic_stores() if store.number != number)
    return min((tablet.barrier, *held, *_of_memory(others)))


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
    return _expired(tablet, found, now_ms)


def _expired(tablet: TabletStores, found: Candidates, now_ms: int) -> Choice:
    attributes = tablet.attributes
    greatest = max(chunk.greatest_timestamp for chunk in found.chunks)
    is_old = now_ms - milliseconds_of(greatest) > max(attributes.min_data_ttl, attributes.max_data_ttl)
    inputs = {chunk.number for chunk in found.chunks}
    if is_old and greatest < major_timestamp(tablet, inputs):
        return found.taking(PickReason.EXPIRED, sorted(found.chunks, key=age_order), LeftOut.NOT_CALLED_FOR)
    return found.taking_none(LeftOut.NOT_CALLED_FOR)


def _of_memory(stores: Iterable[DynamicStore]) -> Iterator[int]:
    return (store.least_timestamp for store in stores if store.least_timestamp is not None)
