"""Tablets that move to another cell while they are served: nothing is lost, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pqbroker.conf.shares import address_of
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import BlobMissing
from pqbroker.storage.ids import CellId
from pqbroker.storage.kv.tablet_copy import TabletCopy
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_cells import cells_of, create, engine_of, homes, opened, values, with_cells, write

pytestmark = pytest.mark.spec("D.5")

Serve = Callable[..., Awaitable[Web]]
SCHEMA = [{"name": "id", "type": "int64"}, {"name": "$cumulative_data_weight", "type": "int64"}]
TABLE = "/v1/tables/t"
COMMITS_MAX = 12
WRITERS = 6


async def with_table(web: Web, home: int, rows: int = 3) -> None:
    """A table t of one tablet in cell `home` of bundle b, which has the cells 1 and 2, or of the default one: 0 and 3.
    """
    await web.ask("POST", "/v1/bundles", {"name": "b"})
    for bundle in ("b", "b", "default"):
        assert (await web.ask("POST", "/v1/cells", {"bundle": bundle}))[0] == 201
    bundle = "b" if home in (1, 2) else "default"
    body = {"path": "//t", "schema": SCHEMA, "bundle": bundle}
    assert (await web.ask("POST", "/v1/tables", body))[0] == 201
    for number in range(rows):
        await insert(web, number)
    await move(web, home)


async def insert(web: Web, number: int) -> None:
    status, answer = await web.ask("POST", f"{TABLE}/rows", {"rows": [{"id": number}]})
    assert status == 200, answer


async def move(web: Web, cell: int) -> None:
    status, answer = await web.ask("POST", f"{TABLE}/mount", {"cell_id": str(cell)})
    assert status == 200, answer


async def home(web: Web) -> str:
    _, answer = await web.ask("GET", f"{TABLE}/tablets")
    return str(answer["tablets"][0]["home_cell_id"])


async def rows(web: Web) -> list[tuple[int, int, int]]:
    status, answer = await web.ask("GET", f"{TABLE}/rows?limit=1000")
    assert status == 200, answer
    return [(row["$row_index"], row["id"], row["$cumulative_data_weight"]) for row in answer["rows"]]


def expected(count: int) -> list[tuple[int, int, int]]:
    return [(number, number, 17 * (number + 1)) for number in range(count)]


def table(web: Web) -> Topic:
    topic = opened(web).topics.get("t")
    assert topic is not None
    return topic


@pytest.mark.parametrize(("first", "second"), [(1, 2), (0, 3), (3, 0)])
async def test_a_tablet_is_mounted_in_another_cell(web: Web, first: int, second: int) -> None:
    await with_table(web, first)
    assert await home(web) == str(first)
    assert (await web.ask("POST", f"{TABLE}/unmount", {}))[0] == 200
    before = table(web).partitions[0].leader_epoch
    await move(web, second)
    assert (await home(web), await rows(web)) == (str(second), expected(3))
    assert table(web).partitions[0].leader_epoch > before
    await insert(web, 3)
    await move(web, first)
    await insert(web, 4)
    assert (await home(web), await rows(web)) == (str(first), expected(5))
    hosts = dict(opened(web).cells.hosts())
    await hosts[CellId(second)].reclaimed()
    (tablet,) = table(web).record.tablets
    assert tablet not in hosts[CellId(second)].cell.tablets()


async def test_moves_are_listed_the_last_first(web: Web) -> None:
    await with_table(web, 1)
    await move(web, 2)
    (tablet,) = table(web).record.tablets
    _, answer = await web.ask("GET", "/v1/moves")
    found = [(one["topic"], one["tablet"], one["from_cell"], one["to_cell"], one["state"]) for one in answer["moves"]]
    assert found[0] == ("t", tablet, 1, 2, "done")
    assert answer["moves"][0]["ended"] >= answer["moves"][0]["begun"]
    await move(web, 1)
    _, cut = await web.ask("GET", "/v1/moves?limit=1")
    assert [(one["from_cell"], one["to_cell"]) for one in cut["moves"]] == [(2, 1)]
    assert cut["is_cut"]


async def test_what_was_moved_is_there_when_the_node_opens_its_cells_again(web: Web) -> None:
    await with_table(web, 1)
    await move(web, 2)
    owner = web.node.server.node.cell
    before = owner.current
    web.node.engine.faults.lose_next()
    await web.ask("POST", "/v1/topics", {"name": "lost"})
    await until(lambda: owner.current is not before and "t" in owner.current.topics.names())
    await until(lambda: opened(web).others.health(CellId(2)) == "good")
    assert (await home(web), await rows(web)) == ("2", expected(3))
    await insert(web, 3)


async def test_writes_wait_for_a_move_and_none_is_lost(web: Web) -> None:
    await with_table(web, 1, rows=0)
    written: list[int] = []
    is_over = False

    async def keep_writing(first: int) -> None:
        number = first
        while not is_over:
            answer = await web.node.produce("t", b'{"id":%d}' % number)
            assert answer.error_code == 0
            written.append(number)
            number += WRITERS

    writing = [asyncio.create_task(keep_writing(first)) for first in range(WRITERS)]
    for cell in (2, 1, 2, 1):
        wanted = len(written) + 20
        await until(lambda wanted=wanted: len(written) > wanted)  # type: ignore[misc]
        await move(web, cell)
    is_over = True
    await asyncio.gather(*writing)
    assert sorted(number for _, number, _ in await rows(web)) == sorted(written)


async def test_a_write_on_its_way_moves_along(web: Web) -> None:
    """It is durable after all else was copied."""
    await with_table(web, 1)
    faults, hosts = engine_of(web, 1).faults, dict(opened(web).cells.hosts())
    (tablet_id,) = table(web).record.tablets
    original = hosts[CellId(1)].cell.storage(tablet_id)
    before = original.commits
    faults.hold()
    inserting = asyncio.create_task(insert(web, 3))
    await until(lambda: original.commits > before)
    moving = asyncio.create_task(move(web, 2))
    await until(opened(web).topics.changes.locked)
    faults.release()
    await asyncio.gather(inserting, moving)
    assert (await home(web), await rows(web)) == ("2", expected(4))


async def test_offsets_of_groups_move_along(web: Web) -> None:
    await with_table(web, 1)
    assert (await web.ask("POST", "/v1/groups/g/reset", {"topic": "t", "to": "end"}))[0] == 200
    found = opened(web).topics.offsets.of("g")
    before = {place: state._replace(creator=address_of(state.creator)) for place, state in found.items()}
    await move(web, 2)
    assert opened(web).topics.offsets.of("g") == before != {}


async def test_a_cell_is_evacuated_and_removed(web: Web) -> None:
    await with_cells(web, 2)
    for partition in range(6):
        await write(web, "t", partition, f"v{partition}")
    assert (await web.refusal("DELETE", "/v1/cells/1"))[1] == "BUNDLE_REFUSED"
    assert (await web.ask("DELETE", "/v1/cells/1?evacuate=true"))[0] == 204
    assert set(homes(web)) == {CellId(2)}
    assert list(await cells_of(web)) == [0, 2]
    for partition in range(6):
        assert await values(web, "t", partition) == [f"v{partition}"]
        assert await write(web, "t", partition, "more") == 1


async def test_the_last_cell_of_a_bundle_keeps_its_tablets(web: Web) -> None:
    await with_cells(web, 1)
    status, code, message = await web.refusal("DELETE", "/v1/cells/1?evacuate=true")
    assert (status, code) == (409, "POLICY_VIOLATION")
    assert "'b'" in message
    assert set(homes(web)) == {CellId(1)}
    await create(web, "more", "b")
    assert set(homes(web, "more")) == {CellId(1)}


async def test_where_a_tablet_cannot_live_is_said(web: Web) -> None:
    await with_table(web, 1)
    for wanted in ("0", "9", "x", ""):
        status, code, message = await web.refusal("POST", f"{TABLE}/mount", {"cell_id": wanted})
        assert (status, code) == (404, "NO_CELL"), message
    engine_of(web, 2).faults.refuse_next()
    assert (await web.refusal("POST", f"{TABLE}/mount", {"cell_id": "2"}))[0] == 503
    assert (await home(web), await rows(web)) == ("1", expected(3))
    await insert(web, 3)
    await move(web, 2)
    assert (await home(web), await rows(web)) == ("2", expected(4))


async def test_what_cannot_be_copied_stays(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_table(web, 1)

    async def lacking(_: TabletCopy) -> bool:
        raise BlobMissing("00" * 24)

    monkeypatch.setattr(TabletCopy, "follow", lacking)
    assert (await web.refusal("POST", f"{TABLE}/mount", {"cell_id": "2"}))[:2] == (409, "CANNOT_MOVE")
    monkeypatch.undo()
    await insert(web, 3)
    assert (await home(web), await rows(web)) == ("1", expected(4))
    await move(web, 2)
    assert (await home(web), await rows(web)) == ("2", expected(4))


@pytest.mark.parametrize("cell", [0, 1, 2])
async def test_a_move_that_is_cut_off_is_made_or_not(serve: Serve, cell: int) -> None:
    """Each cell is lost at each commit of the move from cell 1 to cell 2, durable or not."""
    web = await serve()
    await with_table(web, 1)
    hosts = dict(opened(web).cells.hosts())
    before = hosts[CellId(cell)].cell.stats().commits
    await move(web, 2)
    await hosts[CellId(1)].reclaimed()
    count = hosts[CellId(cell)].cell.stats().commits - before
    assert 1 <= count <= COMMITS_MAX
    for number in range(count):
        for stored in (False, True):
            web = await serve()
            await with_table(web, 1)
            await _cut_off(web, cell, number, stored=stored)
            assert await rows(web) == expected(3), (number, stored)
            await insert(web, 3)
            await move(web, 2)
            await insert(web, 4)
            assert (await home(web), await rows(web)) == ("2", expected(5)), (number, stored)


async def _cut_off(web: Web, cell: int, number: int, *, stored: bool) -> None:
    owner = web.node.server.node.cell
    before = owner.current
    faults = (web.node.engine if cell == 0 else engine_of(web, cell)).faults
    lost = dict(before.cells.hosts())[CellId(cell)].cell.lost
    faults.lose_next(after=number, stored=stored)
    await web.ask("POST", f"{TABLE}/mount", {"cell_id": "2"})
    await until(lost.done)  # by what is reclaimed, perhaps
    faults.clear()
    if cell == 0:
        await until(lambda: owner.current is not before and "t" in owner.current.topics.names())

    def is_served() -> bool:
        topic = opened(web).topics.get("t")
        is_open = all(opened(web).others.health(CellId(each)) == "good" for each in (1, 2))
        return is_open and topic is not None and not topic.partitions[0].is_lost

    await until(is_served)
