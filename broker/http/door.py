"""How many HTTP connections there are at once: one more is told so and closed."""

import asyncio
import json
from typing import cast

from aiohttp import web

from pqbroker.broker.context import Node
from pqbroker.broker.http.problems import Problem

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
            return self._server()
        self._node.metrics.count_http("", "", 503)
        return _Refusal(
            Problem(
                503, "TOO_MANY_CONNECTIONS", f"{connections_max} HTTP connections are open",
                "Close some, or raise pqbroker.http.connections.max.",
            )
        )  # fmt: skip


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
