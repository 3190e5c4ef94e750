"""What stands before the routes: how many HTTP connections there are at once, and requests that cannot be read.

Both are refused in the form in which the routes refuse."""

import asyncio
import json
from typing import cast

from aiohttp import web

from pqbroker.broker.context import Node
from pqbroker.broker.http.problems import Problem, of_kafka, unreadable
from pqbroker.protocol.errors import ErrorCode

_TIMEOUT_S = 1.0
"""For so long one that is refused may take to ask for anything, and to take its answer."""


class Door:
    """Gives each connection its protocol: aiohttp's, or a refusal."""

    def __init__(self, server: web.Server, node: Node) -> None:
        self._server = server
        self._node = node

    def __call__(self) -> asyncio.BaseProtocol:
        connections_max = self._node.settings.http_connections_max
        if len(self._server.connections) < connections_max:
            return _Protocol(self._server, loop=self._node.loop, access_log=None)  # type: ignore[arg-type]
        self._node.metrics.count_http("", "", 503)
        return _Refusal(
            Problem(
                503, "TOO_MANY_CONNECTIONS", f"{connections_max} HTTP connections are open",
                "Close some, or raise pqbroker.http.connections.max.",
            )
        )  # fmt: skip


class _Protocol(web.RequestHandler):
    """aiohttp's, but for the form of what it refuses by itself: what it cannot read, and our defects."""

    __slots__ = ()

    def refuse(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs it; ConnectionError when an answer has begun
        if status < 500:
            problem = unreadable(status, message or "")
        else:
            problem = of_kafka(ErrorCode.UNKNOWN_SERVER_ERROR, "the request failed; this is a defect of the broker")
        answer = web.json_response(problem.document(), status=problem.status)
        answer.force_close()
        return answer

    handle_error = refuse  # as aiohttp calls it


class _Refusal(asyncio.Protocol):
    """Answers whatever is asked first: what is unread at a close would take the answer with it."""

    def __init__(self, problem: Problem) -> None:
        body = json.dumps(problem.document()).encode()
        head = (
            f"HTTP/1.1 {problem.status} Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._answer = head.encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timeout = asyncio.get_running_loop().call_later(_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timeout.cancel()
