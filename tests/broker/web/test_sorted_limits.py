"""Limits of sorted tables: memory of stores and workers, tasks at once, tablets."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.services.sorted_tables import making
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, SCHEMA, create, insert, look_up, row

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
    await insert(web, row("a", 1))


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


async def test_a_table_has_a_limit_of_tablets(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "SORTED_TABLETS_MAX", 2)
    body: dict[str, Any] = {"path": "//shop/stock", "schema": SCHEMA, "pivot_keys": [[], ["b"], ["c"]]}
    status, code, message = await web.refusal("POST", "/v1/tables", body)
    assert (status, code) == (400, "INVALID_PIVOTS")
    assert "at most 2 tablets" in message
