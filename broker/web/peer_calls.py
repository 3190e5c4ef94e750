"""Calls that the first node forwards, served at this one by the routes that HTTP has; it has no HTTP of its own.

What comes is checked as a client's request is, but for its login: the first node has checked that, and says who it is.
"""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.services.commits.elsewhere_answers import answer_of_commits
from pqbroker.broker.web.peer_queries import PeerQueries
from pqbroker.broker.web.routing.forwarded_calls import IN_LOOP_BYTES, ForwardedCall
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem, of_error
from pqbroker.broker.web.routing.routes import Accepted, Call, Route, Stream, StreamCut
from pqbroker.broker.web.routing.schemas import check
from pqbroker.broker.web.served import ROUTES

T = TypeVar("T")


def _load_feeds() -> Any:
    from pqbroker.broker.services.materializing import fed_answers

    return fed_answers


_feeds: LoadedLater[Any] = LoadedLater(_load_feeds)
PIECE_WAIT_S: Final = 5.0
"""Seconds that the next piece of a stream is waited for, before the first node has to ask again."""


class PeerCalls:
    """Calls and streams in work. `node`: the one that serves them."""

    def __init__(self, node: WebNode) -> None:
        self._node = node
        self._routes = {(route.method, route.path): route for route in ROUTES if route.place is not None}
        self._looks = Looks(node.settings.http_looks_max)
        self._streams: dict[int, _OpenStream] = {}
        self._opened = 0
        self._queries = PeerQueries(node, self._looks)

    async def answer(self, asked: Any, body: bytes) -> tuple[Any, bytes]:
        """Answer the first node. ValueError for what is no call."""
        if isinstance(asked, dict) and "piece" in asked:
            return await self._piece(asked["piece"])
        if isinstance(asked, dict) and "query" in asked:
            return await self._read(asked)
        if isinstance(asked, dict) and "feed" in asked:
            return await self._feed(asked, body)
        if isinstance(asked, dict) and "commits" in asked:
            return {"told": await answer_of_commits(self._node.cell.current, asked["commits"], asked.get("asked"))}, b""
        sent = ForwardedCall.decode(asked)
        route = self._routes.get((sent.method, sent.route))
        if route is None:
            raise ValueError(f"{sent.method} {sent.route[:100]!r} is no route that nodes ask each other for")
        call = await self._call(route, sent, body)
        served = await self._outcome(route.serve(call))
        if isinstance(served, Problem):
            return _refused(served), b""
        if isinstance(served, Stream):
            return await self._opened_stream(served), b""
        head = {"accepted": isinstance(served, Accepted)}
        document = served.document if isinstance(served, Accepted) else served
        return head, await asyncio.to_thread(lambda: json.dumps(document).encode())

    def take(self, told: Any) -> None:
        """Take a note of the first node: it leaves a stream, or a query has ended. ValueError."""
        if isinstance(told, dict) and isinstance(told.get("ended"), int):
            self._queries.end(told["ended"])
            return
        if not isinstance(told, dict) or not isinstance(told.get("leave"), int):
            raise ValueError("a note about a stream was expected")
        stream = self._streams.pop(told["leave"], None)
        if stream is not None:
            stream.leave()

    def close(self) -> None:
        """End all streams: the first node is gone, or this one stops."""
        for stream in self._streams.values():
            stream.leave()
        self._streams.clear()
        self._queries.close()

    async def _read(self, asked: dict[str, Any]) -> tuple[Any, bytes]:
        """Answer what a query of the first node reads here. ValueError."""
        if "begin" in asked:
            begun = await self._outcome(self._queries.begin(asked))
            return _refused(begun) if isinstance(begun, Problem) else {"begun": begun}, b""
        if "hold" in asked:
            held = await self._outcome(self._queries.hold(asked))
            return _refused(held) if isinstance(held, Problem) else {}, b""
        if "locate" in asked:
            located = await self._outcome(self._queries.inputs(asked))
            if isinstance(located, Problem):
                return _refused(located), b""
            assert not isinstance(located, StreamCut), "no stream is read"
            return {"inputs": located.documents, "chunks": located.chunks}, b"".join(located.payload)
        shown = await self._outcome(self._queries.stretches(asked))
        if isinstance(shown, Problem):
            return _refused(shown), b""
        assert not isinstance(shown, StreamCut), "no stream is read"
        head, payload = shown
        return head, b"".join(payload)

    async def _feed(self, asked: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
        """Answer what a materialization of the first node asks. ValueError."""
        answers = await _feeds.get()
        answered: tuple[Any, bytes] = await answers.answer_fed(self._node, asked, body)
        return answered

    async def _call(self, route: Route, sent: ForwardedCall, body: bytes) -> Call:
        """ValueError for a body that the route does not take."""
        given: Any = body
        if not sent.is_raw:
            is_short = len(body) <= IN_LOOP_BYTES
            given = _read(route, body) if is_short else await asyncio.to_thread(_read, route, body)
        return Call(
            self._node, sent.path, sent.query, given, self._looks.of(sent.holder), sent.headers, sent.holder,
            sent.principal, sent.host,
        )  # fmt: skip

    async def _opened_stream(self, stream: Stream) -> dict[str, Any]:
        most = self._node.settings.http_followers_max
        if len(self._streams) >= most:
            await stream.pieces.aclose()
            text = f"a node has {most} streams under way, as many as it may have"
            return _refused(
                Problem(503, "TOO_MANY_FOLLOWERS", text, "Close one, or raise pqbroker.http.followers.max.")
            )
        self._opened += 1
        self._streams[self._opened] = _OpenStream(stream)
        return {"stream": self._opened, "type": stream.content_type, "has_end": stream.has_end}

    async def _piece(self, number: Any) -> tuple[Any, bytes]:
        stream = self._streams.get(number) if isinstance(number, int) else None
        if stream is None:
            return {"is_cut": True}, b""
        making = stream.next_piece()
        await asyncio.wait((making,), timeout=PIECE_WAIT_S)
        if not making.done():
            return {"waits": True}, b""
        stream.making = None
        found = await self._outcome(making)
        if isinstance(found, bytes):
            return {"more": True}, found
        self._streams.pop(number, None)
        stream.leave()
        if isinstance(found, Problem):
            return _refused(found), b""
        return {"is_cut": isinstance(found, StreamCut)}, b""

    async def _outcome(self, work: Awaitable[T]) -> T | Problem | StreamCut:
        """Return what the work returns, the problem that it ends with, or a cut. A defect is a problem too, which the
        log tells: it must not cost the link of the two nodes."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, Problem | StreamCut):
            return error
        if isinstance(error, REFUSED):
            self._node.metrics.count_error(translate(error)[0])
        return of_error(error)


class _OpenStream:
    """A stream that the first node reads, and the piece that is made now."""

    def __init__(self, stream: Stream) -> None:
        self._pieces = stream.pieces
        self.making: asyncio.Task[bytes | None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    def next_piece(self) -> "asyncio.Task[bytes | None]":
        """Return the making of the next piece, which may have begun before."""
        if self.making is None:
            self.making = asyncio.ensure_future(anext(self._pieces, None))
        return self.making

    def leave(self) -> None:
        """Read no further."""
        self._leaving = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        if self.making is not None:
            self.making.cancel()
            await asyncio.wait((self.making,))
        await self._pieces.aclose()


def _read(route: Route, body: bytes) -> Any:
    """Return the document of a body. ValueError for one that the route does not take."""
    try:
        given = json.loads(body)
        if route.body is not None:
            check(given, route.body, "body")
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    return given


def _refused(problem: Problem) -> dict[str, Any]:
    return {"problem": [problem.status, problem.code, problem.message, problem.cure, problem.number]}
