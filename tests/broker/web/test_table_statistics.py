"""Statistics of a table's tablets, by the names of D.1."""

from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, tablets

NAMES = {
    "chunk_count", "compressed_data_size", "disk_space", "disk_space_per_medium", "dynamic_memory_pool_size",
    "hunk_compressed_data_size", "hunk_uncompressed_data_size", "memory_size", "overlapping_store_count",
    "partition_count", "preload_completed_store_count", "preload_failed_store_count",
    "preload_pending_store_count", "store_count", "tablet_count", "tablet_count_per_memory_mode",
    "uncompressed_data_size", "unmerged_row_count",
}  # fmt: skip


async def statistics(web: Web) -> dict[str, Any]:
    (found,) = await tablets(web, "statistics")
    return dict(found)


@pytest.mark.spec("D.1")
async def test_statistics_have_their_names_and_rows_move_from_the_store_to_a_chunk(web: Web) -> None:
    await create(web)
    empty = await statistics(web)
    assert empty.keys() == NAMES
    assert (empty["chunk_count"], empty["store_count"], empty["disk_space"]) == (0, 0, 0)
    await insert(web, *({"id": number} for number in range(3)))
    written = await statistics(web)
    assert (written["chunk_count"], written["store_count"], written["unmerged_row_count"]) == (0, 1, 0)
    assert written["disk_space"] == written["disk_space_per_medium"]["default"] > 0
    assert written["dynamic_memory_pool_size"] > 0
    assert (await web.ask("POST", f"/v1/tables/{NAME}/freeze", {}))[0] == 200
    flushed = await statistics(web)
    assert (flushed["chunk_count"], flushed["store_count"], flushed["unmerged_row_count"]) == (1, 1, 3)
    assert flushed["compressed_data_size"] == flushed["uncompressed_data_size"] == flushed["disk_space"]
    assert flushed["tablet_count_per_memory_mode"] == {"none": 1, "compressed": 0, "uncompressed": 0}
