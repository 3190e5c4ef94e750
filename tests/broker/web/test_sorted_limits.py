"""Limits of sorted tables: memory of stores and workers, tasks at once, tablets."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.services.sorted_tables import making
from pqbroker.broker.services.sorted_tables import rows as sorted_rows
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.storage.engine import CommitRefused
from pqbroker.tables.sorted import rows
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, SCHEMA, create, insert, look_up, row
from tests.support.cpu_time import TRIES, no_collector, slowness
from tests.support.forked_workers import executed_workers

LONGEST_TURN_S = 0.02
Serve = Callable[..., Awaitable[Web]]


async def test_stores_that_fill_the_memory_refuse_writes(serve: Serve) -> None:
    """One table has half of it; with flushes there is room again. Topics do not notice."""
    web = await serve(table_stores_bytes_max=1 << 20)
    await create(web, attributes={"enable_store_flush": False})
    await web.node.create_topic("plain")
    background = web.node.server.node.cell.current.sorted_tables.background
    tablet = tablet_of(web)
    number = 0
    while tablet.memory_refusal is None:
        await insert(web, *(row("a", number + at, note="n" * 100) for at in range(100)))
        number += 100
        before = background.looks
        await holds(web, lambda known=before: background.looks > known)  # type: ignore[misc]
    assert tablet.memory_bytes >= 1 << 19
    status, code, message = await web.refusal("POST", f"{PATH}/rows", {"rows": [row("a", 1)]})
    assert (status, code) == (503, "OUT_OF_TABLET_MEMORY")
    assert "all its writes disabled" in message
    await web.node.produce("plain", b"a")
    assert len(await look_up(web, row("a", 0), row("a", number - 1))) == 2
    await set_attributes(web, enable_store_flush=True)
    await holds(web, lambda: tablet.memory_refusal is None)
    assert "memory" in {task.reason for task in background.history.ended}
    await insert(web, row("a", 1))


async def test_a_table_alone_rotates_before_its_part_of_the_memory_refuses_writes(serve: Serve) -> None:
    web = await serve(table_stores_bytes_max=4 << 20)
    await create(web, attributes={"enable_store_flush": False})
    background = web.node.server.node.cell.current.sorted_tables.background
    tablet = tablet_of(web)
    number = 0
    while not tablet.passive and tablet.memory_refusal is None:
        await insert(web, *(row("a", number + at, note="n" * 100) for at in range(100)))
        number += 100
        before = background.looks
        background.look_soon()
        await holds(web, lambda known=before: background.looks > known)  # type: ignore[misc]
    assert tablet.memory_refusal is None
    assert tablet.passive[0].passive_for == "memory"
    assert 0.375 <= tablet.memory_bytes / (4 << 20) < 0.4


async def test_as_many_tasks_run_as_are_allowed(serve: Serve) -> None:
    web = await serve(table_flushes_max=1, table_compactions_max=0, table_partitionings_max=0)
    await create(web, pivot_keys=[[], ["b"], ["c"], ["d"]], attributes={"max_dynamic_store_row_count": 10})
    background = web.node.server.node.cell.current.sorted_tables.background
    tablets = [tablet_of(web, index) for index in range(4)]
    most = 0

    def is_flushed() -> bool:
        nonlocal most
        most = max(most, len(background.history.running))
        return all(len(tablet.structure.chunks) == 3 for tablet in tablets)

    for _ in range(3):
        await insert(web, *(row(shop, at) for shop in "abcd" for at in range(7)))
    await holds(web, is_flushed)
    assert most == 1
    assert {task.kind for task in background.history.ended} == {"flush"}, "three small chunks are not compacted"


async def test_a_merge_that_takes_too_much_memory_ends_and_rows_stay(serve: Serve) -> None:
    web = await serve(table_merge_memory=1)
    await create(web)
    await insert(web, row("a", 1, note="one"))
    with executed_workers():  # a forked one is done before its memory is looked at
        status, code, message = await web.refusal("POST", f"{PATH}/freeze", {})
    assert (status, code) == (409, "FLUSH_FAILED")
    assert "pqbroker.table.merge.memory.bytes.max = 1" in message
    assert (await look_up(web, row("a", 1)))[0]["note"] == "one"
    await insert(web, row("a", 2))
    status, answer = await web.ask("POST", f"{PATH}/unmount", {"force": True})
    assert status == 200, answer
    await web.ask("POST", f"{PATH}/mount", {})
    await tablet_of(web).mounted()
    assert (await look_up(web, row("a", 1)))[0]["note"] == "one", "force leaves the rows in the log"
    assert list(tablet_of(web).kv.keys(b"t", b"u")) == []


async def test_a_store_is_no_larger_than_a_flush_has_memory_for(serve: Serve) -> None:
    web = await serve(table_merge_memory=4 << 20)
    await create(web, attributes={"enable_store_flush": False})
    for begin in range(0, 5000, 1000):
        await insert(web, *(row("a", begin + at, note="n" * 100) for at in range(1000)))
    tablet = tablet_of(web)
    assert {store.passive_for for store in tablet.passive} == {"overflow"}
    assert max(store.memory_bytes for store in tablet.stores) < 3 << 19


async def test_a_small_body_does_not_become_many_bytes(web: Web) -> None:
    """A row takes 8 KiB where its table has 1 000 columns."""
    wide = [{"name": "id", "type": "int64", "sort_order": "ascending"}]
    wide += [{"name": f"n{number}", "type": "int64"} for number in range(1000)]
    assert (await web.ask("POST", "/v1/tables", {"path": "//shop/stock", "schema": wide}))[0] == 201
    sent = {"rows": [{"id": number} for number in range(50_000)]}
    status, code, message = await web.refusal("POST", f"{PATH}/rows", sent)
    assert (status, code) == (413, "ROWS_TOO_LARGE")
    assert f"more than {rows.ROWS_BYTES_MAX} bytes" in message
    assert tablet_of(web).memory_bytes == 0


async def test_a_table_has_a_limit_of_tablets(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "SORTED_TABLETS_MAX", 2)
    body: dict[str, Any] = {"path": "//shop/stock", "schema": SCHEMA, "pivot_keys": [[], ["b"], ["c"]]}
    status, code, message = await web.refusal("POST", "/v1/tables", body)
    assert (status, code) == (400, "INVALID_PIVOTS")
    assert "at most 2 tablets" in message


async def test_a_lookup_answers_with_a_limit_of_bytes_but_one_row_in_any_case(serve: Serve) -> None:
    web = await serve(http_answer_bytes_max=2000)
    await create(web)
    await insert(web, *(row("a", number, note="n" * 900) for number in range(3)), row("a", 9, note="n" * 5000))
    assert len(await look_up(web, row("a", 0), row("a", 7), row("a", 1))) == 3
    keys = [row("a", number) for number in range(3)]
    status, code, message = await web.refusal("POST", f"{PATH}/lookup", {"keys": keys})
    assert (status, code) == (413, "LOOKUP_TOO_LARGE")
    assert "first 3 keys" in message
    assert "pqbroker.http.answer.bytes.max = 2000" in message
    assert len(await look_up(web, *keys, columns=["id", "count"])) == 3, "columns that are not shown do not count"
    assert len((await look_up(web, row("a", 9)))[0]["note"]) == 5000
    prefix = {"prefix": {"shop": "a"}}
    assert (await web.refusal("POST", f"{PATH}/lookup", prefix))[:2] == (413, "LOOKUP_TOO_LARGE")
    assert (await web.ask("POST", f"{PATH}/lookup", {**prefix, "columns": ["id"]}))[0] == 200


async def test_a_lookup_has_a_limit_of_keys(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web)
    monkeypatch.setattr(rows, "ROWS_MAX", 2)
    keys = [row("a", number) for number in range(3)]
    assert await look_up(web, *keys[:2]) == [None, None]
    assert (await web.refusal("POST", f"{PATH}/lookup", {"keys": keys}))[:2] == (413, "TOO_MANY_ROWS")


class Turns:
    """Measures the longest turn of the loop, in seconds of its thread's processor time, on an ordinary core."""

    longest_s = 0.0

    async def __aenter__(self) -> Self:
        self._ended = asyncio.Event()
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await self._watching
        self.longest_s /= slowness()

    async def _watch(self) -> None:
        with no_collector():
            since = time.thread_time()
            while not self._ended.is_set():
                await asyncio.sleep(0)
                now = time.thread_time()
                self.longest_s, since = max(self.longest_s, now - since), now


async def test_many_keys_leave_the_loop_its_turns(web: Web) -> None:
    """Twenty thousand keys are encoded beside the loop, and looked up in slices of it."""
    await create(web)
    keys = [row("a", number) for number in range(20_000)]
    caller = DirectCaller(web.node.server.node)
    for _ in range(TRIES):
        async with Turns() as turns:
            assert await sorted_rows.look_up(caller, "shop.stock", keys, None, None) == [None] * len(keys)
        if turns.longest_s < LONGEST_TURN_S:
            break
    assert turns.longest_s < LONGEST_TURN_S


@pytest.mark.alone
async def test_many_rows_leave_the_loop_its_turns_and_appear_together(web: Web) -> None:
    """They are encoded beside the loop and applied in slices of it, of which lookups see all or none."""
    await create(web, pivot_keys=[[], ["b"], ["c"]])
    caller = DirectCaller(web.node.server.node)
    sent = [row("abc"[number % 3], number) for number in range(99_999)]
    keys = [sent[number] for number in (0, 1, 2, 50_000, -3, -2, -1)]
    seen: list[int] = []
    async with Turns() as turns:
        writing = asyncio.create_task(sorted_rows.insert_sorted(caller, "shop.stock", GivenRows(sent), is_update=False))
        while not writing.done():
            found = await sorted_rows.look_up(caller, "shop.stock", keys, None, None)
            seen.append(sum(each is not None for each in found))
            await asyncio.sleep(0)
    assert turns.longest_s < LONGEST_TURN_S
    assert {*seen} <= {0, len(keys)}
    assert None not in await sorted_rows.look_up(caller, "shop.stock", sent[::1000], None, None)
    assert await look_up(web, keys[-1], timestamp=(await writing).timestamp) != [None]


async def test_a_cell_that_is_lost_while_many_rows_are_encoded_has_none_of_them(web: Web) -> None:
    await create(web)
    caller = DirectCaller(web.node.server.node)
    tablet = tablet_of(web)
    sent = [row("a", number) for number in range(20_000)]
    writing = asyncio.create_task(sorted_rows.insert_sorted(caller, "shop.stock", GivenRows(sent), is_update=False))
    while tablet.writes.in_flight is None:  # noqa: ASYNC110 (nobody sets an event)
        await asyncio.sleep(0)
    tablet.lose()
    with pytest.raises(CommitRefused, match="was lost while rows were encoded"):
        await writing
    await tablet.start(tablet.kv.storage)
    await tablet.mounted()
    assert await look_up(web, sent[0], sent[-1]) == [None, None]
    assert await insert(web, sent[0])
