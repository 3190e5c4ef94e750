"""Documents about sorted tables and their tablets."""

from collections import Counter
from typing import Any

from pqbroker.conf.sorted_attributes import IN_MEMORY_MODES, sorted_document
from pqbroker.tables.mount import MountState, table_state
from pqbroker.tables.paths import table_path
from pqbroker.tables.serving.open_chunk import Preload
from pqbroker.tables.serving.preloading import MODE_NONE
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.pivots import show_pivot


def sorted_facts(table: SortedTable) -> dict[str, Any]:
    """Return what a list says of a table."""
    return {
        "name": table.record.name,
        "path": table_path(table.record.name),
        "dynamic": True,
        "sorted": True,
        "tablet_count": len(table.tablets),
        "state": table_state(table.states),
        "bundle": table.record.bundle,
    }


def shown_sorted(table: SortedTable) -> dict[str, Any]:
    """Return all that is said of a table."""
    return {
        **sorted_facts(table),
        "schema": list(table.record.columns),
        "formats": {},
        "attributes": sorted_document(table.record.attributes),
        "attributes_set": dict(table.record.attributes),
        "mounted_attributes": _agreed(table),
        "pivot_keys": [show_pivot(table.schema, pivot) for pivot in table.record.pivots],
    }


def shown_sorted_tablet(table: SortedTable, index: int) -> dict[str, Any]:
    """Return all that is said of a tablet."""
    record, tablet, state = table.record, table.tablets[index], table.state_of(index)
    home = str(record.cell_of(index))
    return {
        "index": index,
        "tablet_id": record.tablets[index],
        "state": state.value,
        "pivot_key": show_pivot(table.schema, record.pivots[index]),
        "cell_id": None if state is MountState.UNMOUNTED else home,
        "home_cell_id": home,
        "mounted_attributes": sorted_document(record.mounted.of_tablet(index)),
        "statistics": _statistics(tablet),
    }


def _agreed(table: SortedTable) -> dict[str, Any]:
    """Return the attributes that act alike in all tablets; the list of tablets has those of each."""
    first, *others = map(sorted_document, table.record.mounted.sets)
    return {name: value for name, value in first.items() if all(other[name] == value for other in others)}


def _statistics(tablet: SortedTablet) -> dict[str, Any]:
    """Return the statistics by the names of D.1."""
    structure = tablet.structure
    records = [chunk.record for chunk in structure.chunks.values()]
    compressed = sum(record.size for record in records)
    memory = tablet.memory_bytes
    mode = tablet.config.attributes.in_memory_mode
    preloads = Counter(chunk.preload for chunk in structure.chunks.values())
    return {
        "tablet_count": 1,
        "partition_count": len(structure.partitions),
        "chunk_count": len(records),
        "store_count": len(records) + sum(store.row_count > 0 for store in tablet.stores),
        "overlapping_store_count": tablet.structure.overlap,
        "unmerged_row_count": sum(record.rows for record in records),
        "compressed_data_size": compressed,
        "uncompressed_data_size": sum(record.unpacked_bytes for record in records),
        "hunk_compressed_data_size": 0,
        "hunk_uncompressed_data_size": 0,
        "disk_space": compressed,
        "disk_space_per_medium": {"default": compressed},
        "memory_size": memory,
        "dynamic_memory_pool_size": memory,
        "preload_completed_store_count": preloads[Preload.COMPLETED],
        "preload_pending_store_count": preloads[Preload.NONE] if mode != MODE_NONE else 0,
        "preload_failed_store_count": preloads[Preload.FAILED],
        "tablet_count_per_memory_mode": {each: int(each == mode) for each in IN_MEMORY_MODES},
    }
