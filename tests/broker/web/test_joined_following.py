"""Events of several nodes, joined: where another request continues, and what ends the stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.web.resources.joined_following import JoinedTail
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Stream, StreamCut
from pqbroker.broker.web.routing.stream_forms import EVENTS, LINES, PROBLEM, StreamForm
from pqbroker.broker.web.served import ROUTES

ROUTE = next(route for route in ROUTES if (route.method, route.path) == ("GET", "/v1/topics/{name}/records"))
BEGUN = b"id: 0:5,1:7\n\n"


def record(partition: int, offset: int) -> dict[str, int]:
    return {"partition": partition, "offset": offset}


def events(event_id: str, *records: dict[str, int]) -> bytes:
    return EVENTS.write(records, "", event_id)


async def joined(
    pieces: Sequence[bytes | Exception], form: StreamForm = EVENTS, partitions: Sequence[int] = (0, 1), **query: Any
) -> list[bytes]:
    """Return what is sent for the pieces of a node."""
    loop = asyncio.get_running_loop()
    topic = SimpleNamespace(record=SimpleNamespace(partitions=len(partitions)))
    node = SimpleNamespace(
        loop=loop, access=None, audit=None, leaders=SimpleNamespace(number=1, nodes=(1,)),
        cell=SimpleNamespace(current=SimpleNamespace(topics=SimpleNamespace(get=lambda *_, **__: topic))),
    )  # fmt: skip
    asked: list[Call] = []

    async def follow_here(call: Call) -> Stream:
        asked.append(call)
        return Stream(EVENTS.content_type, sent())

    async def sent() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    call = Call(cast(Any, node), {"name": "t"}, query, None, Looks(1).of(""))
    tail = JoinedTail(call, ROUTE, follow_here, form)
    await tail.begin({1: partitions})
    assert [each.query["partitions"] for each in asked] == [partitions]
    return [piece async for piece in tail.pieces()]


async def test_an_id_names_all_partitions_and_stands_behind_what_was_sent() -> None:
    found = await joined([BEGUN, b":\n\n", events("0:6,1:7", record(0, 5)), events("0:6,1:9", record(1, 8))], limit=2)
    assert found == [events("0:6,1:7", record(0, 5)), events("0:6,1:9", record(1, 8))]


async def test_records_beyond_the_limit_are_left_to_another_request() -> None:
    piece = events("0:5,1:10", *(record(1, offset) for offset in (7, 8, 9)))
    assert await joined([BEGUN, piece], limit=2) == [events("0:5,1:9", record(1, 7), record(1, 8))]
    assert await joined([BEGUN, piece], LINES, limit=1) == [LINES.write([record(1, 7)], "", "")]


async def test_no_id_is_sent_while_a_partition_has_none() -> None:
    assert await joined([BEGUN, events("0:6,1:7", record(0, 5))], partitions=(0, 1, 2), limit=1) == [
        events("", record(0, 5))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (EVENTS.write([Problem(503, "NODE_SILENT", "node 2", "").document()], PROBLEM, ""), "NODE_SILENT"),
        (Problem(503, "OTHER_NODE", "", ""), "OTHER_NODE"), (StreamCut(), "NODE_SILENT"),
        (b"data: {}\n\n", "NODE_SILENT"), (b"data: [\n\n", "NODE_SILENT"), (b"id: 0\n\n", "NODE_SILENT"),
        (b"\xff\n\n", "NODE_SILENT"), (b"event: problem\ndata: {}\n\n", "NODE_SILENT"),
    ],
)  # fmt: skip
async def test_an_error_or_a_lie_of_a_node_ends_the_stream(end: bytes | Exception, code: str) -> None:
    (only,) = await joined([BEGUN, end], LINES)
    assert json.loads(only)["error"]["code"] == code


async def test_an_end_without_a_reason_is_an_error() -> None:
    (only,) = await joined([BEGUN], LINES)
    assert json.loads(only)["error"]["code"] == "NODE_SILENT"


async def test_what_is_refused_before_it_begins_is_no_stream() -> None:
    with pytest.raises(Problem, match="node 2"):
        await joined([Problem(503, "NODE_SILENT", "node 2", "")])
