"""Calls that another node of the broker serves: their form on the way, and the side of the node that HTTP came to.

The call goes with its sender, whose rights were checked here and are checked there again. A document comes back whole,
a stream piece by piece: the next one is asked for when the client has read the one before, so no node holds more.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.other_nodes import AskedNodes, NodeSilent
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Accepted, Call, Route, Stream, StreamCut
from pqbroker.broker.web.routing.stream_forms import EVENTS, LINES, PROBLEM

IN_LOOP_BYTES: Final = 8 << 10
"""Bodies up to this size are written and read in the loop's thread."""
_HEADERS: Final = ("Accept", "Last-Event-ID")
"""Headers that routes look at."""
_FORMS: Final = {form.content_type: form for form in (LINES, EVENTS)}


class ForwardedCall(NamedTuple):
    """A call on its way, before its body. `path`, `query` and `headers` are those of `Call`; `is_raw`: the body is no
    JSON."""

    method: str
    route: str
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    principal: Principal
    host: str
    holder: str
    is_raw: bool

    def encode(self) -> Any:
        """Return the call as JSON has it."""
        return {"call": [*self]}

    @classmethod
    def decode(cls, told: Any) -> "ForwardedCall":
        """Read what `encode` returned. ValueError for what is no call."""
        try:
            method, route, path, query, headers, (kind, name), host, holder, is_raw = told["call"]
        except (LookupError, TypeError, ValueError) as bad:
            raise ValueError(f"a call was expected: {bad!r}") from None
        if not all(isinstance(text, str) for text in (method, route, kind, name, host, holder)):
            raise ValueError("a call has something else in place of a text")
        if not all(isinstance(named, dict) for named in (path, query, headers)):
            raise ValueError("a call has no path, query or headers")
        return cls(method, route, path, query, headers, Principal(kind, name), host, holder, bool(is_raw))


async def serve(route: Route, call: Call) -> Any:
    """Return what a route serves for a call, from the node that the route names for it. Problem, and what the route
    raises."""
    others = None if route.place is None else call.node.others()
    if others is not None:
        assert route.place is not None
        node = route.place(call)
        if node is not None:
            return await forward(others, node, route, call)
    return await route.serve(call)


async def forward(others: AskedNodes, node: int, route: Route, call: Call) -> Any:
    """Have another node serve a call; return a document, Accepted or a Stream. Problem."""
    is_raw = isinstance(call.body, bytes)
    body = call.body if is_raw else await asyncio.to_thread(lambda: json.dumps(call.body).encode())
    headers = {name: call.headers[name] for name in _HEADERS if name in call.headers}
    sent = ForwardedCall(
        route.method, route.path, call.path, call.query, headers, call.principal, call.host, call.holder,
        is_raw,
    )  # fmt: skip
    head, answered = await ask_node(others, node, sent.encode(), body)
    try:
        if "stream" in head:
            content_type = str(head["type"])
            pieces = _pieces(others, node, int(head["stream"]), content_type)
            await anext(pieces)  # now that it has begun, its close ends the other node's stream
            return Stream(content_type, pieces, has_end=bool(head["has_end"]))
        is_short = len(answered) <= IN_LOOP_BYTES
        document = json.loads(answered) if is_short else await asyncio.to_thread(json.loads, answered)
    except (LookupError, TypeError, ValueError, RecursionError):
        raise unknown_answer(node) from None
    return Accepted(document) if head.get("accepted") else document


async def _pieces(others: AskedNodes, node: int, stream: int, content_type: str) -> AsyncGenerator[bytes, None]:
    """Yield an empty piece, and the pieces of another node's stream. Problem before its first piece; later a piece of
    the stream's form names the error, where there is one."""
    has_begun = is_over = False
    try:
        yield b""
        while True:
            head, piece = await ask_node(others, node, {"piece": stream})
            if head.get("waits"):
                continue
            is_over = not head.get("more")
            if head.get("is_cut"):
                raise StreamCut
            if is_over:
                return
            has_begun = True
            yield piece
    except Problem as problem:
        if not has_begun:
            raise
        form = _FORMS.get(content_type)
        if form is None:
            raise StreamCut from None
        yield form.write([problem.document()], PROBLEM, "")
    finally:
        if not is_over:
            others.tell_web(node, {"leave": stream})


async def ask_node(others: AskedNodes, node: int, asked: Any, body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """Return head and body of another node's answer. Problem NODE_SILENT, and what the other node answers with."""
    try:
        head, answered = await others.ask_web(node, asked, body)
    except NodeSilent as silent:
        cure = "Ask again; `pqbroker cell list` shows the cells of each node, the log says why it does not answer."
        text = f"{silent}; it may have begun what was asked of it"
        raise Problem(503, "NODE_SILENT", text, cure) from None
    if not isinstance(head, dict):
        raise unknown_answer(node)
    if "problem" in head:
        raise _problem(node, head["problem"])
    return head, answered


def _problem(node: int, told: Any) -> Problem:
    """Return the problem that another node answers with."""
    try:
        status, code, message, cure, number = told
        return Problem(int(status), str(code), str(message), str(cure), None if number is None else int(number))
    except (TypeError, ValueError):
        return unknown_answer(node)


def unknown_answer(node: int) -> Problem:
    """Refuse what another node answered: no version of this one knows it."""
    text = f"node {node} sent no answer that this version knows"
    return Problem(503, "NODE_SILENT", text, "Restart the nodes: `pqbroker cluster restart` does so one by one.")
