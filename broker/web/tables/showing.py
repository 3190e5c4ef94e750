"""Documents about tables and their tablets."""

from collections.abc import Sequence
from typing import Any

from pqbroker.broker.services.tables.finding import state_of, states
from pqbroker.broker.services.topics import topic_schemas
from pqbroker.conf.table_attributes import in_force
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_state import TableRecord
from pqbroker.tables.mount import MountState, table_state
from pqbroker.tables.paths import table_path

NO_TABLETS = "none"
"""The state of a static table."""
COUNTS = ("trimmed_row_count", "flushed_row_count", "total_row_count")
"""Facts of a tablet that its own node knows."""


def tablets_of(topic: Topic) -> Sequence[PartitionServer]:
    """Return the tablets of a table, of which a static one has none."""
    return () if topic.record.is_static else topic.partitions


def facts(topic: Topic) -> dict[str, Any]:
    """Return what a list says of a table."""
    return {
        "name": topic.record.name,
        "path": table_path(topic.record.name),
        "dynamic": not topic.record.is_static,
        "sorted": False,
        "tablet_count": len(tablets_of(topic)),
        "state": NO_TABLETS if topic.record.is_static else table_state(states(topic)),
        "bundle": topic.config.pq_bundle,
    }


def shown(topic: Topic) -> dict[str, Any]:
    """All that is said of a table; a topic that was not made as one has no attributes, but configs."""
    table = topic.record.table
    stored = topic_schemas.schema_of(topic)
    return {
        **facts(topic),
        "schema": list(table.columns if table else stored.columns if stored else ()),
        "formats": topic_schemas.formats_of(topic),
        "attributes": in_force(table.attributes) if table else {},
        "attributes_set": dict(table.attributes) if table else {},
        "mounted_attributes": _agreed(table) if table else {},
    }


def _agreed(table: TableRecord) -> dict[str, Any]:
    """Attributes that act alike in all tablets; the list of tablets has those of each."""
    first, *others = map(in_force, table.mounted.sets)
    return {name: value for name, value in first.items() if all(other[name] == value for other in others)}


def shown_tablet(topic: Topic, partition: PartitionServer) -> dict[str, Any]:
    table, log = topic.record.table, partition.state
    state = state_of(topic, partition.index)
    home = str(topic.record.cell_of(partition.index))
    flushed = log.head.blobs[0].offset if log.head.blobs else log.end_offset
    return {
        "index": partition.index,
        "tablet_id": topic.record.tablet_of(partition.index),
        "state": state.value,
        "trimmed_row_count": log.start_offset,
        "flushed_row_count": flushed,
        "total_row_count": log.end_offset,
        "cell_id": None if state is MountState.UNMOUNTED else home,
        "home_cell_id": home,
        "mounted_attributes": {} if table is None else in_force(table.mounted.of_tablet(partition.index)),
        "statistics": _statistics(log),
    }


def _statistics(log: Partition) -> dict[str, Any]:
    """Return the statistics by the names of D.1. A chunk is a body blob, the dynamic store is the head, and the store
    compresses nothing: batches lie there as they came. What only sorted tables have is 0."""
    chunks, size = len(log.bodies), log.size_bytes
    first, end = (log.bodies.offsets[0], log.bodies.ends[-1]) if chunks else (0, 0)
    return {
        "tablet_count": 1,
        "partition_count": 0,
        "chunk_count": chunks,
        "store_count": chunks + bool(log.head.blobs),
        "overlapping_store_count": 0,
        "unmerged_row_count": end - first,
        "compressed_data_size": size,
        "uncompressed_data_size": size,
        "hunk_compressed_data_size": 0,
        "hunk_uncompressed_data_size": 0,
        "disk_space": size,
        "disk_space_per_medium": {"default": size},
        "memory_size": log.head.run.held,
        "dynamic_memory_pool_size": log.head.run.held,
        "preload_completed_store_count": 0,
        "preload_pending_store_count": 0,
        "preload_failed_store_count": 0,
        "tablet_count_per_memory_mode": {"none": 1, "compressed": 0, "uncompressed": 0},
    }
