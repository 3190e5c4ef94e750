"""Partitions that are split or merged (C.7, K.3).

Neither reads a chunk, or changes how many lie over a key: chunks that cross a new border are Eden's from then on.

    a partition is split when                                       into
    it has more than max_partition_data_size                        two, by samples; more beyond twice that size
    it has more than overlapping_store_immediate_split_threshold    parts between chunks that do not overlap
    chunks, and borders between them
    it and all of Eden have less than min_partition_data_size       (it is merged with its right neighbour)
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.tables.sorted.picking.facts import ChunkStore, PartitionChunks, TabletStores
from pqbroker.tables.sorted.picking.overlap import Overlap

FAR_PAST = 2
"""Times of max_partition_data_size from which a partition is split into more than two."""


@dataclass(frozen=True, slots=True)
class PartitionSplit:
    """A partition to be split. Where samples allow no pivots it backs off."""

    partition: PartitionChunks
    parts: int
    """Parts at most; samples may allow fewer (`pivots.split_pivots`)."""
    least_share: float
    """Share of the partition's bytes that each part has at least."""
    pivots: tuple[bytes, ...] = ()
    """New pivots where chunks give them: no sample is needed. Empty: samples give them."""

    @property
    def reason(self) -> str:
        """Return the reason of the split, as it is shown."""
        if self.pivots:
            return "more than overlapping_store_immediate_split_threshold chunks, and borders between them"
        return "more than max_partition_data_size"

    def is_done(self, before: Collection[bytes], after: Iterable[bytes]) -> bool:
        """Return True if pivots of after it divide the partition, and those of before did not."""
        pivot, end = self.partition.pivot, self.partition.end
        return any(one > pivot and (end is None or one < end) for one in after if one not in before)


@dataclass(frozen=True, slots=True)
class PartitionMerge:
    """Two neighbours to be merged into one."""

    left: PartitionChunks
    right: PartitionChunks

    @property
    def reason(self) -> str:
        """Return the reason of the merge, as it is shown."""
        return "less than min_partition_data_size, Eden included"


def pick_splits(tablet: TabletStores, overlaps: tuple[Overlap, ...], now_ms: int) -> tuple[PartitionSplit, ...]:
    """Return the partitions to be split now.

    None is while Eden is being partitioned, since that writes chunks for the borders of now; nor a partition that a
    task reads, that has its limit of chunks over a key, or whose chunks would bring Eden to one of its own limits.
    """
    attributes = tablet.attributes
    if tablet.is_eden_partitioning or not attributes.enable_compaction_and_partitioning:
        return ()
    found: list[PartitionSplit] = []
    room = attributes.max_partition_count - len(tablet.partitions)
    eden_count, eden_bytes = len(tablet.eden), tablet.eden_bytes
    for partition, overlap in zip(tablet.partitions, overlaps, strict=True):
        if partition.is_busy or overlap.count >= attributes.critical_overlap:
            continue
        split = _split_between(partition, room, attributes)
        if split is None and now_ms >= partition.backoff_until_ms:
            split = _split_by_size(partition, room, attributes)
        if split is None:
            continue
        if not split.pivots:
            if not _has_room(attributes, eden_count + len(partition.chunks), eden_bytes):
                continue
            eden_count += len(partition.chunks)
            eden_bytes += partition.compressed_bytes
        found.append(split)
        room -= split.parts - 1
    return tuple(found)


def pick_merges(tablet: TabletStores, splits: tuple[PartitionSplit, ...], now_ms: int) -> tuple[PartitionMerge, ...]:
    """Return the neighbours to be merged now, each partition once; none of `splits`.

    The last one is merged with its left neighbour.
    """
    attributes = tablet.attributes
    if not attributes.enable_compaction_and_partitioning:
        return ()
    used = {split.partition.pivot for split in splits}
    found = []
    eden_bytes = tablet.eden_bytes
    for index, partition in enumerate(tablet.partitions):
        if partition.compressed_bytes + eden_bytes >= attributes.min_partition_data_size:
            continue
        first = min(index, len(tablet.partitions) - 2)
        pair = tablet.partitions[first : first + 2] if first >= 0 else ()
        if pair and used.isdisjoint(each.pivot for each in pair) and all(_is_ready(each, now_ms) for each in pair):
            used.update(each.pivot for each in pair)
            found.append(PartitionMerge(*pair))
    return tuple(found)


def split_parts(compressed_bytes: int, room: int, attributes: SortedAttributes) -> int:
    """Return how many parts a partition of that size is split into, with room for `room` more; below 2: none."""
    if compressed_bytes <= attributes.max_partition_data_size:
        return 1
    parts = 2
    if compressed_bytes > FAR_PAST * attributes.max_partition_data_size:
        parts = compressed_bytes // attributes.desired_partition_data_size + 1
    return min(parts, compressed_bytes // attributes.min_partition_data_size, room + 1)


def _split_by_size(partition: PartitionChunks, room: int, attributes: SortedAttributes) -> PartitionSplit | None:
    size = partition.compressed_bytes
    parts = split_parts(size, room, attributes)
    return PartitionSplit(partition, parts, attributes.min_partition_data_size / size) if parts > 1 else None


def _split_between(partition: PartitionChunks, room: int, attributes: SortedAttributes) -> PartitionSplit | None:
    if len(partition.chunks) <= attributes.overlapping_store_immediate_split_threshold or room < 1:
        return None
    pivots = _borders(partition, attributes)[:room]
    if not pivots:
        return None
    share = attributes.min_partition_data_size / partition.compressed_bytes
    return PartitionSplit(partition, len(pivots) + 1, share, pivots)


def _borders(partition: PartitionChunks, attributes: SortedAttributes) -> tuple[bytes, ...]:
    """Return first keys of chunks that no chunk lies across, so that each part has at least the smallest size; as soon
    as one has the desired size it ends."""
    ordered = sorted(partition.chunks, key=lambda chunk: (chunk.first_key, chunk.number))
    rest = partition.compressed_bytes
    pivots: list[bytes] = []
    size = 0
    last_key: bytes | None = None
    for chunk in ordered:
        is_border = last_key is not None and chunk.first_key > last_key and chunk.first_key > partition.pivot
        if is_border and _ends_part(size, chunk, attributes) and rest >= attributes.min_partition_data_size:
            pivots.append(chunk.first_key)
            size = 0
        size += chunk.compressed_bytes
        rest -= chunk.compressed_bytes
        last_key = chunk.last_key if last_key is None else max(last_key, chunk.last_key)
    return tuple(pivots)


def _ends_part(size: int, following: ChunkStore, attributes: SortedAttributes) -> bool:
    """Return True if a part of that size ends before the chunk."""
    is_past = size + following.compressed_bytes > attributes.max_partition_data_size
    least = attributes.min_partition_data_size if is_past else attributes.desired_partition_data_size
    return size >= max(least, attributes.min_partition_data_size)


def _has_room(attributes: SortedAttributes, eden_count: int, eden_bytes: int) -> bool:
    """Return True if Eden may take the chunks of one more partition: `eden_bytes` are those before."""
    bytes_max = attributes.max_eden_data_size_for_splitting
    return eden_count < attributes.max_eden_stores_per_tablet and (bytes_max is None or eden_bytes < bytes_max)


def _is_ready(partition: PartitionChunks, now_ms: int) -> bool:
    return not partition.is_busy and now_ms >= partition.backoff_until_ms
