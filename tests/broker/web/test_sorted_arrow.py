"""Rows in Arrow written into sorted tables: as those in JSON, all or none."""

from typing import Any

import pyarrow
import pytest

from pqbroker.broker.services.sorted_tables import rows
from pqbroker.broker.services.tables.arrow_rows import encode_sorted_arrow
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_tables import PATH, create, insert, look_up, row
from tests.tables.work.sorted.test_row_packing import stream

ARROW = "application/vnd.apache.arrow.stream"


async def send(web: Web, columns: Any, query: str = "") -> tuple[int, Any]:
    body = columns if isinstance(columns, bytes) else stream(pyarrow.record_batch(columns))
    return await web.ask("POST", f"{PATH}/rows{query}", body, Content_Type=ARROW)


async def test_rows_are_inserted_and_updated_over_tablets(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    status, answer = await send(web, {"shop": ["a", "z", None], "id": [1, 2, 3], "count": [5, None, 7]})
    assert status == 200, answer
    assert answer["row_count"] == 3
    assert await look_up(web, row("z", 2), {"shop": None, "id": 3}) == [
        row("z", 2, note=None, count=None), {"shop": None, "id": 3, "note": None, "count": 7},
    ]  # fmt: skip
    later = (await send(web, {"shop": ["a"], "id": [1], "note": ["x"]}, "?update=true"))[1]["timestamp"]
    assert later > answer["timestamp"]
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="x", count=5)]
    await send(web, {"shop": ["a"], "id": [1], "note": ["y"]})
    assert await look_up(web, row("a", 1)) == [row("a", 1, note="y", count=None)]


async def test_many_rows_of_a_stream_are_one_commit(web: Web) -> None:
    await create(web, pivot_keys=[[], ["b"]])
    numbers = list(range(5000))
    shops = ["a" if number % 2 else "b" for number in numbers]
    _, answer = await send(web, {"shop": shops, "id": numbers, "note": [f"n{each}" for each in numbers]})
    assert answer["row_count"] == 5000
    assert await look_up(web, row("a", 4999), row("b", 4998), timestamp=answer["timestamp"]) == [
        row("a", 4999, note="n4999", count=None), row("b", 4998, note="n4998", count=None),
    ]  # fmt: skip
    assert await look_up(web, row("a", 4999), timestamp=answer["timestamp"] - 1) == [None]


@pytest.mark.parametrize(
    ("columns", "query", "status", "code", "part"),
    [
        ({"shop": ["a", "a"], "id": [1, 1]}, "", 400, "INVALID_ROW", "rows[1] has the key of rows[0]"),
        ({"shop": ["a", "b"], "id": [1, None]}, "", 400, "INVALID_ROW", "rows[1].id is missing"),
        ({"shop": ["a"], "id": [1], "nota": ["x"]}, "", 400, "INVALID_ROW", "'nota'"),
        (b"none", "", 400, "INVALID_STREAM", "no Arrow IPC stream"),
        ({"shop": ["a"], "id": [1]}, "?session=s&sequence=1", 409, "SORTED_TABLE", "session is given"),
    ],
)  # fmt: skip
async def test_a_stream_that_is_refused_writes_nothing(
    web: Web, columns: Any, query: str, status: int, code: str, part: str
) -> None:
    await create(web)
    await insert(web, row("q", 1))
    found, answer = await send(web, columns, query)
    assert (found, answer["error"]["code"]) == (status, code)
    assert part in answer["error"]["message"]
    assert await look_up(web, row("a", 1), row("b", 1)) == [None, None]


async def test_a_dictionary_of_one_long_text_does_not_become_many_bytes(web: Web) -> None:
    await create(web)
    notes = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int16()), ["x" * 20_000])
    status, answer = await send(web, {"shop": ["a"] * 2000, "id": list(range(2000)), "note": notes})
    assert (status, answer["error"]["code"]) == (413, "ROWS_TOO_LARGE")
    assert "become more than" in answer["error"]["message"]
    assert await look_up(web, row("a", 1)) == [None]


async def test_a_schema_that_is_changed_meanwhile_is_told(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(web)
    encode = encode_sorted_arrow

    async def altered(*arguments: Any, **more: Any) -> Any:
        _, table = await web.ask("GET", PATH)
        await web.ask("POST", f"{PATH}/unmount", {})
        columns = [*table["schema"], {"name": "more", "type": "int64"}]
        assert (await web.ask("POST", f"{PATH}/alter", {"schema": columns}))[0] == 200
        assert (await web.ask("POST", f"{PATH}/mount", {}))[0] == 200
        return await encode(*arguments, **more)

    monkeypatch.setattr(rows, "encode_sorted_arrow", altered)
    status, answer = await send(web, {"shop": ["a"], "id": [1], "note": ["x"]})
    assert (status, answer["error"]["code"]) == (409, "TABLE_CHANGED")
    monkeypatch.undo()
    assert (await send(web, {"shop": ["a"], "id": [1], "more": [5]}))[0] == 200
    assert await look_up(web, row("a", 1)) == [row("a", 1, note=None, count=None, more=5)]
