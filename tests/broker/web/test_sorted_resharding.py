"""Sorted tables that get other tablets: by pivots or a number, up and down, with all their versions."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.services.sorted_tables import mounting
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.tablet import TabletType
from pqbroker.tables.serving import resharding
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, reopen, row

ROWS = [row(shop, number, note=f"{shop}{number}", count=number) for shop in "abcd" for number in range(25)]
KEYS = [row(one["shop"], one["id"]) for one in ROWS]


async def filled(web: Web, **more: Any) -> int:
    """A table with rows in two chunks and some versions: the timestamp of the first of them."""
    await create(web, **more)
    first = await insert(web, *ROWS)
    await flush(web)
    await insert(web, row("b", 3, count=-3), row("d", 3, count=-3), update=True)
    await web.ask("POST", f"{PATH}/unmount", {})
    return first


async def reshard(web: Web, **body: Any) -> Any:
    status, answer = await web.ask("POST", f"{PATH}/reshard", body)
    assert status == 200, answer
    return answer


async def pivots(web: Web) -> Any:
    _, answer = await web.ask("GET", f"{PATH}/tablets")
    return [tablet["pivot_key"] for tablet in answer["tablets"]]


async def check_rows(web: Web, first: int) -> None:
    await web.ask("POST", f"{PATH}/mount", {})
    for index in range(len(await pivots(web))):
        await tablet_of(web, index).mounted()
    newest = [{**one, "count": -3} if (one["shop"], one["id"]) in {("b", 3), ("d", 3)} else one for one in ROWS]
    assert await look_up(web, *KEYS) == newest
    assert await look_up(web, *KEYS, timestamp=first) == ROWS


async def test_a_tablet_becomes_several_and_several_become_one(web: Web) -> None:
    first = await filled(web)
    before = tablet_of(web).config.tablet_id
    answer = await reshard(web, pivot_keys=[[], ["b"], ["c", 10]])
    assert answer["tablet_count"] == 3
    assert answer["rewritten_bytes"] > 0
    assert await pivots(web) == [[], ["b"], ["c", 10]]
    await check_rows(web, first)
    assert all(len(tablet_of(web, index).structure.chunks) >= 1 for index in range(3))
    await reopen(web)
    await check_rows(web, first)
    assert before not in {tablet_of(web, index).config.tablet_id for index in range(3)}
    await web.ask("POST", f"{PATH}/unmount", {})
    answer = await reshard(web, pivot_keys=[[]])
    assert (answer["rewritten_bytes"], answer["tablet_count"]) == (0, 1)
    await check_rows(web, first)
    await insert(web, row("z", 1))


async def test_other_tablets_are_not_named_while_a_backup_takes_its_moments(web: Web) -> None:
    """The backup's scheme may be of after, its other cells of before: their rows would be nowhere."""
    first = await filled(web)
    before = tablet_of(web).config.tablet_id
    async with web.node.server.node.cell.current.others.unchanged():
        waiting = asyncio.ensure_future(reshard(web, pivot_keys=[[], ["b"]]))
        await asyncio.wait([waiting], timeout=0.5)
        assert not waiting.done()
        assert tablet_of(web).config.tablet_id == before
    assert (await waiting)["tablet_count"] == 2
    await check_rows(web, first)


async def test_a_tablet_that_is_compacted_while_it_is_copied_is_refused_by_name(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(web)
    chunks, name = tablet_of(web).structure.chunks, resharding._name
    assert len(chunks) > 1

    async def compacted(*args: Any) -> None:
        await name(*args)
        chunks.clear()

    monkeypatch.setattr(resharding, "_name", compacted)
    status, code, text = await web.refusal("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
    assert (status, code) == (409, "WRONG_STATE")
    assert "was changed while its rows were copied" in text


async def test_tablets_whose_range_stays_are_kept(web: Web) -> None:
    first = await filled(web, pivot_keys=[[], ["b"], ["c"]])
    before = [tablet_of(web, index).config.tablet_id for index in range(3)]
    await reshard(web, pivot_keys=[["b"], ["b", 5]], first_tablet_index=1, last_tablet_index=1)
    assert await pivots(web) == [[], ["b"], ["b", 5], ["c"]]
    after = [tablet_of(web, index).config.tablet_id for index in range(4)]
    assert (after[0], after[3]) == (before[0], before[2])
    await check_rows(web, first)


async def test_what_changes_while_rows_are_copied_stays_changed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tablet whose range stays moves to another cell, one beside them is frozen, and an attribute is set."""
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    first, fill = await filled(web, pivot_keys=[[], ["b"], ["c"]]), resharding.FillingHere.fill

    async def amid_changes(filling: resharding.FillingHere, *where: Any) -> None:
        await fill(filling, *where)
        first, second = ({"first_tablet_index": index, "last_tablet_index": index} for index in (0, 1))
        for method, path, body in (
            ("POST", "/mount", {**second, "cell_id": "1", "freeze": True}), ("POST", "/unmount", second),
            ("POST", "/mount", {**first, "freeze": True}), ("PATCH", "", {"attributes": {"max_data_versions": 7}}),
        ):  # fmt: skip
            status, answer = await web.ask(method, f"{PATH}{path}", body)
            assert status == 200, answer

    monkeypatch.setattr(resharding.FillingHere, "fill", amid_changes)
    await reshard(web, pivot_keys=[["b"], ["c"], ["d"]], first_tablet_index=1, last_tablet_index=2)
    record = web.node.server.node.cell.current.sorted_tables.tables["shop.stock"].record
    assert [record.cell_of(index) for index in range(4)][:2] == [0, 1]
    assert record.states == ("frozen", *["unmounted"] * 3)
    assert record.attributes["max_data_versions"] == 7
    await web.ask("POST", f"{PATH}/unmount", {})
    await check_rows(web, first)
    await reopen(web)
    await check_rows(web, first)


async def test_no_tablet_changes_its_state_while_it_gets_another_number(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await filled(web, pivot_keys=[[], ["b"], ["c"]])
    table = web.node.server.node.cell.current.sorted_tables.tables["shop.stock"]
    others, third = {"first_tablet_index": 0, "last_tablet_index": 1}, {"first_tablet_index": 2, "last_tablet_index": 2}
    told, resharded = list[Any](), resharding.resharded

    async def amid_mount(*_: Any) -> None:
        told.append(await web.refusal("POST", f"{PATH}/reshard", {"pivot_keys": [[]], **others}))

    async def amid_reshard() -> None:
        table.is_renumbered = True
        told.append(await web.refusal("POST", f"{PATH}/mount", third))
        table.is_renumbered = False

    def noted(*given: Any) -> Any:
        told.append(table.is_renumbered)
        return resharded(*given)

    monkeypatch.setattr(mounting, "ready_for_mount", amid_mount)
    monkeypatch.setattr(resharding, "resharded", noted)
    await web.ask("POST", f"{PATH}/mount", third)
    await web.ask("POST", f"{PATH}/unmount", third)
    await amid_reshard()
    assert [each[:2] for each in told] == [(409, "WRONG_STATE")] * 2
    assert "mounting, and reshard may give it another number" in told[0][2]
    await reshard(web, pivot_keys=[[]], **others)
    assert (told[2:], table.is_renumbered) == ([True], False)
    monkeypatch.undo()
    await check_rows(web, first)


async def test_a_number_of_tablets_takes_pivots_from_samples(web: Web) -> None:
    first = await filled(web)
    answer = await reshard(web, tablet_count=4)
    assert answer["tablet_count"] == 4
    sizes = [sum(chunk.record.rows for chunk in tablet_of(web, index).structure.chunks.values()) for index in range(4)]
    assert min(sizes) > 10, sizes
    await check_rows(web, first)


async def test_what_it_takes_is_told_before(web: Web) -> None:
    await filled(web)
    answer = await reshard(web, pivot_keys=[[], ["c"]], dry_run=True)
    assert answer["rewritten_bytes"] + answer["copied_bytes"] > 0
    assert answer["seconds"] > 0
    assert await pivots(web) == [[]]


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ({"pivot_keys": [["a"], ["b"]]}, "INVALID_PIVOTS", "is not the pivot of the first tablet"),
        ({"pivot_keys": [[], ["b"], ["b"]]}, "INVALID_PIVOTS", "pivot_keys[2] is not above"),
        ({"pivot_keys": [[], ["b"]], "last_tablet_index": 0}, "INVALID_PIVOTS", "is not below the pivot of tablet 1"),
        ({"pivot_keys": []}, "INVALID_PIVOTS", "is empty"),
        ({"pivot_keys": [[]], "tablet_count": 1}, "INVALID_RESHARD", "both"),
        ({}, "INVALID_RESHARD", "neither"),
        ({"tablet_count": 1000}, "INVALID_RESHARD", "by their samples"),
        ({"tablet_count": 1, "trimmed_row_counts": [1]}, "SORTED_TABLE", "trimmed_row_counts"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_and_nothing_changes(web: Web, body: Any, code: str, part: str) -> None:
    await create(web, pivot_keys=[[], ["b"]])
    await insert(web, row("a", 1), row("c", 1))
    await web.ask("POST", f"{PATH}/unmount", {})
    status, found, message = await web.refusal("POST", f"{PATH}/reshard", body)
    assert status in (400, 409)
    assert found == code
    assert part in message
    assert await pivots(web) == [[], ["b"]]


async def test_mounted_tablets_and_rows_in_the_log_are_not_resharded(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1))
    refused = await web.refusal("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
    assert refused[:2] == (409, "WRONG_STATE")
    await web.ask("POST", f"{PATH}/unmount", {"force": True})
    status, code, message = await web.refusal("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
    assert (status, code) == (409, "WRONG_STATE")
    assert "by force" in message
    await web.ask("POST", f"{PATH}/mount", {})
    await tablet_of(web).mounted()
    assert (await look_up(web, row("a", 1)))[0] is not None


async def test_a_commit_that_is_refused_at_any_place_leaves_what_was(web: Web) -> None:
    first = await filled(web)
    host = web.node.server.node.cell.current.host
    tablets = set(host.cell.tablets())
    for after in range(30):
        web.node.engine.faults.refuse_next(after=after)
        status, answer = await web.ask("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
        web.node.engine.faults.clear()
        if status == 200:
            break
        assert status in (409, 503), answer
        await host.reclaimed()
        assert set(host.cell.tablets()) == tablets
        assert await pivots(web) == [[]]
    else:
        raise AssertionError("more than 30 commits")
    assert after > 5
    await check_rows(web, first)


async def test_a_cell_that_is_lost_at_any_place_has_the_table_before_or_the_one_after(web: Web) -> None:
    first = await filled(web)
    owner = web.node.server.node.cell
    for after in range(30):
        before = owner.current
        web.node.engine.faults.lose_next(after=after, stored=after % 2 == 1)
        await web.ask("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
        if owner.current is before and not before.cell.lost.done():
            web.node.engine.faults.clear()
            break
        await until(lambda known=before: owner.current is not known)  # type: ignore[misc]
        found = await pivots(web)
        assert found in ([[]], [[], ["b"]])
        host = owner.current.host
        await host.reclaimed()
        sorted_ids = {item.tablet_id for item in host.cell.tablets().values() if item.type is TabletType.SORTED}
        assert sorted_ids == set(owner.current.sorted_tables.tables["shop.stock"].record.tablets)
        if found != [[]]:
            break
    await check_rows(web, first)


async def test_a_scheme_that_is_lost_while_it_names_other_tablets_costs_no_rows(web: Web) -> None:
    await web.ask("POST", "/v1/bundles", {"name": "b"})
    assert (await web.ask("POST", "/v1/cells", {"bundle": "b"}))[0] == 201
    first = await filled(web, bundle="b")
    owner, found = web.node.server.node.cell, list[Any]()
    for after in range(10):
        before = owner.current
        host = before.cells.host(CellId(1))
        assert host is not None
        web.node.engine.faults.lose_next(after=after, stored=True)
        await web.ask("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["b"]]})
        assert before.cell.lost.done()
        await host.reclaimed()
        await until(lambda known=before: owner.current is not known)  # type: ignore[misc]
        found = await pivots(web)
        if found != [[]]:
            break
    assert found == [[], ["b"]]
    await check_rows(web, first)
