"""Sorted tables whose rows are flushed, compacted, partitioned: by real workers, and read as before."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.tables.serving import background
from pqbroker.tables.serving.open_chunk import Preload
from pqbroker.tables.serving.tablet import SortedTablet
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, reopen, row


def tablet_of(web: Web, index: int = 0) -> SortedTablet:
    found: SortedTablet = web.node.server.node.cell.current.sorted_tables.tables["shop.stock"].tablets[index]
    return found


async def flush(web: Web) -> None:
    """Write all rows to chunks, and take rows again."""
    for verb in ("freeze", "unfreeze"):
        status, answer = await web.ask("POST", f"{PATH}/{verb}", {})
        assert status == 200, answer


async def statistics(web: Web) -> Any:
    _, answer = await web.ask("GET", f"{PATH}/tablets")
    return answer["tablets"][0]["statistics"]


async def set_attributes(web: Web, **attributes: Any) -> None:
    status, answer = await web.ask("PATCH", PATH, {"attributes": attributes})
    assert status == 200, answer
    status, answer = await web.ask("POST", f"{PATH}/remount", {})
    assert status == 200, answer


async def holds(web: Web, condition: Callable[[], bool]) -> None:
    """Background work is looked for until something holds."""
    background = web.node.server.node.cell.current.sorted_tables.background
    async with asyncio.timeout(30):
        while not condition():
            background.look_soon()
            await asyncio.sleep(0.01)


async def test_flushed_rows_are_read_from_a_chunk_with_all_their_versions(web: Web) -> None:
    await create(web)
    first = await insert(web, *(row("a", number, note=f"n{number}", count=number) for number in range(300)))
    second = await insert(web, row("a", 7, count=70), update=True)
    deleted = await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("a", 8)]})
    await flush(web)
    assert tablet_of(web).structure.chunks
    assert await look_up(web, row("a", 7), row("a", 8), row("a", 9), row("b", 1)) == [
        row("a", 7, note="n7", count=70), None, row("a", 9, note="n9", count=9), None,
    ]  # fmt: skip
    assert await look_up(web, row("a", 7), row("a", 8), timestamp=second - 1) == [
        row("a", 7, note="n7", count=7), row("a", 8, note="n8", count=8),
    ]  # fmt: skip
    assert await look_up(web, row("a", 7), timestamp=first - 1) == [None]
    assert deleted[1]["timestamp"] > second
    found = await statistics(web)
    assert {name: found[name] for name in ("chunk_count", "overlapping_store_count", "partition_count")} == {
        "chunk_count": 1, "overlapping_store_count": 1, "partition_count": 1,
    }  # fmt: skip
    assert found["unmerged_row_count"] == 302
    assert found["compressed_data_size"] < found["uncompressed_data_size"]


async def test_rows_of_chunks_and_of_memory_are_read_together_after_a_restart(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, note="old", count=1), row("a", 2, note="two"))
    await flush(web)
    await insert(web, row("a", 1, count=2), update=True)
    await reopen(web)
    assert await look_up(web, row("a", 1), row("a", 2)) == [
        row("a", 1, note="old", count=2), row("a", 2, note="two", count=None),
    ]  # fmt: skip
    assert len(tablet_of(web).structure.chunks) == 1
    await web.ask("POST", f"{PATH}/unmount", {})
    assert list(tablet_of(web).kv.keys(b"l", b"m")) == [], "an unmounted tablet has all its rows in chunks"
    await web.ask("POST", f"{PATH}/mount", {})
    assert (await look_up(web, row("a", 1)))[0]["count"] == 2
    assert len(tablet_of(web).structure.chunks) == 2


async def test_a_full_store_rotates_and_is_flushed_by_itself(web: Web) -> None:
    await create(web, attributes={"max_dynamic_store_row_count": 100})
    await insert(web, *(row("a", number) for number in range(69)))
    tablet = tablet_of(web)
    await holds(web, lambda: not tablet.passive)
    assert not tablet.structure.chunks
    await insert(web, row("a", 69))
    await holds(web, lambda: len(tablet.structure.chunks) == 1 and not tablet.passive)
    assert tablet.active.row_count == 0
    assert all(await look_up(web, row("a", 0), row("a", 69)))
    history = web.node.server.node.cell.current.sorted_tables.background.history
    await holds(web, lambda: not history.running)
    (task,) = history.ended
    assert (task.kind, task.reason) == ("flush", "overflow")


async def test_a_store_that_is_old_is_flushed_and_one_that_was_passive_before(web: Web) -> None:
    period = {"dynamic_store_auto_flush_period": 60_000, "dynamic_store_flush_period_splay": 0}
    await create(web, attributes={**period, "enable_store_flush": False})
    await insert(web, row("a", 1))
    web.node.clock.now_ms += 60_000
    await holds(web, lambda: bool(tablet_of(web).passive))
    assert [store.passive_for for store in tablet_of(web).stores] == ["periodic", ""]
    await insert(web, row("a", 2))
    await reopen(web)
    await until(lambda: len(tablet_of(web).stores) == 2)
    assert tablet_of(web).passive[0].passive_for == "replayed"
    await set_attributes(web, enable_store_flush=True)
    history = web.node.server.node.cell.current.sorted_tables.background.history
    await holds(web, lambda: bool(tablet_of(web).structure.chunks) and not history.running)
    assert history.ended[-1].reason == "replayed"


async def test_small_chunks_are_compacted_and_superseded_versions_go(web: Web) -> None:
    await create(web, attributes={"min_data_ttl": 0, "max_data_ttl": 0})
    tablet = tablet_of(web)
    for number in range(3):
        web.node.clock.now_ms += 10
        await insert(web, *(row("a", key, count=number) for key in range(50)))
        web.node.clock.now_ms += 10
        await flush(web)
    history = web.node.server.node.cell.current.sorted_tables.background.history
    await holds(web, lambda: len(tablet.structure.chunks) == 1 and not history.running)
    (chunk,) = tablet.structure.chunks.values()
    assert chunk.record.rows == 50
    assert await look_up(web, row("a", 0)) == [row("a", 0, note=None, count=2)]
    assert [(task.kind, task.reason) for task in history.ended][-1] == ("compaction", "regular")
    assert history.ended[-1].rows_read == 150
    status, code, _ = await web.refusal("POST", f"{PATH}/lookup", {"keys": [row("a", 0)], "timestamp": 5})
    assert (status, code) == (400, "TIMESTAMP_TOO_OLD")


async def test_forced_compaction_rewrites_each_chunk_once(web: Web) -> None:
    await create(web, attributes={"min_data_ttl": 0, "max_data_ttl": 0})
    await insert(web, row("a", 1, count=1), row("a", 2))
    await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("a", 1)]})
    await flush(web)
    web.node.clock.now_ms += 10
    tablet = tablet_of(web)
    (before,) = tablet.structure.chunks
    await set_attributes(web, forced_compaction_revision=1)
    await holds(web, lambda: before not in tablet.structure.chunks)
    (chunk,) = tablet.structure.chunks.values()
    assert (chunk.record.rows, chunk.record.deletes) == (1, 0)
    after = chunk.number
    await holds(web, lambda: not web.node.server.node.cell.current.sorted_tables.background.history.running)
    assert list(tablet.structure.chunks) == [after]


async def test_a_large_partition_is_split_and_eden_is_partitioned(web: Web) -> None:
    sizes = {"min_partition_data_size": 2000, "desired_partition_data_size": 5000, "max_partition_data_size": 8000}
    eden = {"min_partitioning_data_size": 1000, "samples_per_partition": 50}
    await create(web, attributes={**sizes, **eden})
    tablet = tablet_of(web)
    rows = [row("a", number, note=f"{number * 7919 % 10007:x}" * 8) for number in range(2000)]
    await insert(web, *rows)
    await flush(web)
    await holds(web, lambda: len(tablet.structure.partitions) > 1 and not tablet.structure.eden)
    keys = [row("a", one["id"]) for one in rows[::97]]
    assert await look_up(web, *keys) == [{**one, "count": None} for one in rows[::97]]
    await reopen(web)
    assert len(tablet_of(web).structure.partitions) > 1
    assert await look_up(web, *keys) == [{**one, "count": None} for one in rows[::97]]


async def test_too_many_chunks_over_a_key_stop_writes_until_compaction_is_switched_on(web: Web) -> None:
    await create(web, attributes={"max_overlapping_store_count": 3, "enable_compaction_and_partitioning": False})
    for number in range(3):
        await insert(web, row("a", 1, count=number))
        await flush(web)
    status, code, message = await web.refusal("POST", f"{PATH}/rows", {"rows": [row("a", 2)]})
    assert (status, code) == (503, "TOO_MANY_OVERLAPPING_STORES")
    assert "all writes disabled" in message
    await set_attributes(web, enable_compaction_and_partitioning=True)
    tablet = tablet_of(web)
    await holds(web, lambda: tablet.structure.overlap < 3)
    await insert(web, row("a", 2))


async def test_a_lookup_that_would_read_too_many_chunks_is_refused_until_they_are_compacted(web: Web) -> None:
    await create(web, attributes={"max_read_fan_in": 2, "enable_compaction_and_partitioning": False})
    for number in range(3):
        await insert(web, row("a", 1, count=number), row("a", 2 + number))
        await flush(web)
    for asked in ({"keys": [row("a", 1)]}, {"prefix": {"shop": "a"}}):
        status, code, message = await web.refusal("POST", f"{PATH}/lookup", asked)
        assert (status, code) == (503, "READ_FAN_IN_EXCEEDED")
        assert "3 chunks over one key, and max_read_fan_in is 2" in message
    assert await look_up(web, row("a", 4)) == [row("a", 4, note=None, count=None)], "one chunk has it"
    await insert(web, row("a", 1, count=9))
    assert (await look_up(web, row("a", 1)))[0]["count"] == 9, "what is in memory hides them"
    await set_attributes(web, enable_compaction_and_partitioning=True)
    await holds(web, lambda: len(tablet_of(web).structure.chunks) == 1)
    _, answer = await web.ask("POST", f"{PATH}/lookup", {"prefix": {"shop": "a"}})
    assert [one["count"] for one in answer["rows"]] == [9, None, None, None]


async def test_writes_go_on_while_a_store_is_flushed(web: Web) -> None:
    await create(web, attributes={"max_dynamic_store_row_count": 200})
    tablet = tablet_of(web)
    for number in range(40):
        await insert(web, *(row("a", key, count=number) for key in range(number * 20, number * 20 + 20)))
    await holds(web, lambda: not tablet.passive)
    await until(lambda: bool(tablet.structure.chunks))
    found = await look_up(web, *(row("a", key) for key in range(800)))
    assert [one["count"] for one in found] == [key // 20 for key in range(800)]


async def test_merge_rows_on_flush_leaves_out_superseded_versions(web: Web) -> None:
    await create(web, attributes={"min_data_ttl": 0, "max_data_ttl": 0, "merge_rows_on_flush": True})
    first = await insert(web, row("a", 0, count=-1))
    await flush(web)
    for number in range(5):
        web.node.clock.now_ms += 10
        await insert(web, *(row("a", key, count=number) for key in range(50)))
    await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("a", 0)]})
    web.node.clock.now_ms += 10
    await flush(web)
    assert sorted(chunk.record.rows for chunk in tablet_of(web).structure.chunks.values()) == [1, 50]
    assert await look_up(web, row("a", 0), row("a", 1)) == [None, row("a", 1, note=None, count=4)]
    for _ in range(2):
        status, code, _ = await web.refusal("POST", f"{PATH}/lookup", {"keys": [row("a", 0)], "timestamp": first})
        assert (status, code) == (400, "TIMESTAMP_TOO_OLD")
        await reopen(web)


async def test_a_table_in_memory_has_its_chunks_pinned_and_lets_go(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(table_blocks_bytes_max=200_000)
    await create(web, attributes={"in_memory_mode": "compressed"})
    await insert(web, *(row("a", number, note=f"n{number}") for number in range(500)))
    await flush(web)
    tablet = tablet_of(web)
    (chunk,) = tablet.structure.chunks.values()
    await holds(web, lambda: chunk.preload is Preload.COMPLETED)
    kept = tablet.share.kept
    packed = kept.pinned_size
    assert 0 < packed < chunk.record.unpacked_bytes
    found = await statistics(web)
    assert (found["preload_completed_store_count"], found["preload_pending_store_count"]) == (1, 0)
    assert found["tablet_count_per_memory_mode"] == {"none": 0, "compressed": 1, "uncompressed": 0}
    assert (await look_up(web, row("a", 7)))[0]["note"] == "n7"
    await set_attributes(web, in_memory_mode="none")
    await holds(web, lambda: chunk.preload is Preload.NONE)
    assert kept.pinned_size == 0
    await set_attributes(web, in_memory_mode="uncompressed")
    await holds(web, lambda: chunk.preload is Preload.COMPLETED)
    assert kept.pinned_size > packed
    await insert(web, *(row("b", number, note="n" * 1000 + str(number)) for number in range(300)))
    await flush(web)
    await holds(web, lambda: all(one.preload is not Preload.NONE for one in tablet.structure.chunks.values()))
    found = await statistics(web)
    assert found["preload_failed_store_count"] == 1, "a chunk that has no room is read from disk"
    assert (await look_up(web, row("b", 7)))[0]["note"] == "n" * 1000 + "7"
    await web.ask("POST", f"{PATH}/unmount", {})
    assert kept.pinned_size == 0
    await web.ask("POST", f"{PATH}/mount", {})
    await holds(web, lambda: kept.pinned_size > 0)


async def test_a_tablet_is_looked_at_as_soon_as_it_is_in_its_new_state(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was frozen nothing of it was compacted; the next look by itself is far off."""
    monkeypatch.setattr(background, "TABLES_LOOK_S", 600.0)
    await create(web)
    for number in range(3):
        await insert(web, row("a", 1, count=number))
        await flush(web)
    await until(lambda: len(tablet_of(web).structure.chunks) == 1)


async def test_a_partition_is_not_split_while_one_of_its_chunks_is_compacted(web: Web) -> None:
    """Both are called for at one look, and the compaction begins with it."""
    sizes = {"min_partition_data_size": 2000, "desired_partition_data_size": 5000, "max_partition_data_size": 8000}
    await create(web, attributes={**sizes, "samples_per_partition": 50, "enable_compaction_and_partitioning": False})
    for number in range(3):
        await insert(web, *(row("a", key, note=f"{key * 7919 % 10007 + number:x}" * 8) for key in range(500)))
        await flush(web)
    tablet = tablet_of(web)
    assert sum(chunk.record.size for chunk in tablet.structure.chunks.values()) > 8000
    await set_attributes(web, enable_compaction_and_partitioning=True)
    await holds(web, lambda: len(tablet.structure.partitions) > 1)
    history = web.node.server.node.cell.current.sorted_tables.background.history
    await holds(web, lambda: {"compaction", "split"} <= {task.kind for task in history.ended})
    compaction, split = (next(task for task in history.ended if task.kind == kind) for kind in ("compaction", "split"))
    assert split.inputs
    assert set(split.inputs) <= set(compaction.outputs), "what was compacted is split"
