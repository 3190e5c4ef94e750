"""Pivots of a tablet's partitions once some are split and others merged: from samples of their chunks (C.7)."""

from collections.abc import Sequence

from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.picking.balancing import PartitionMerge, PartitionSplit
from pqbroker.tables.sorted.picking.pivots import KeySample, split_pivots


async def balanced_pivots(
    tablet: SortedTablet, splits: Sequence[PartitionSplit], merges: Sequence[PartitionMerge]
) -> tuple[list[bytes], list[PartitionSplit]]:
    """Return the pivots of all partitions afterwards, and the splits that samples have no pivots for. BlobMissing,
    ChunkDamaged; ShardLost."""
    pivots = set(tablet.structure.pivots) - {merge.right.pivot for merge in merges}
    unsplit = []
    for split in splits:
        added = split.pivots or await _sampled_pivots(tablet, split)
        if not added:
            unsplit.append(split)
        pivots.update(added)
    return sorted(pivots), unsplit


async def _sampled_pivots(tablet: SortedTablet, split: PartitionSplit) -> Sequence[bytes]:
    samples: list[KeySample] = []
    for facts in split.partition.chunks:
        chunk = tablet.structure.chunks.get(facts.number)
        if chunk is not None:
            index = await chunk.read_index(tablet.kv)
            samples += [KeySample(bytes.fromhex(key), weight) for key, weight in index.facts.samples]
    partition = split.partition
    return split_pivots(samples, split.parts, partition.pivot, partition.end, split.least_share)
