"""Insides of sorted tables over HTTP: stores, partitions, chunks and tasks, and why no task takes a chunk."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.web.endpoints import start_http
from pqbroker.conf.addresses import Address
from pqbroker.tables.serving import background, surveying
from pqbroker.tables.serving.background import Background
from pqbroker.tables.serving.chunk_records import ChunkRecord
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.sorted.rows import encode_key
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, row
from tests.support.cpu_time import TRIES, no_collector, slowness

OFF = {"enable_compaction_and_partitioning": False}
Serve = Callable[..., Awaitable[Web]]


def background_of(web: Web) -> Background:
    return web.node.server.node.cell.current.sorted_tables.background


async def inside(web: Web, query: str = "") -> Any:
    status, answer = await web.ask("GET", f"{PATH}/inside{query}")
    assert status == 200, answer
    return answer


async def tablet_inside(web: Web, query: str = "", index: int = 0) -> Any:
    status, answer = await web.ask("GET", f"{PATH}/tablets/{index}/inside{query}")
    assert status == 200, answer
    return answer


async def explained(web: Web, query: str = "") -> Any:
    status, answer = await web.ask("GET", f"{PATH}/compaction{query}")
    assert status == 200, answer
    return answer


async def test_stores_and_chunks_of_a_table_are_shown_with_what_they_cost(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]], attributes=OFF)
    await insert(web, row("a", 1), row("b", 2, note="n"), row("z", 3))
    await insert(web, row("a", 1, note="again"))
    await web.ask("DELETE", f"{PATH}/rows", {"keys": [row("b", 2)]})
    shown = await inside(web)
    first, second = shown["tablets"]
    (store,) = first["stores"]
    assert (store["state"], store["keys"], store["rows"]) == ("active", 2, 4)
    assert store["bytes"] > 0
    assert shown["node"]["table_stores_bytes"] == store["bytes"] + second["stores"][0]["bytes"]
    assert shown["node"]["stores_bytes_max"] == 2 * shown["node"]["table_stores_bytes_max"]
    assert (first["chunk_count"], first["overlap_key"], shown["amplification"]) == (0, None, None)
    await flush(web)
    shown = await inside(web)
    first, second = shown["tablets"]
    facts = {name: first[name] for name in ("chunk_count", "rows", "deletes", "overlap", "overlap_key", "rests")}
    assert facts == {
        "chunk_count": 1, "rows": 4, "deletes": 1, "overlap": 1, "overlap_key": ["a", 1],
        "rests": "enable_compaction_and_partitioning is false",
    }  # fmt: skip
    assert first["compressed_bytes"] == first["flushed_bytes"] == (await tablet_inside(web))["compressed_bytes"] > 0
    assert (shown["flushed_rows"], shown["rewritten_bytes"], shown["amplification"]) == (5, 0, 0)
    assert shown["flushed_bytes"] == first["flushed_bytes"] + second["flushed_bytes"]
    assert [(task["kind"], task["reason"], task["rows_written"]) for task in shown["ended"]] == [
        ("flush", "asked for", 1), ("flush", "asked for", 4),
    ]  # fmt: skip
    assert shown["running"] == []


async def test_a_chunk_is_shown_with_its_keys_and_the_reason_that_keeps_it_from_a_task(web: Web) -> None:
    await create(web, attributes=OFF)
    await insert(web, row("a", 1, note="n"), row("c" * 300, 7))
    await flush(web)
    web.node.clock.now_ms += 5000
    shown = await tablet_inside(web)
    (chunk,) = shown["chunks"]
    assert (chunk["first_key"], chunk["last_key"]) == (["a", 1], ["c" * 100 + "…", 7])
    assert chunk["first_order"] < chunk["last_order"]
    assert (chunk["state"], chunk["partition_index"], chunk["age_ms"]) == ("idle", 0, 5000)
    assert (chunk["keys"], chunk["rows"], chunk["picked"]) == (2, 2, None)
    assert chunk["left_out"] == {"compaction": "its size does not fit to the others"}
    assert shown["partitions"][0]["overlap_key"] == ["a", 1]
    assert shown["partitions"][0]["task"] is None
    tablet_of(web).structure.chunks[chunk["chunk"]].is_damaged = True
    (chunk,) = (await tablet_inside(web))["chunks"]
    assert (chunk["state"], chunk["left_out"]) == ("damaged", {"compaction": "is damaged"})


async def test_chunks_and_partitions_come_in_pages_and_tablets_too(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"], ["x"]], attributes=OFF)
    for number in range(3):
        await insert(web, row("a", number))
        await flush(web)
    tablet = tablet_of(web)
    await tablet.name_pivots([b"", *sorted(chunk.first_key for chunk in tablet.structure.chunks.values())[1:]])
    first = await tablet_inside(web, "?limit=2")
    second = await tablet_inside(web, f"?limit=2&after={first['next']}&after_partition={first['next_partition']}")
    assert [chunk["first_key"][1] for chunk in first["chunks"] + second["chunks"]] == [0, 1, 2]
    assert [one["pivot_key"] for one in first["partitions"] + second["partitions"]] == [[], ["a", 1], ["a", 2]]
    assert (second["next"], second["next_partition"]) == (None, None)
    page = await inside(web, "?limit=2")
    assert [one["index"] for one in page["tablets"]] == [0, 1]
    assert [one["index"] for one in (await inside(web, f"?after={page['next']}"))["tablets"]] == [2]


async def test_a_compaction_is_explained_before_it_runs_and_shown_when_it_has(serve: Serve) -> None:
    """The node runs none at first, since its limit is 0."""
    web = await serve(table_compactions_max=0)
    await create(web, pivot_keys=[[], ["m"]])
    for number in range(3):
        await insert(web, row("a", 1, count=number))
        await flush(web)
    told = await explained(web)
    (task,) = told["tasks"]
    assert (task["order"], task["kind"], task["tablet_index"], task["reason"]) == (1, "compaction", 0, "regular")
    assert (task["input_count"], task["effect"], task["partition_pivot_key"]) == (3, 2, [])
    assert task["waits"] == "the node runs as many tasks of this kind as it may"
    assert told["node_tasks"]["compaction"] == {"running": 0, "most": 0}
    assert (await explained(web, "?first_tablet_index=1"))["tasks"] == []
    shown = await tablet_inside(web)
    assert [chunk["picked"] for chunk in shown["chunks"]] == [{"kind": "compaction", "reason": "regular"}] * 3
    assert shown["partitions"][0]["task"]["inputs"] == task["inputs"]
    share = web.node.server.node.cell.current.sorted_tables.share
    share.settings = share.settings._replace(compactions_max=1)
    tablet = tablet_of(web)
    await holds(web, lambda: len(tablet.structure.chunks) == 1 and not background_of(web).history.running)
    shown = await inside(web)
    assert shown["ended"][0]["kind"] == "compaction"
    assert shown["ended"][0]["inputs"] == task["inputs"]
    assert shown["ended"][0]["outputs"] == list(tablet.structure.chunks)
    assert shown["ended"][0]["input_bytes"] == task["compressed_bytes"] == shown["ended"][0]["bytes_read"]
    assert shown["rewritten_bytes"] == shown["ended"][0]["bytes_written"] > 0
    assert shown["amplification"] == round(shown["rewritten_bytes"] / shown["flushed_bytes"], 2)


async def test_a_survey_that_is_out_of_date_begins_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one is made beside the loop; its chunks may be gone when it is there."""
    web = await serve(table_compactions_max=0)
    await create(web)
    for number in range(3):
        await insert(web, row("a", 1, count=number))
        await flush(web)
    tablet, share = tablet_of(web), web.node.server.node.cell.current.sorted_tables.share
    seen = await surveying.surveyed(tablet, web.node.clock.now_ms)
    assert list(seen.tasks())
    share.settings = share.settings._replace(compactions_max=1)
    await holds(web, lambda: len(tablet.structure.chunks) == 1)
    known = background_of(web).looks
    monkeypatch.setattr(background, "surveyed", lambda *_: asyncio.sleep(0, seen))
    await holds(web, lambda: background_of(web).looks > known + 1)
    assert [task.kind for task in background_of(web).history.ended].count("compaction") == 1


async def test_chunks_that_are_left_out_are_counted_by_reason(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]], attributes=OFF)
    await insert(web, row("a", 1), row("z", 1))
    await flush(web)
    told = await explained(web)
    first, second = (next(iter(tablet_of(web, index).structure.chunks)) for index in (0, 1))
    assert told["left_out"] == [{
        "kind": "compaction", "reason": "its size does not fit to the others", "chunk_count": 2,
        "examples": [{"tablet_index": 0, "chunk": first}, {"tablet_index": 1, "chunk": second}],
    }]  # fmt: skip
    reason = "enable_compaction_and_partitioning is false"
    assert told["rests"] == [{"reason": reason, "tablet_indexes": [0, 1]}]
    await web.ask("POST", f"{PATH}/unmount", {"first_tablet_index": 1})
    assert {"reason": "the tablet is unmounted", "tablet_indexes": [1]} in (await explained(web))["rests"]
    unmounted = (await inside(web))["tablets"][1]
    assert (unmounted["state"], unmounted["stores"], unmounted["blocked"]) == ("unmounted", [], None)
    assert [chunk["chunk"] for chunk in (await tablet_inside(web, index=1))["chunks"]] == [second]
    status, code, _ = await web.refusal("GET", f"{PATH}/compaction?last_tablet_index=2")
    assert (status, code) == (404, "NO_TABLET")
    assert (await web.refusal("GET", f"{PATH}/tablets/2/inside"))[1] == "NO_TABLET"


async def test_a_task_under_way_shows_the_bytes_it_has_written(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pieces are held back after the first one."""
    await create(web, attributes={"enable_store_flush": True})
    await insert(web, *(row("a", number, note=f"{number * 7919 % 10007:x}") for number in range(300)))
    share, go_on = web.node.server.node.cell.current.sorted_tables.share, asyncio.Event()
    taken: list[int] = []

    class Held:
        async def take(self, size: int) -> None:
            taken.append(size)
            await go_on.wait()

    monkeypatch.setattr(share, "rate", Held())
    freezing = asyncio.create_task(web.ask("POST", f"{PATH}/freeze", {}))
    await holds(web, lambda: bool(taken))
    (task,) = background_of(web).history.running.values()
    assert task.staging is not None
    task.staging.bytes_written = 7
    web.node.clock.now_ms += 500
    (shown,) = (await inside(web))["running"]
    assert (shown["kind"], shown["bytes_written"], shown["bytes_per_s"]) == ("flush", 7, 14)
    assert (shown["ended_ms"], shown["input_bytes"] > 300) == (None, True)
    task.staging.bytes_written = 0
    go_on.set()
    await freezing


async def test_blocked_writes_are_shown_logged_and_taken_again(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pqbroker")
    await create(web, attributes={"max_overlapping_store_count": 2, **OFF})
    for number in range(2):
        await insert(web, row("a", 1, count=number))
        await flush(web)
    work = background_of(web)
    await holds(web, lambda: bool(work.blocks.tablets))
    (shown,) = (await inside(web))["tablets"]
    assert (shown["blocked"]["code"], shown["blocked"]["number"]) == ("TOO_MANY_OVERLAPPING_STORES", 1703)
    assert "remount" in shown["blocked"]["cure"]
    assert +work.blocks.by_code() == {"TOO_MANY_OVERLAPPING_STORES": 1}
    (said,) = [message for message in caplog.messages if message.startswith("writes to")]
    assert "1 tablets of //shop/stock are refused, TOO_MANY_OVERLAPPING_STORES: Too many overlapping stores" in said
    await web.ask("POST", f"{PATH}/freeze", {})
    await holds(web, lambda: not work.blocks.tablets)
    assert (await inside(web))["tablets"][0]["blocked"] is None, "a frozen tablet takes none anyway"
    await web.ask("POST", f"{PATH}/unfreeze", {})
    await holds(web, lambda: bool(work.blocks.tablets))
    caplog.clear()
    await set_attributes(web, enable_compaction_and_partitioning=True)
    await holds(web, lambda: not work.blocks.tablets)
    assert (await inside(web))["tablets"][0]["blocked"] is None
    assert [message for message in caplog.messages if message.startswith("writes to")] == [
        "writes to //shop/stock are taken again, the cause was TOO_MANY_OVERLAPPING_STORES"
    ]


async def test_a_flush_that_fails_shows_its_cause_and_when_it_is_tried_again(web: Web) -> None:
    await create(web, attributes={"max_dynamic_store_row_count": 1000})
    work, tablet = background_of(web), tablet_of(web)
    await insert(web, row("a", 1))
    work.failures[tablet] = "no room"
    work._backoffs[tablet] = web.node.clock.now_ms + 3000
    (shown,) = (await inside(web))["tablets"]
    assert shown["flush_failure"] == {"cause": "no room", "retry_ms": web.node.clock.now_ms + 3000}
    await web.ask("POST", f"{PATH}/unmount", {"force": True})
    assert (tablet in work.failures, work.retry_ms(tablet)) == (False, 0)


async def test_splits_and_merges_are_in_the_history_with_their_reasons(web: Web) -> None:
    sizes = {"min_partition_data_size": 2000, "desired_partition_data_size": 5000, "max_partition_data_size": 8000}
    await create(web, attributes={**sizes, "min_partitioning_data_size": 1000, "samples_per_partition": 50})
    await insert(web, *(row("a", number, note=f"{number * 7919 % 10007:x}" * 8) for number in range(2000)))
    await flush(web)
    tablet = tablet_of(web)
    await holds(web, lambda: len(tablet.structure.partitions) > 1 and not tablet.structure.eden)
    await holds(web, lambda: not background_of(web).history.running)
    reasons = {(task["kind"], task["reason"]) for task in (await inside(web))["ended"]}
    assert ("split", "more than max_partition_data_size") in reasons
    assert ("partitioning", "regular") in reasons
    large = {"max_partition_data_size": 1 << 40, "desired_partition_data_size": 1 << 39}
    await set_attributes(web, min_partition_data_size=1 << 38, **large)
    await holds(web, lambda: len(tablet.structure.partitions) == 1)
    reasons = {(task["kind"], task["reason"]) for task in (await inside(web))["ended"]}
    assert ("merge", "less than min_partition_data_size, Eden included") in reasons


async def test_a_large_tablet_is_looked_at_in_a_thread(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web, attributes=OFF)
    await insert(web, row("a", 1))
    await flush(web)
    calls: list[object] = []
    to_thread = asyncio.to_thread

    async def noted(call: Callable[[], Any], *given: Any) -> Any:
        calls.append(call)
        return await to_thread(call, *given)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    monkeypatch.setattr(surveying, "SURVEYED_AT_ONCE", 1)
    assert len((await tablet_inside(web))["chunks"]) == 1
    assert calls
    before = len(calls)
    await explained(web)
    assert len(calls) > before


async def test_a_tablet_of_ten_thousand_chunks_does_not_hold_the_loop_up(web: Web) -> None:
    """CPU seconds of the loop's thread in one turn; the looks of background work are among the turns, and this client,
    who therefore asks for small pages."""
    await create(web, attributes=OFF)
    tablet = tablet_of(web)
    keys = [encode_key(tablet.config.schema, row("a", number), "key") for number in range(10_000)]
    chunks = [OpenChunk(10 + number, record(key)) for number, key in enumerate(keys)]
    tablet.structure.change(chunks, (), [b"", *keys[1:]])
    assert tablet.structure.overlap == 1
    work, worst = background_of(web), list[float]()
    while len(worst) < TRIES and not any(turn_s < 0.02 for turn_s in worst):
        turns, looks = Turns(), work.looks
        shown = await tablet_inside(web, "?limit=50")
        assert (len(shown["chunks"]), len(shown["partitions"])) == (50, 50)
        assert (await explained(web))["left_out"][0]["chunk_count"] == 10_000
        await inside(web)
        await holds(web, lambda known=looks: work.looks > known + 1)  # type: ignore[misc]
        worst.append(await turns.end() / slowness())
    assert min(worst) < 0.02, worst


class Turns:
    """Turns of the loop, the longest of which is noted, in CPU seconds."""

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._watching = asyncio.create_task(self._watch())

    async def end(self) -> float:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        return self._worst_s

    async def _watch(self) -> None:
        last_s = time.thread_time()
        with no_collector():
            while True:
                await asyncio.sleep(0)
                now_s = time.thread_time()
                self._worst_s, last_s = max(self._worst_s, now_s - last_s), now_s


def record(key: bytes) -> ChunkRecord:
    return ChunkRecord(
        created_ms=1, revision=1, size=1000, index_bytes=10, unpacked_bytes=2000, rows=1, keys=1, deletes=0,
        least_timestamp=1, greatest_timestamp=2, first_key=key.hex(), last_key=key.hex(),
    )  # fmt: skip


class DescribesOnly:
    """Lets everybody see what there is, and read no row."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return operation is AclOperation.DESCRIBE

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return False


async def test_keys_are_shown_to_those_alone_who_may_read_rows(web: Web) -> None:
    await create(web)
    node = replace(web.node.server.node, access=DescribesOnly())
    close, address = await start_http(node, Address("127.0.0.1", 0))
    async with aiohttp.ClientSession() as session:
        for path, status in (("", 200), ("/inside", 403), ("/tablets/0/inside", 403), ("/compaction", 403)):
            async with session.get(f"http://{address}{PATH}{path}") as answer:
                assert answer.status == status, path
    await close()


async def test_an_ordered_table_has_no_stores_and_chunks(web: Web) -> None:
    made = {"path": "//plain", "schema": [{"name": "a", "type": "int64"}]}
    assert (await web.ask("POST", "/v1/tables", made))[0] == 201
    for path in ("inside", "compaction", "tablets/0/inside"):
        assert (await web.refusal("GET", f"/v1/tables/plain/{path}"))[1] == "NOT_SORTED"
