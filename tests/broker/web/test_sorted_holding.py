"""Sorted tablets that are frozen, moved, restarted and merged while rows are written and read: no hang, no loss."""

import asyncio
from typing import Any

from pqbroker.tables.serving.stored_keys import PIECE_KEYS
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, row


def staged(web: Web) -> list[bytes]:
    """Return keys of pieces that tasks have staged."""
    return [key for key, _ in tablet_of(web).kv.keys(PIECE_KEYS, PIECE_KEYS + b"\xff")]


def history_of(web: Web) -> Any:
    return web.node.server.node.cell.current.sorted_tables.background.history


async def test_a_freeze_beside_a_write_flushes_it_and_writes_go_on_afterwards(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 5))  # timestamps are reserved
    web.node.engine.faults.hold()
    writing = [asyncio.create_task(insert(web, row("a", number))) for number in range(3)]
    await until(lambda: tablet_of(web).writes.in_flight is not None)
    freezing = asyncio.create_task(web.ask("POST", f"{PATH}/freeze", {}))
    await until(lambda: web.node.server.node.cell.current.sorted_tables.tables["shop.stock"].is_frozen(0))
    web.node.engine.faults.release()
    await asyncio.gather(*writing)
    assert (await freezing)[0] == 200
    assert not tablet_of(web).has_unflushed
    assert len(tablet_of(web).structure.chunks) >= 1
    await web.ask("POST", f"{PATH}/unfreeze", {})
    async with asyncio.timeout(10):
        await insert(web, row("a", 9))
    assert all(await look_up(web, *(row("a", number) for number in (0, 1, 2, 9))))


async def test_a_write_to_tablets_that_come_apart_while_it_waits_is_a_commit_over_cells(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "default"})
    await insert(web, row("a", 5))  # timestamps are reserved
    web.node.engine.faults.hold()
    first = asyncio.create_task(insert(web, row("a", 0)))
    await until(lambda: tablet_of(web).writes.in_flight is not None)
    apart = asyncio.create_task(web.ask("POST", f"{PATH}/rows", {"rows": [row("a", 1), row("z", 1)]}))
    behind = asyncio.create_task(insert(web, row("a", 2)))
    await until(lambda: tablet_of(web).writes.waiting_count == 2)
    body = {"first_tablet_index": 0, "last_tablet_index": 0, "cell_id": str(cell["id"])}
    moving = asyncio.create_task(web.ask("POST", f"{PATH}/mount", body))
    await until(lambda: not tablet_of(web).takes_tasks)
    web.node.engine.faults.release()
    async with asyncio.timeout(20):
        status, written = await apart
        await asyncio.gather(first, behind, moving)
        await insert(web, row("z", 3))
    assert status == 200, written
    assert all(await look_up(web, row("a", 0), row("a", 1), row("z", 1), row("a", 2), row("z", 3)))


async def test_pieces_that_cannot_be_removed_at_once_go_with_the_next_look(web: Web) -> None:
    await create(web)
    await insert(web, *(row("a", number) for number in range(5)))
    web.node.engine.faults.refuse_next(after=1)  # naming
    web.node.engine.faults.refuse_next(after=2)  # the removal of the piece
    status, code, _ = await web.refusal("POST", f"{PATH}/freeze", {})
    assert (status, code) == (409, "FLUSH_FAILED")
    await holds(web, lambda: not staged(web))
    await flush(web)
    assert all(await look_up(web, *(row("a", number) for number in range(5))))


async def test_a_restart_ends_tasks_removes_their_pieces_and_flushes_again(web: Web) -> None:
    await create(web)
    tablet = tablet_of(web)
    await insert(web, *(row("a", number) for number in range(50)))
    web.node.engine.faults.hold()
    freezing = asyncio.create_task(web.ask("POST", f"{PATH}/freeze", {}))
    await until(lambda: bool(history_of(web).running))
    _, tablets = await web.ask("GET", f"{PATH}/tablets")
    restart = f"/v1/tablets/{tablets['tablets'][0]['tablet_id']}/restart"
    restarting = asyncio.create_task(web.ask("POST", restart, {}))
    await until(lambda: not tablet.takes_tasks)
    web.node.engine.faults.release()
    async with asyncio.timeout(30):
        assert (await restarting)[0] == 200
        assert (await freezing)[0] == 200
    assert (staged(web), history_of(web).running) == ([], {})
    assert len(tablet.structure.chunks) == 1
    assert all(await look_up(web, *(row("a", number) for number in range(50))))


async def test_a_task_that_ends_before_its_first_step_leaves_its_chunks_to_others(web: Web) -> None:
    await create(web, attributes={"enable_compaction_and_partitioning": False})
    tablet = tablet_of(web)
    for number in range(3):
        await insert(web, row("a", number))
        await flush(web)
    background = web.node.server.node.cell.current.sorted_tables.background
    await web.ask("PATCH", PATH, {"attributes": {"enable_compaction_and_partitioning": True}})
    await web.ask("POST", f"{PATH}/remount", {})
    while not background.history.running:  # a look begins it, and the next turn of the loop is its first step
        background.look_soon()
        await asyncio.sleep(0)
    await background.leave(tablet)
    assert not any(chunk.is_busy for chunk in tablet.structure.chunks.values())
    assert background.history.running == {}
    await holds(web, lambda: len(tablet.structure.chunks) == 1)


async def test_rows_are_found_at_every_moment_of_a_merge(web: Web) -> None:
    await create(web, attributes={"min_compaction_store_count": 2})
    tablet, done = tablet_of(web), history_of(web)
    for number in range(4):
        await insert(web, *(row("a", key, count=number) for key in range(20)))
        flushing = asyncio.create_task(flush(web))
        while not flushing.done():
            found = await look_up(web, row("a", 3), row("a", 19))
            assert [one["count"] for one in found] == [number, number]
    async with asyncio.timeout(30):
        while len(tablet.structure.chunks) > 1:
            found = await look_up(web, row("a", 3), row("a", 19))
            assert [one["count"] for one in found] == [3, 3]
    assert all(not task.failure for task in done.ended)
