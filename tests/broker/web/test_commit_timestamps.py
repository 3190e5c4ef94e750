"""One timestamp a commit, rising over all tablets and cells of a node, and over all that becomes of them."""

import asyncio
from typing import Any

from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD
from pqbroker.storage.tablets.scheme import TIMESTAMPS_RESERVED
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, reopened, select, tablets

SCHEMA = [{"name": "id", "type": "int64"}, {"name": "$timestamp", "type": "uint64"}]
TABLE = f"/v1/tables/{NAME}"


async def command(web: Web, verb: str, **body: Any) -> None:
    status, answer = await web.ask("POST", f"{TABLE}/{verb}", body)
    assert status == 200, answer


async def stamps(web: Web, count: int) -> list[list[int]]:
    """Of each tablet, in the order of its rows."""
    rows = [await select(web, tablet_index=index, limit=1000) for index in range(count)]
    return [[row["$timestamp"] for row in some] for some in rows]


async def two_cells(web: Web, tablet_count: int) -> None:
    assert (await web.ask("POST", "/v1/bundles", {"name": "b"}))[0] == 201
    for _ in range(2):
        assert (await web.ask("POST", "/v1/cells", {"bundle": "b"}))[0] == 201
    await create(web, tablet_count=tablet_count, bundle="b", schema=SCHEMA)


async def test_240_commits_at_once_over_tablets_of_two_cells_have_240_timestamps_in_order(web: Web) -> None:
    await two_cells(web, 4)
    for _ in range(6):
        rows = [{"id": number, "$tablet_index": number % 4} for number in range(40)]
        before = max((stamp for some in await stamps(web, 4) for stamp in some), default=0)
        await asyncio.gather(*(insert(web, row) for row in rows))
        after = await stamps(web, 4)
        assert all(some == sorted(some) for some in after)
        assert sum(stamp > before for some in after for stamp in some) == 40, "later commits have greater ones"
    assert len({stamp for some in after for stamp in some}) == 240


async def test_rows_of_one_request_share_a_timestamp_above_all_before_in_each_tablet(web: Web) -> None:
    await create(web, tablet_count=3, schema=SCHEMA)
    many = [
        insert(web, *({"id": number, "$tablet_index": index} for index in (0, 1, 2) if index != number % 4))
        for number in range(40)
    ]
    lone = [insert(web, {"id": 100 + number, "$tablet_index": number % 3}) for number in range(40)]
    await asyncio.gather(*(commit for pair in zip(many, lone, strict=True) for commit in pair))
    for _ in range(2):
        assert all(some == sorted(some) for some in await stamps(web, 3))
        found = [row for index in range(3) for row in await select(web, tablet_index=index, limit=1000)]
        by_commit: dict[int, set[int]] = {}
        for row in found:
            by_commit.setdefault(row["id"], set()).add(row["$timestamp"])
        assert all(len(some) == 1 for some in by_commit.values())
        assert len({stamp for some in by_commit.values() for stamp in some}) == 80
        await reopened(web)


async def test_later_commits_have_greater_ones_over_moves_gluing_restarts_and_a_clock_that_goes_back(web: Web) -> None:
    await two_cells(web, 2)
    greatest = 0

    async def commit(index: int) -> None:
        nonlocal greatest
        await insert(web, {"id": 1, "$tablet_index": index})
        stamp = (await select(web, tablet_index=index, limit=1000))[-1]["$timestamp"]
        assert stamp > greatest
        greatest = stamp

    for index in (0, 1, 0):
        await commit(index)
    await command(web, "unmount")
    home = (await tablets(web, "home_cell_id"))[0]
    await command(web, "mount", first_tablet_index=0, last_tablet_index=0, cell_id="2" if home == "1" else "1")
    await command(web, "mount")
    await commit(1)
    await commit(0)
    await reopened(web)
    web.node.clock.now_ms -= 3_600_000
    await commit(1)
    await command(web, "unmount")
    await command(web, "reshard", tablet_count=1)
    await command(web, "mount")
    await commit(0)
    await command(web, "trim", tablet_index=0, trimmed_row_count=7)
    await reopened(web)
    await commit(0)


async def test_a_table_that_asks_for_no_timestamps_reserves_none(web: Web) -> None:
    await create(web, schema=SCHEMA[:1])
    await insert(web, {"id": 1})
    scheme = web.node.server.node.cell.current.scheme
    assert scheme.timestamps_reserved == 0
    assert TIMESTAMPS_RESERVED not in scheme._state.facts


async def test_commits_reserve_once_in_seconds(web: Web) -> None:
    await create(web, schema=SCHEMA)
    scheme = web.node.server.node.cell.current.scheme
    for number in range(20):
        await insert(web, {"id": number})
        web.node.clock.now_ms += 100
    (some,) = await stamps(web, 1)
    assert scheme.timestamps_reserved == some[0] + RESERVED_AHEAD


async def test_where_nothing_can_be_reserved_the_insert_is_refused_and_comes_again(web: Web) -> None:
    await create(web, schema=SCHEMA)
    web.node.engine.faults.refuse_next()
    status, _ = await web.ask("POST", f"{TABLE}/rows", {"rows": [{"id": 1}]})
    assert status >= 500
    await insert(web, {"id": 1})
    assert [row["id"] for row in await select(web)] == [1]
