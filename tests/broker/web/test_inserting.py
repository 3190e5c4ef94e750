"""Rows of one request for several tablets, and batches of sessions: together or not at all, and each once."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_arrow_rows import stream
from tests.broker.web.test_tables import NAME, SCHEMA, create, insert, reopened, select, tablets

ROWS = f"/v1/tables/{NAME}/rows"
LINES = "application/x-ndjson"


def row(number: int, index: int | None = None) -> dict[str, Any]:
    return {"id": number} if index is None else {"id": number, "$tablet_index": index}


async def send(web: Web, sequence: int, *rows: dict[str, Any], session: str = "s") -> Any:
    body = {"rows": list(rows), "session": session, "sequence": sequence}
    status, answer = await web.ask("POST", ROWS, body)
    assert status == 200, answer
    return answer


async def ids(web: Web, count: int = 3) -> list[list[int]]:
    return [[one["id"] for one in await select(web, tablet_index=index)] for index in range(count)]


def places(answer: Any) -> list[tuple[int, int, int]]:
    return [(one["tablet_index"], one["first_row_index"], one["row_count"]) for one in answer["tablets"]]


async def test_rows_for_several_tablets_are_one_commit(web: Web) -> None:
    await create(web, tablet_count=3)
    await insert(web, row(1, 1))
    commits = web.node.server.node.cell.current.cell.stats().commits
    answer = await insert(web, row(2, 0), row(3, 1), row(4, 0))
    assert web.node.server.node.cell.current.cell.stats().commits == commits + 1
    assert places(answer) == [(0, 0, 2), (1, 1, 1)]
    await reopened(web)
    assert await ids(web) == [[2, 4], [1, 3], []]


async def test_rows_that_name_no_tablet_go_to_one_beside_those_that_do(web: Web) -> None:
    await create(web, tablet_count=2)
    await web.ask("POST", f"/v1/tables/{NAME}/freeze", {"last_tablet_index": 0})
    answer = await insert(web, row(1), row(2, 1), row(3))
    assert places(answer) == [(1, 0, 3)]
    assert sorted((await ids(web, 2))[1]) == [1, 2, 3]


async def test_rows_for_a_tablet_that_takes_none_write_nothing(web: Web) -> None:
    await create(web, tablet_count=3)
    await web.ask("POST", f"/v1/tables/{NAME}/freeze", {"first_tablet_index": 2})
    for index, status, code in ((2, 409, "WRONG_STATE"), (3, 404, "NO_TABLET")):
        refused = await web.refusal("POST", ROWS, {"rows": [row(1, 0), row(2, index)]})
        assert refused[:2] == (status, code)
    many = {"rows": [row(number, number) for number in range(101)]}
    assert (await web.refusal("POST", ROWS, many))[:2] == (400, "SEVERAL_TABLETS")
    assert await ids(web) == [[], [], []]


async def test_rows_for_tablets_of_several_cells_appear_together(web: Web) -> None:
    assert (await web.ask("POST", "/v1/bundles", {"name": "b"}))[0] == 201
    for _ in range(2):
        assert (await web.ask("POST", "/v1/cells", {"bundle": "b"}))[0] == 201
    await create(web, tablet_count=4, bundle="b", schema=[*SCHEMA, {"name": "$timestamp", "type": "uint64"}])
    cells = await tablets(web, "cell_id")
    assert len(set(cells)) == 2
    answer = await insert(web, *(row(number, number) for number in range(4)))
    assert places(answer) == [(number, 0, 1) for number in range(4)]
    assert await ids(web, 4) == [[0], [1], [2], [3]]
    found = [one["$timestamp"] for index in range(4) for one in await select(web, tablet_index=index)]
    assert len(found) == 4
    assert len({*found}) == 1, "one commit has one timestamp"
    same = [index for index in range(4) if cells[index] == cells[0]]
    answer = await insert(web, *(row(index, index) for index in same), row(9))
    assert {place[0] for place in places(answer)} == set(same)


async def test_a_batch_of_a_session_for_several_cells_is_taken_once(web: Web) -> None:
    await web.ask("POST", "/v1/bundles", {"name": "b"})
    for _ in range(2):
        await web.ask("POST", "/v1/cells", {"bundle": "b"})
    await create(web, tablet_count=2, bundle="b")
    first = await send(web, 1, row(1, 0), row(2, 1))
    again = await send(web, 1, row(1, 0), row(2, 1))
    assert again == {"tablets": first["tablets"], "data_weight": 0, "duplicate": True}
    assert await ids(web, 2) == [[1], [2]]


@pytest.mark.spec("E.13")
async def test_a_batch_that_was_taken_is_not_taken_again(web: Web) -> None:
    await create(web, tablet_count=3)
    first = await send(web, 5, row(1), row(2))
    assert first["duplicate"] is False
    again = await send(web, 5, row(1), row(2))
    assert again == {"tablets": first["tablets"], "data_weight": 0, "duplicate": True}
    assert await send(web, 4, row(0)) == {"tablets": [], "data_weight": 0, "duplicate": True}
    await send(web, 9, row(3))
    await send(web, 5, row(4), session="other")
    await reopened(web)
    assert (await send(web, 9, row(3)))["duplicate"]
    assert sorted(number for some in await ids(web) for number in some) == [1, 2, 3, 4]
    assert sorted(map(len, await ids(web)))[-1] >= 3, "a session stays with its tablet"


@pytest.mark.spec("E.13")
async def test_a_session_is_known_whatever_its_tablets_do(web: Web) -> None:
    await create(web, tablet_count=3)
    await send(web, 1, row(1, 0), row(2, 1))
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {"last_tablet_index": 1})
    assert places(await send(web, 1, row(1, 0), row(2, 1))) == [(0, 0, 1), (1, 0, 1)]
    assert places(await send(web, 2, row(3))) == [(2, 0, 1)]
    await web.ask("POST", f"/v1/tables/{NAME}/unmount", {})
    body = {"first_tablet_index": 0, "last_tablet_index": 0, "tablet_count": 2}
    assert (await web.ask("POST", f"/v1/tables/{NAME}/reshard", body))[0] == 200
    await web.ask("POST", f"/v1/tables/{NAME}/mount", {})
    assert places(await send(web, 2, row(3))) == [(3, 0, 1)]
    assert await ids(web, 4) == [[1], [], [2], [3]]


async def test_of_batches_sent_at_once_each_is_taken_once(web: Web) -> None:
    await create(web, tablet_count=3)
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    web.node.engine.faults.hold()
    sent = [asyncio.ensure_future(send(web, 1, row(1))) for _ in range(10)]
    await until(lambda: len((topic.session_locks.get("s") or asyncio.Lock())._waiters or ()) == 9)
    web.node.engine.faults.release()
    answers = await asyncio.gather(*sent)
    assert sorted(answer["duplicate"] for answer in answers) == [False, *[True] * 9]
    assert len({tuple(places(answer)) for answer in answers}) == 1
    assert sorted(number for some in await ids(web) for number in some) == [1]
    assert len(topic.session_locks) == 0


async def test_rows_that_fill_more_than_a_batch_are_refused_before_the_rest_is_encoded(web: Web) -> None:
    await create(web, tablet_count=2)
    many = b'{"id":1}\n' * 100_000 + b'{"unknown":1}\n'
    status, code, message = await web.refusal("POST", ROWS, many, Content_Type=LINES)
    assert (status, code) == (413, "ROWS_TOO_LARGE")
    assert message == "the rows are larger as records than max.message.bytes = 1048588"
    assert await ids(web, 2) == [[], []]


async def test_rows_of_two_tablets_may_fill_a_batch_each(web: Web) -> None:
    await create(web, tablet_count=2)
    rows = b"".join(b'{"id":%d,"$tablet_index":%d}\n' % (number, number % 2) for number in range(60_000))
    status, answer = await web.ask("POST", ROWS, rows, Content_Type=LINES)
    assert status == 200, answer
    assert places(answer) == [(0, 0, 30_000), (1, 0, 30_000)]


@pytest.mark.parametrize("kind", [LINES, ARROW_STREAM])
async def test_rows_in_other_forms_have_their_session_in_the_query(web: Web, kind: str) -> None:
    await create(web, tablet_count=2)
    body = stream(id=[1, 2], **{"$tablet_index": [0, 1]}) if kind == ARROW_STREAM else (
        b'{"id":1,"$tablet_index":0}\n{"id":2,"$tablet_index":1}'
    )  # fmt: skip
    for is_again in (False, True):
        status, answer = await web.ask("POST", f"{ROWS}?session=s&sequence=0", body, Content_Type=kind)
        assert (status, answer["duplicate"]) == (200, is_again), answer
    assert await ids(web, 2) == [[1], [2]]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"session": "s"}, "one is missing"),
        ({"sequence": 1}, "one is missing"),
        ({"session": "", "sequence": 1}, "1 to 255 bytes"),
        ({"session": "ä" * 128, "sequence": 1}, "1 to 255 bytes"),
        ({"session": "a\n", "sequence": 1}, "printable"),
        ({"session": "s", "sequence": -1}, "sequence"),
        ({"session": "s", "sequence": 1 << 63}, "sequence"),
        ({"session": 7, "sequence": 1}, "session"),
    ],
)
async def test_a_session_that_cannot_be_is_refused(web: Web, fields: dict[str, Any], told: str) -> None:
    await create(web)
    status, _, message = await web.refusal("POST", ROWS, {"rows": [row(1)], **fields})
    assert status == 400
    assert told in message
    assert await ids(web, 1) == [[]]


@pytest.mark.spec("E.13")
async def test_a_batch_that_was_refused_is_taken_when_it_comes_again(web: Web) -> None:
    await create(web, tablet_count=2)
    web.node.engine.faults.refuse_next()
    body = {"rows": [row(1, 0), row(2, 1)], "session": "s", "sequence": 1}
    assert (await web.refusal("POST", ROWS, body))[:2] == (503, "KAFKA_STORAGE_ERROR")
    assert (await web.ask("POST", ROWS, body))[1]["duplicate"] is False
    assert await ids(web, 2) == [[1], [2]]
