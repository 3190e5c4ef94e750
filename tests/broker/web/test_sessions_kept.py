"""A batch of a session is stored once, whatever becomes of the tablets between its tries: trims,
reshards, static tables, moves."""

from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_inserting import places, row, send
from tests.broker.web.test_tables import NAME, create, insert, reopened, select, tablets

pytestmark = pytest.mark.spec("E.13")

TABLE = f"/v1/tables/{NAME}"


async def command(web: Web, verb: str, **body: Any) -> Any:
    status, answer = await web.ask("POST", f"{TABLE}/{verb}", body)
    assert status == 200, answer
    return answer


async def trimmed_and_unmounted(web: Web, *rows_of_tablets: tuple[int, int]) -> None:
    for index, rows in rows_of_tablets:
        await command(web, "trim", tablet_index=index, trimmed_row_count=rows)
    await command(web, "unmount")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_batch_whose_rows_were_trimmed_is_not_taken_again_after_its_tablet_was_glued(
    web: Web, is_restarted: bool
) -> None:
    await create(web, tablet_count=2)
    await send(web, 5, row(1, 1))
    await trimmed_and_unmounted(web, (1, 1))
    await command(web, "reshard", tablet_count=1)
    if is_restarted:
        await reopened(web)
    await command(web, "mount")
    again = await send(web, 5, row(1))
    assert again == {"tablets": [], "data_weight": 0, "duplicate": True}
    assert await select(web) == []
    assert (await send(web, 6, row(2)))["duplicate"] is False


async def test_sessions_pass_through_reshards_up_and_down_and_through_a_static_table(web: Web) -> None:
    await create(web, tablet_count=3)
    for index in range(3):
        await send(web, 5, row(index, index), session=f"s{index}")
    await trimmed_and_unmounted(web, (0, 1), (1, 1), (2, 1))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("reshard", {"first_tablet_index": 0, "last_tablet_index": 0, "tablet_count": 3}),
        ("reshard", {"first_tablet_index": 1, "last_tablet_index": 4, "tablet_count": 1}),
        ("alter", {"dynamic": False}),
        ("alter", {"dynamic": True}),
        ("reshard", {"tablet_count": 2}),
        ("reshard", {"tablet_count": 1}),
    ]
    for verb, body in changes:
        await command(web, verb, **body)
        if body.get("dynamic") is False:
            continue
        await reopened(web)
        await command(web, "mount")
        for index in range(3):
            assert (await send(web, 5, row(index), session=f"s{index}"))["duplicate"], (verb, body, index)
        await command(web, "unmount")


async def test_rows_that_moved_are_named_where_they_stand_and_trimmed_ones_not(web: Web) -> None:
    await create(web, tablet_count=2)
    await insert(web, row(1, 0), row(2, 0))
    await send(web, 1, row(3, 1), row(4, 1), session="kept")
    await send(web, 1, row(5, 0), row(6, 1), session="both")
    await command(web, "unmount")
    await command(web, "reshard", tablet_count=1)
    await command(web, "mount")
    assert places(await send(web, 1, row(3), session="kept")) == [(0, 3, 2)]
    assert places(await send(web, 1, row(3), session="both")) == [], "in two stretches"


async def test_a_reshard_that_would_displace_a_session_inside_its_time_is_refused(web: Web) -> None:
    await create(web, tablet_count=2, config={"pq.sessions.max": "2"})
    for number, index in ((0, 0), (1, 0), (2, 1)):
        await send(web, 5, row(number, index), session=f"s{number}")
    await command(web, "unmount")
    text = "the tablets remember 3 sessions of inserted rows, and one tablet at most 2"
    refused = await web.refusal("POST", f"{TABLE}/reshard", {"tablet_count": 1})
    assert refused == (409, "CANNOT_GLUE", text)
    assert await web.refusal("POST", f"{TABLE}/alter", {"dynamic": False}) == (409, "CANNOT_GLUE", text)
    assert await tablets(web, "total_row_count") == [2, 1]
    status, answer = await web.ask("PATCH", f"/v1/topics/{NAME}/configs", {"configs": {"pq.sessions.max": "3"}})
    assert status == 200, answer
    await command(web, "reshard", tablet_count=1)
    await command(web, "mount")
    for number in range(3):
        assert (await send(web, 5, row(number), session=f"s{number}"))["duplicate"]


async def test_sessions_outside_their_time_do_not_keep_tablets_from_being_glued(web: Web) -> None:
    await create(web, tablet_count=2, config={"pq.sessions.max": "2"})
    for number, index in ((0, 0), (1, 0), (2, 1)):
        await send(web, 5, row(number, index), session=f"s{number}")
    await trimmed_and_unmounted(web, (1, 1))
    web.node.clock.now_ms += 8 * 24 * 3600 * 1000
    await command(web, "reshard", tablet_count=1)


async def test_sessions_move_with_their_tablet_between_cells(web: Web) -> None:
    assert (await web.ask("POST", "/v1/bundles", {"name": "b"}))[0] == 201
    for _ in range(2):
        assert (await web.ask("POST", "/v1/cells", {"bundle": "b"}))[0] == 201
    await create(web, tablet_count=1, bundle="b")
    await send(web, 5, row(1, 0))
    await command(web, "trim", tablet_index=0, trimmed_row_count=1)
    await command(web, "unmount")
    before = await tablets(web, "home_cell_id")
    await command(web, "mount", cell_id="2" if before == ["1"] else "1")
    assert await tablets(web, "home_cell_id") != before
    assert (await send(web, 5, row(1)))["duplicate"]
    await reopened(web)
    assert (await send(web, 5, row(1)))["duplicate"]
