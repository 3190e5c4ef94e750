"""Work on sorted tablets that the first node asks another one for."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from pqbroker.broker.node import served_tablets
from pqbroker.broker.node.served_tablets import WORKS_MAX, ServedTablets
from pqbroker.broker.peers.peer_methods import WORK_GOES_ON
from pqbroker.storage.engine import CommitRefused
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, row

KEY = row("a", 1)


def table_of(web: Web) -> SortedTable:
    table = web.node.server.node.cell.current.sorted_tables.get("shop.stock")
    assert table is not None
    return table


def leave(web: Web, state: str) -> dict[str, Any]:
    """Return the work that has the table's tablet leave its state."""
    record = table_of(web).record
    states = {str(record.tablets[0]): state}
    return {"work": "leave", "table": record.table_id.hex(), "states": states, "is_forced": False}


async def test_a_tablet_that_left_its_state_serves_again_when_it_is_settled(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, count=5))
    served = ServedTablets(web.node.server.node)
    assert await served.answer([1, leave(web, "unmounting")]) == {"told": None}
    assert (await web.refusal("POST", f"{PATH}/lookup", {"keys": [KEY]}))[1] == "WRONG_STATE"
    assert len(table_of(web).tablets[0].structure.chunks) == 1
    record = table_of(web).record
    settle = {"work": "settle", "table": record.table_id.hex(), "tablets": [record.tablets[0]]}
    assert await served.answer([2, settle]) == {"told": None}
    assert (await look_up(web, KEY))[0]["count"] == 5


@pytest.mark.parametrize("state", ["unmounting", "freezing"])
async def test_tablets_follow_the_scheme_when_the_first_node_is_gone(web: Web, state: str) -> None:
    await create(web)
    served = ServedTablets(web.node.server.node)
    assert await served.answer([1, leave(web, state)]) == {"told": None}
    assert (await web.refusal("POST", f"{PATH}/rows", {"rows": [KEY]}))[1] == "WRONG_STATE"
    await web.node.server.node.cell.current.sorted_tables.follow_states(table_of(web), [0])
    assert table_of(web).moving
    assert table_of(web).tablets[0].is_mounted is (state == "freezing")
    served.close()
    await until(lambda: not table_of(web).moving)
    await table_of(web).tablets[0].mounted()
    await insert(web, row("a", 1, count=7))


async def test_work_that_takes_long_is_asked_for_again(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, begun = asyncio.Event(), list[Any]()

    async def works(_: object, asked: Mapping[str, Any]) -> Any:
        begun.append(asked)
        await ends.wait()
        return "done"

    monkeypatch.setattr(served_tablets, "work_here", works)
    monkeypatch.setattr(served_tablets, "WORK_WAIT_S", 0.01)
    served = ServedTablets(web.node.server.node)
    assert await served.answer([7, {}]) == await served.answer([7, {}]) == WORK_GOES_ON
    ends.set()
    assert await served.answer([7, {}]) == {"told": "done"}
    assert begun == [{}]


async def test_works_are_limited(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = asyncio.Event()

    async def works(_: object, __: object) -> None:
        await ends.wait()

    monkeypatch.setattr(served_tablets, "work_here", works)
    monkeypatch.setattr(served_tablets, "WORK_WAIT_S", 0)
    served = ServedTablets(web.node.server.node)
    for number in range(WORKS_MAX):
        assert await served.answer([number, {}]) == WORK_GOES_ON
    with pytest.raises(ValueError, match=f"{WORKS_MAX} works are under way"):
        await served.answer([WORKS_MAX, {}])
    ends.set()
    served.close()


async def test_refusals_are_answered(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web)
    served = ServedTablets(web.node.server.node)
    found = await served.answer([1, {"work": "settle", "table": "00" * 16, "tablets": []}])
    assert found["error"][0] == "NO_TABLE"
    found = await served.answer([2, {**leave(web, "unmounting"), "states": {"5": "unmounting"}}])
    assert found["error"][0] == "WRONG_STATE"

    async def refuses(_: object, __: object) -> None:
        raise CommitRefused("no room")

    monkeypatch.setattr(served_tablets, "work_here", refuses)
    assert await served.answer([3, {}]) == {"refused": "no room"}


@pytest.mark.parametrize(
    "asked", [None, 5, [], [1], [1, 5], [1, {}], ["x", {}], [[], {}], [1, {"work": "none", "table": ""}]]
)
async def test_what_is_no_work_is_refused(web: Web, asked: Any) -> None:
    await create(web)
    with pytest.raises(ValueError, match="work on tablets was expected"):
        await ServedTablets(web.node.server.node).answer(asked)


@pytest.mark.parametrize("ends", ["asked", "gone"])
async def test_writes_end_before_a_deletion_and_begin_again_without_it(web: Web, ends: str) -> None:
    await create(web)
    served, table_id = ServedTablets(web.node.server.node), table_of(web).record.table_id.hex()
    assert await served.answer([1, {"work": "end", "table": table_id}]) == {"told": None}
    writing = asyncio.create_task(insert(web, row("a", 1, count=7)))
    await until(lambda: table_of(web).tablets[0].writes.waiting_count == 1)
    if ends == "asked":
        assert await served.answer([2, {"work": "resume", "table": table_id}]) == {"told": None}
    else:
        served.close()
    await writing
    assert (await look_up(web, KEY))[0]["count"] == 7


async def test_a_table_with_a_transaction_is_not_deleted(web: Web) -> None:
    await create(web)
    served, table = ServedTablets(web.node.server.node), table_of(web)
    refusal = TableError("TRANSACTION_UNDER_WAY", "rows of another one are prepared", "Wait.")

    async def under_way() -> None:
        raise refusal

    table.end_transactions = under_way  # type: ignore[method-assign]
    told = await served.answer([1, {"work": "end", "table": table.record.table_id.hex()}])
    assert told == {"error": [refusal.code, refusal.message, refusal.cure]}
    await insert(web, row("a", 1, count=7))
