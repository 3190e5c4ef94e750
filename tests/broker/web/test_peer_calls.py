"""Calls that another node forwards, at the node that serves them: rights, limits, streams, and lies."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.web import peer_calls
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.broker.web.routing.forwarded_calls import ForwardedCall, forward
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route, Stream, StreamCut
from pqbroker.broker.web.served import ROUTES
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.bundles.cell_homes import CellHome
from pqbroker.storage.ids import CellId, TabletId
from tests.broker.conftest import Node, until

RECORDS = "/v1/topics/{name}/records"
ROUTE = next(route for route in ROUTES if (route.method, route.path) == ("GET", RECORDS))
READ = ForwardedCall("GET", RECORDS, {"name": "t"}, {}, {}, ANONYMOUS, "127.0.0.1", "127.0.0.1", is_raw=False)
FOLLOW = READ._replace(query={"follow": True})


ANN = Principal("User", "ann")


class AnnAlone:
    """Allows everything to one user, from one host."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return (principal, host) == (ANN, "127.0.0.1")

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return principal == ANN


@pytest.mark.parametrize(("cells", "number"), [((1, 1), None), ((2, 2), 2), ((2, 3), None), ((1, 2), None)])
def test_rows_are_inserted_at_another_node_where_they_have_one_cell_there(
    cells: tuple[int, ...], number: int | None
) -> None:
    topic = SimpleNamespace(record=SimpleNamespace(name="t", tablets=cells, cell_of=cells.__getitem__))
    opened = SimpleNamespace(
        scheme=SimpleNamespace(kind_of=lambda _: None), topics=SimpleNamespace(get=lambda _, or_static: topic)
    )
    homes = {CellId(cell): CellHome(CellId(cell), node, node) for cell, node in ((1, 1), (2, 2), (3, 2))}
    leaders = Leaders(1, (1, 2), homes=lambda: homes)
    node = SimpleNamespace(access=None, audit=None, leaders=leaders, cell=SimpleNamespace(current=opened))
    insert = next(route for route in ROUTES if (route.method, route.path) == ("POST", "/v1/tables/{name}/rows"))
    assert insert.place is not None
    assert insert.place(Call(cast(Any, node), {"name": "t"}, {}, {}, Looks(1).of(""))) == number


class Linked:
    """The node of these calls, as the first one reaches it."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls
        self.is_silent = False
        self.told: list[Any] = []

    async def samples(self) -> Mapping[int, Any]:
        return {}

    async def ask_web(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        if self.is_silent:
            raise NodeSilent(f"node {node} says nothing")
        return await self._calls.answer(json.loads(json.dumps(asked)), body)

    async def work_on_tablets(self, node: int, asked: Any) -> Any:
        raise NodeSilent(f"node {node} does no work")

    async def ask_sessions(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        raise NodeSilent("nothing is asked of it")

    def tell_web(self, node: int, told: Any) -> None:
        self.told.append(told)
        self._calls.take(told)


async def test_a_call_is_served_for_its_sender_alone(node: Node) -> None:
    await node.create_topic("t")
    head, body = await PeerCalls(node.server.node).answer(READ.encode(), b"null")
    assert head == {"accepted": False}
    assert json.loads(body)["records"] == []
    guarded = PeerCalls(replace(node.server.node, access=AnnAlone()))
    head, body = await guarded.answer(READ.encode(), b"null")
    assert head["problem"][:2] == [403, "TOPIC_AUTHORIZATION_FAILED"]
    assert body == b""
    head, _ = await guarded.answer(READ._replace(principal=ANN).encode(), b"null")
    assert "problem" not in head
    head, _ = await guarded.answer(READ._replace(principal=ANN, host="10.0.0.1").encode(), b"null")
    assert head["problem"][0] == 403


async def test_a_partition_whose_cell_opens_is_not_answered_as_empty(node: Node) -> None:
    topic = SimpleNamespace(
        record=SimpleNamespace(tablets=(TabletId(1),), partitions=2, partitions_per_tablet=2, cell_of=lambda _: 1),
        partitions=[SimpleNamespace(is_loaded=True), SimpleNamespace(is_loaded=False, is_unmounted=False)],
    )
    leaders = Leaders(1, (1, 2), homes=lambda: {CellId(1): CellHome(CellId(1), 1, 1)})
    call = Call(replace(node.server.node, leaders=leaders), {}, {}, None, Looks(1).of(""))
    call.check_served(cast(Any, topic), (0, 7))
    for asked in ((1,), None):
        with pytest.raises(KafkaError):
            call.check_served(cast(Any, topic), asked)


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        (None, b""), ({}, b""), ({"call": 5}, b""), ({"call": [1] * 9}, b"null"),
        (READ._replace(route="/v1/users").encode(), b"null"), (READ._replace(method="DELETE").encode(), b"null"),
        ({"call": ["GET", RECORDS, 5, *READ[3:]]}, b"null"), (READ.encode(), b"{"), (READ.encode(), b"[" * 100_000),
        (READ.encode(), b"\xff"),
        (READ._replace(method="POST").encode(), b'{"records": 5}'), (READ._replace(method="POST").encode(), b"null"),
    ],
)  # fmt: skip
async def test_what_is_no_call_is_refused(node: Node, asked: Any, body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await PeerCalls(node.server.node).answer(asked, body)


@pytest.mark.parametrize("told", [None, 5, {}, {"piece": 1}, {"leave": []}])
async def test_what_is_no_note_is_refused(node: Node, told: Any) -> None:
    with pytest.raises(ValueError, match="a note about a stream"):
        PeerCalls(node.server.node).take(told)


async def test_streams_are_limited_and_closed_when_the_first_node_leaves_them(node: Node) -> None:
    await node.create_topic("t")
    few = PeerCalls(node.server.node)
    most = node.server.node.settings.http_followers_max
    for number in range(most):
        head, _ = await few.answer(FOLLOW.encode(), b"null")
        assert head["stream"] == number + 1
    head, _ = await few.answer(FOLLOW.encode(), b"null")
    assert head["problem"][:2] == [503, "TOO_MANY_FOLLOWERS"]
    few.take({"leave": 1})
    head, _ = await few.answer(FOLLOW.encode(), b"null")
    assert head["stream"] == most + 1
    assert await few.answer({"piece": 1}, b"") == ({"is_cut": True}, b"")
    few.close()
    assert await few.answer({"piece": most + 1}, b"") == ({"is_cut": True}, b"")


async def test_a_client_that_goes_ends_the_stream_at_the_other_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    linked, served = _linked(node, monkeypatch, lambda: Stream("application/x-ndjson", endless()))
    stream = await served
    assert isinstance(stream, Stream)
    assert await anext(stream.pieces) == b"first"
    waiting = asyncio.ensure_future(anext(stream.pieces))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await stream.pieces.aclose()
    assert linked.told == [{"leave": 1}]
    await until(ended.is_set)


async def test_a_piece_that_is_slow_is_asked_for_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        await made.wait()
        yield b"at last"

    monkeypatch.setattr(peer_calls, "PIECE_WAIT_S", 0.01)
    linked, served = _linked(node, monkeypatch, lambda: Stream("text/csv", slow(), has_end=True))
    stream = await served
    waiting = asyncio.ensure_future(anext(stream.pieces))
    assert await linked.ask_web(2, {"piece": 1}, b"") == ({"waits": True}, b"")
    made.set()
    assert await waiting == b"at last"
    assert [piece async for piece in stream.pieces] == []
    assert linked.told == []


@pytest.mark.parametrize(
    ("content_type", "last"),
    [("application/x-ndjson", b'{"error": '), ("text/event-stream", b"event: problem\ndata: "), ("text/csv", None)],
)
async def test_a_node_that_falls_silent_within_a_stream_is_named_or_the_stream_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch, content_type: str, last: bytes | None
) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"1"
        yield b"2"

    linked, served = _linked(node, monkeypatch, lambda: Stream(content_type, pieces()))
    stream = await served
    assert await anext(stream.pieces) == b"1"
    linked.is_silent = True
    if last is None:
        with pytest.raises(StreamCut):
            await anext(stream.pieces)
    else:
        piece = await anext(stream.pieces)
        assert piece.startswith(last)
        assert b"node 2 says nothing" in piece


async def test_a_refusal_before_the_first_piece_is_the_answer_and_a_cut_is_a_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> AsyncGenerator[bytes, None]:
        raise Problem(400, "NO", "no", "none", 7)
        yield b""

    async def cut() -> AsyncGenerator[bytes, None]:
        yield b"1"
        raise StreamCut

    _, served = _linked(node, monkeypatch, lambda: Stream("text/csv", refused(), has_end=True))
    with pytest.raises(Problem) as told:
        await anext((await served).pieces)
    assert (told.value.status, told.value.code, told.value.cure, told.value.number) == (400, "NO", "none", 7)
    _, served = _linked(node, monkeypatch, lambda: Stream("text/csv", cut(), has_end=True))
    stream = await served
    assert await anext(stream.pieces) == b"1"
    with pytest.raises(StreamCut):
        await anext(stream.pieces)


async def test_a_defect_is_an_answer_and_costs_no_link(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise ZeroDivisionError

    _, served = _linked(node, monkeypatch, fail)
    with pytest.raises(Problem) as told:
        await served
    assert (told.value.status, told.value.code) == (500, "UNKNOWN_SERVER_ERROR")
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (None, b""), (5, b""), ({}, b""), ({}, b"{"), ({}, b"[" * 100_000), ({"stream": 1}, b""),
        ({"stream": "x", "type": "y", "has_end": True}, b""), ({"problem": 5}, b""), ({"problem": [1]}, b""),
        ({"problem": ["x", 1, 2, 3, None]}, b""),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_a_problem(
    node: Node, monkeypatch: pytest.MonkeyPatch, head: Any, body: bytes
) -> None:
    class Liar(Linked):
        async def ask_web(self, node: int, asked: Any, given: bytes) -> tuple[Any, bytes]:
            return head, body

    call = Call(node.server.node, {"name": "t"}, {}, None, Looks(1).of(""))
    with pytest.raises(Problem, match="node 2 sent no answer that this version knows"):
        await forward(Liar(PeerCalls(node.server.node)), 2, ROUTE, call)


def _linked(node: Node, monkeypatch: pytest.MonkeyPatch, serve: Any) -> tuple[Linked, Any]:
    """Return the node as it is linked, and a call of a route that serves this."""

    async def served(_: Call) -> Any:
        return serve()

    route: Route = replace(ROUTE, serve=served)
    monkeypatch.setattr(peer_calls, "ROUTES", (route,))
    linked = Linked(PeerCalls(node.server.node))
    call = Call(node.server.node, {"name": "t"}, {}, None, Looks(1).of(""))
    return linked, forward(linked, 2, route, call)
