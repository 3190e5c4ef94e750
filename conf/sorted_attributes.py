"""Attributes of a sorted table's tablets: names, defaults, ranges, and which of them depend on each other (C.3, K.3).

    attributes that depend on each other                                      rule
    min_, desired_, max_partition_data_size                                   each below the next
    min_, max_partitioning_data_size, …_store_count, …_compaction_store_count the first at most the second
    max_dynamic_store_row_count, max_dynamic_store_value_count                the first at most the second
    critical_overlapping_store_count                                          the lower of it and max_… counts
    auto_compaction_period                                                    null: splay ratio and mode do nothing
    enable_compaction_and_partitioning                                        false: nothing but rotation and flush runs

Sizes are bytes, times milliseconds. What is set is the table's; a tablet takes it when it is mounted or remounted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from pqbroker.conf.declare import Kind, setting

STORE, PARTITION = "store", "partition"
"""Values of periodic_compaction_mode."""
IN_MEMORY_MODES: Final = ("none", "compressed", "uncompressed")
FORCED_REVISION: Final = "forced_compaction_revision"
CHANGES_ATTRIBUTE: Final = "changes"
DYNAMIC_STORES_MAX: Final = 10
"""Dynamic stores of a tablet, the active one too, at which it takes no more writes: flushes do not keep up."""
PORTION_CHUNKS_MAX: Final = 100
"""Chunks that any attributes let one compaction or partitioning take; a periodic one of a partition takes them all."""
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SortedAttributes:
    """One tablet's attributes; those without a value are null."""

    dynamic_store_auto_flush_period: int | None = setting(
        "dynamic_store_auto_flush_period", Kind.LONG, 900_000,
        "Age in milliseconds at which a store with rows is flushed, though it is not full; null: never.", low=1,
    )  # fmt: skip
    dynamic_store_flush_period_splay: int = setting(
        "dynamic_store_flush_period_splay", Kind.LONG, 60_000,
        "Milliseconds added to that age at most; each store has its own part of them.", low=0,
    )  # fmt: skip
    merge_rows_on_flush: bool = setting(
        "merge_rows_on_flush", Kind.BOOLEAN, False,
        "Removal of old versions during a flush; otherwise all of them go to the chunk.",
    )  # fmt: skip
    merge_deletions_on_flush: bool = setting(
        "merge_deletions_on_flush", Kind.BOOLEAN, False,
        "Merging of a key's consecutive deletions into one during a flush, with merge_rows_on_flush or without it.",
    )  # fmt: skip
    max_dynamic_store_row_count: int = setting(
        "max_dynamic_store_row_count", Kind.LONG, 1_000_000,
        "Rows of a dynamic store at which it takes no more writes.", low=1,
    )  # fmt: skip
    max_dynamic_store_pool_size: int = setting(
        "max_dynamic_store_pool_size", Kind.LONG, 1024 * _MEBIBYTE,
        "Bytes of a dynamic store at which it takes no more writes.", low=1,
    )  # fmt: skip
    max_dynamic_store_value_count: int = setting(
        "max_dynamic_store_value_count", Kind.LONG, 1_000_000_000,
        "Values of a dynamic store at which it takes no more writes.", low=1,
    )  # fmt: skip
    max_dynamic_store_timestamp_count: int = setting(
        "max_dynamic_store_timestamp_count", Kind.LONG, 10_000_000,
        "Versions of all rows of a dynamic store at which it takes no more writes.", low=1,
    )  # fmt: skip
    dynamic_store_overflow_threshold: float = setting(
        "dynamic_store_overflow_threshold", Kind.DOUBLE, 0.7,
        "Part of a dynamic store's limits at which it is rotated.", low=0.01, high=1.0,
    )  # fmt: skip
    backing_store_retention_time: int = setting(
        "backing_store_retention_time", Kind.LONG, 60_000,
        "Kept for schemas of other systems, without effect: a flushed store leaves memory at once.", low=0,
    )  # fmt: skip
    enable_store_rotation: bool = setting("enable_store_rotation", Kind.BOOLEAN, True, "Rotation of dynamic stores.")
    enable_store_flush: bool = setting("enable_store_flush", Kind.BOOLEAN, True, "Flush of passive stores.")

    auto_compaction_period: int | None = setting(
        "auto_compaction_period", Kind.LONG, None,
        "Age in milliseconds at which each chunk is compacted, whether rows are written or not; null: never.", low=1,
    )  # fmt: skip
    auto_compaction_period_splay_ratio: float = setting(
        "auto_compaction_period_splay_ratio", Kind.DOUBLE, 0.3,
        "Part of the period that is added to it at most; each chunk has its own part of that.", low=0.0, high=100.0,
    )  # fmt: skip
    periodic_compaction_mode: str = setting(
        "periodic_compaction_mode", Kind.STRING, STORE,
        "Scope of periodic compaction: `store` takes the chunks that are due, `partition` all chunks of their partition"
        " together, which removes deleted rows.",
        choices=(STORE, PARTITION),
    )  # fmt: skip
    forced_compaction_revision: int | None = setting(
        FORCED_REVISION, Kind.LONG, None,
        "Revision below which chunks are compacted once; 1 stands for the table's next one, null: none.", low=1,
    )  # fmt: skip
    max_overlapping_store_count: int = setting(
        "max_overlapping_store_count", Kind.INT, 30, "Chunks over one key at which the tablet takes no more writes.",
        low=2,
    )  # fmt: skip
    critical_overlapping_store_count: int | None = setting(
        "critical_overlapping_store_count", Kind.INT, None,
        "Chunks over one key at which compaction ignores sizes; null: max_overlapping_store_count.", low=2,
    )  # fmt: skip
    enable_compaction_and_partitioning: bool = setting(
        "enable_compaction_and_partitioning", Kind.BOOLEAN, True,
        "Compaction, partitioning, splits and merges of partitions.",
    )  # fmt: skip
    min_partition_data_size: int = setting(
        "min_partition_data_size", Kind.LONG, 96 * _MEBIBYTE,
        "Compressed bytes below which a partition, with all of Eden, is merged with its neighbour.", low=1,
    )  # fmt: skip
    desired_partition_data_size: int = setting(
        "desired_partition_data_size", Kind.LONG, 256 * _MEBIBYTE,
        "Compressed bytes that partitions are given when one is split into many.", low=1,
    )  # fmt: skip
    max_partition_data_size: int = setting(
        "max_partition_data_size", Kind.LONG, 320 * _MEBIBYTE,
        "Compressed bytes above which a partition is split.", low=1,
    )  # fmt: skip
    max_partition_count: int = setting(
        "max_partition_count", Kind.INT, 10_240, "Partitions of a tablet at most.", low=1
    )  # fmt: skip
    min_partitioning_data_size: int = setting(
        "min_partitioning_data_size", Kind.LONG, 64 * _MEBIBYTE,
        "Compressed bytes of Eden that one partitioning takes at least.", low=1,
    )  # fmt: skip
    max_partitioning_data_size: int = setting(
        "max_partitioning_data_size", Kind.LONG, 1024 * _MEBIBYTE,
        "Compressed bytes of Eden that one partitioning takes at most.", low=1,
    )  # fmt: skip
    min_partitioning_store_count: int = setting(
        "min_partitioning_store_count", Kind.INT, 1, "Chunks of Eden that one partitioning takes at least.", low=1
    )
    max_partitioning_store_count: int = setting(
        "max_partitioning_store_count", Kind.INT, 5, "Chunks of Eden that one partitioning takes at most.", low=1,
        high=PORTION_CHUNKS_MAX,
    )  # fmt: skip
    min_compaction_store_count: int = setting(
        "min_compaction_store_count", Kind.INT, 3,
        "Chunks that one compaction takes at least; forced and periodic ones take fewer.", low=2,
    )  # fmt: skip
    max_compaction_store_count: int = setting(
        "max_compaction_store_count", Kind.INT, 5, "Chunks that one compaction takes at most.", low=2,
        high=PORTION_CHUNKS_MAX,
    )  # fmt: skip
    compaction_data_size_base: int = setting(
        "compaction_data_size_base", Kind.LONG, 16 * _MEBIBYTE,
        "Compressed bytes up to which the chunks of one compaction may have any sizes.", low=1,
    )  # fmt: skip
    compaction_data_size_ratio: float = setting(
        "compaction_data_size_ratio", Kind.DOUBLE, 2.0,
        "Size of a chunk at most, in a compaction, beside the sum of all smaller ones in it.", low=1.0, high=1e9,
    )  # fmt: skip
    max_stores_per_tablet: int = setting(
        "max_stores_per_tablet", Kind.INT, 10_000, "Chunks of a tablet at which it takes no more writes.", low=2
    )
    max_eden_stores_per_tablet: int = setting(
        "max_eden_stores_per_tablet", Kind.INT, 100, "Chunks of Eden at which the tablet takes no more writes.", low=2
    )
    max_eden_data_size_for_splitting: int | None = setting(
        "max_eden_data_size_for_splitting", Kind.LONG, None,
        "Compressed bytes of Eden at which no partition is split; null: no limit.", low=1,
    )  # fmt: skip
    overlapping_store_immediate_split_threshold: int = setting(
        "overlapping_store_immediate_split_threshold", Kind.INT, 20,
        "Chunks of a partition above which it is split between chunks that do not overlap.", low=1,
    )  # fmt: skip
    max_read_fan_in: int = setting(
        "max_read_fan_in", Kind.INT, 30, "Chunks over one key that a lookup reads at most.", low=2
    )
    samples_per_partition: int = setting(
        "samples_per_partition", Kind.INT, 100, "Keys of a partition that a split chooses its pivots from.", low=2,
        high=10_000,
    )  # fmt: skip
    enable_discarding_expired_partitions: bool = setting(
        "enable_discarding_expired_partitions", Kind.BOOLEAN, True,
        "Removal of a partition's chunks without reading them when all of their versions are too old.",
    )  # fmt: skip

    min_data_ttl: int = setting(
        "min_data_ttl", Kind.LONG, 1_800_000, "Age in milliseconds below which no version is removed.", low=0
    )
    max_data_ttl: int = setting(
        "max_data_ttl", Kind.LONG, 1_800_000, "Age in milliseconds above which a version may be removed.", low=0
    )
    min_data_versions: int = setting(
        "min_data_versions", Kind.INT, 1, "Newest versions of a value that are never removed.", low=0
    )
    max_data_versions: int = setting(
        "max_data_versions", Kind.INT, 1, "Newest versions of a value beyond which the others may be removed.", low=0
    )
    in_memory_mode: str = setting(
        "in_memory_mode", Kind.STRING, "none",
        "Form in which all chunks are kept in memory: as on disk, or unpacked.", choices=IN_MEMORY_MODES,
    )  # fmt: skip
    changes: str | None = setting(
        CHANGES_ATTRIBUTE, Kind.STRING, None,
        "Topic, or ordered table, that gets a record for each change of a row, in the commit of the row; null: none.",
    )  # fmt: skip

    @property
    def critical_overlap(self) -> int:
        """Return the overlapping store count at which compaction ignores sizes."""
        return min(self.max_overlapping_store_count, self.critical_overlapping_store_count or 1 << 31)


NULLABLE: Final = frozenset({
    "auto_compaction_period", CHANGES_ATTRIBUTE, "critical_overlapping_store_count", "dynamic_store_auto_flush_period",
    FORCED_REVISION, "max_eden_data_size_for_splitting",
})  # fmt: skip
STRICTLY_BELOW: Final = (
    ("min_partition_data_size", "desired_partition_data_size"),
    ("desired_partition_data_size", "max_partition_data_size"),
)
"""Attributes of which the first is below the second."""
AT_MOST: Final = (
    ("min_partitioning_data_size", "max_partitioning_data_size"),
    ("min_partitioning_store_count", "max_partitioning_store_count"),
    ("min_compaction_store_count", "max_compaction_store_count"),
    ("max_dynamic_store_row_count", "max_dynamic_store_value_count"),
)
"""Attributes of which the first is at most the second."""


def sorted_in_force(attributes: Mapping[str, Any]) -> SortedAttributes:
    """Return the attributes with the defaults of those that are not set; what is set was checked."""
    return replace(SortedAttributes(), **attributes)


def sorted_document(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same by name, to be shown."""
    found = sorted_in_force(attributes)
    return {one.name: getattr(found, one.name) for one in fields(found)}  # none of their values has parts
