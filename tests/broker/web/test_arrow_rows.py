"""Rows as Arrow IPC streams over HTTP, encoded by a worker: they are rows as any other, and what goes wrong is told."""

import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from pqbroker.tables.work import process
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]
NAME = "shop.orders"
PATH = f"/v1/tables/{NAME}/rows"
SCHEMA = [{"name": "id", "type": "int64", "required": True}, {"name": "note", "type": "utf8"}]


def stream(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


@pytest.fixture
async def shop(web: Web) -> Web:
    return await with_table(web)


async def with_table(web: Web) -> Web:
    """A table of two tablets."""
    status, answer = await web.ask(
        "POST", "/v1/tables", {"path": "//shop/orders", "schema": SCHEMA, "tablet_count": 2}
    )  # fmt: skip
    assert status == 201, answer
    return web


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that do what a column's name says."""
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-m", "tests.support.scripted_worker"))


async def insert(web: Web, **columns: Any) -> Any:
    status, answer = await web.ask("POST", PATH, stream(**columns), Content_Type=ARROW_STREAM)
    assert status == 200, answer
    return answer


async def refusal(web: Web, body: bytes) -> tuple[int, str, str]:
    return await web.refusal("POST", PATH, body, Content_Type=ARROW_STREAM)


async def test_rows_in_arrow_are_rows_of_the_table(shop: Web) -> None:
    answer = await insert(shop, id=[1, 2], note=["ä", None], **{"$tablet_index": [1, 1]})
    assert answer == {
        "tablets": [{"tablet_index": 1, "first_row_index": 0, "row_count": 2}], "data_weight": 1 + 8 + 2 + 1 + 8,
        "duplicate": False,
    }  # fmt: skip
    await shop.ask("POST", PATH, {"rows": [{"id": 3, "$tablet_index": 1}]})
    _, found = await shop.ask("GET", f"{PATH}?tablet_index=1")
    assert [(row["$row_index"], row["id"], row["note"]) for row in found["rows"]] == [
        (0, 1, "ä"), (1, 2, None), (2, 3, None),
    ]  # fmt: skip


async def test_refused_rows_are_named_and_none_is_written(shop: Web) -> None:
    assert await refusal(shop, stream(id=[1, None])) == (400, "INVALID_ROW", "rows[1].id is missing, or null")
    assert (await refusal(shop, stream(id=[1], **{"$tablet_index": [2]})))[:2] == (404, "NO_TABLET")
    several = stream(id=[1] * 101, **{"$tablet_index": list(range(101))})
    assert (await refusal(shop, several))[:2] == (400, "SEVERAL_TABLETS")
    assert (await refusal(shop, b"no stream"))[:2] == (400, "INVALID_STREAM")
    assert (await refusal(shop, stream(id=[1] * 200_000)))[:2] == (413, "ROWS_TOO_LARGE")
    _, tablets = await shop.ask("GET", f"/v1/tables/{NAME}/tablets")
    assert [one["total_row_count"] for one in tablets["tablets"]] == [0, 0]


async def test_one_worker_serves_inserts_one_after_another(shop: Web) -> None:
    await insert(shop, id=[1])
    pids = shop.node.server.node.workers.pids
    await insert(shop, id=[1])
    assert len(pids) == 1
    assert shop.node.server.node.workers.pids == pids


async def test_a_path_that_takes_json_alone_takes_no_arrow(shop: Web) -> None:
    refused = await shop.refusal("POST", "/v1/tables", stream(id=[1]), Content_Type=ARROW_STREAM)
    assert refused[:2] == (415, "NOT_JSON")


@pytest.mark.usefixtures("scripted")
async def test_a_worker_that_dies_is_told_and_another_serves(shop: Web) -> None:
    assert (await refusal(shop, b"exit 3"))[:2] == (503, "WORKER_LOST")
    assert shop.node.server.node.workers.pids == []
    status, answer = await shop.ask("POST", PATH, b"encode", Content_Type=ARROW_STREAM)
    assert (status, answer["tablets"][0]["row_count"]) == (200, 1)
    (pid,) = shop.node.server.node.workers.pids
    os.kill(pid, 9)
    assert (await shop.ask("POST", PATH, b"encode", Content_Type=ARROW_STREAM))[0] == 200, "it rested when it died"


@pytest.mark.usefixtures("scripted")
async def test_rows_over_their_memory_are_refused(shop: Web) -> None:
    status, code, message = await refusal(shop, b"exit 75")
    assert (status, code) == (413, "ROWS_TOO_LARGE")
    assert "pqbroker.sql.memory.bytes.max" in message


@pytest.mark.usefixtures("scripted")
async def test_rows_over_their_time_are_refused_and_their_worker_is_killed(serve: Serve) -> None:
    shop = await with_table(await serve(sql_time_ms_max=50))
    status, code, message = await refusal(shop, b"wait")
    assert (status, code) == (413, "ROWS_TOO_LARGE")
    assert "pqbroker.sql.time.ms.max = 50" in message
    assert shop.node.server.node.workers.pids == []


@pytest.mark.usefixtures("scripted")
async def test_few_streams_are_encoded_at_once(shop: Web) -> None:
    """`pqbroker.http.looks.max`; the others wait."""
    inserts = [asyncio.create_task(shop.ask("POST", PATH, b"encode", Content_Type=ARROW_STREAM)) for _ in range(6)]
    assert [status for status, _ in await asyncio.gather(*inserts)] == [200] * 6
    assert 1 <= len(shop.node.server.node.workers.pids) <= 2
