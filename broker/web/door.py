"""The door before the routes: connections, from the first byte to a slot, and requests that are unreadable.

A connection waits in the hall until the head of its first request is complete. Then it gets a slot, and aiohttp's
protocol; or a refusal. `/metrics` has slots of its own, and `/health` and `/ready` need none and wait for no turn:
they answer whatever other connections do.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web

from pqbroker.broker.ground.open_files import http_arrivals_max
from pqbroker.broker.web.replies import as_line
from pqbroker.broker.web.routing.health import HealthAnswer
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem, of_kafka, unreadable
from pqbroker.broker.web.slots import HeldBytes, Slot, Slots, State
from pqbroker.conf.shares import holder_of
from pqbroker.protocol.errors import ErrorCode

HTTP_BACKLOG = 256
"""Connections that the system accepts ahead of us; fewer than the hall takes, for they come in at one go."""
METRICS_SLOTS = 16
"""Slots of /metrics, beyond pqbroker.http.connections.max."""
_HEAD_BYTES = 16 << 10
"""A longer head is aiohttp's to refuse."""
_HOST = re.compile(rb"\r\nhost:[ \t]*([A-Za-z0-9.:\[\]_-]{1,255})[ \t]*\r\n", re.IGNORECASE)
_LINGER_S = 1.0
"""Seconds in which the rest of an unwanted body is read and dropped, so that the answer arrives."""


class Door:
    """Gives each connection its protocol."""

    def __init__(self, server: web.Server, node: WebNode, health: Mapping[str, HealthAnswer]) -> None:
        self._server = server
        self._node = node
        self._health = health
        clock = node.loop.time
        held = HeldBytes(lambda: node.settings.http_bytes_max)
        self._general = Slots(clock, held, lambda: node.settings.http_connections_max)
        self._metrics = Slots(clock, held, lambda: METRICS_SLOTS, is_reserved=True)
        held.counted = self._slots = (self._general, self._metrics)
        self._hall: OrderedDict[_Arrival, float] = OrderedDict()
        """Connections without a request, with the time of their coming, the earliest first."""

    def __call__(self) -> asyncio.BaseProtocol:
        return _Arrival(self)

    def come(self, arrival: "_Arrival") -> None:
        """Take a connection that was made."""
        if len(self._hall) >= http_arrivals_max(self._node.settings):
            self._hall.popitem(last=False)[0].abort()
        self._hall[arrival] = self._node.loop.time()

    def leave(self, arrival: "_Arrival") -> None:
        """Forget a connection that is lost."""
        self._hall.pop(arrival, None)

    def ask(self, arrival: "_Arrival") -> None:
        """Answer the first request of a connection, or let the connection in when it is its turn."""
        path = arrival.path.decode(errors="replace")
        if path in self._health:
            self._hall.pop(arrival, None)
            self._tell_health(arrival.transport, path)
        else:
            self._node.turns.begin(partial(self._let_in, arrival))

    def _let_in(self, arrival: "_Arrival") -> None:
        if self._hall.pop(arrival, None) is not None:
            arrival.go_in()

    def protocol(self, transport: asyncio.Transport, path: bytes, *, is_whole: bool) -> asyncio.Protocol | None:
        """Return what serves a connection whose first request is for a path; None: it was refused."""
        slots = self._metrics if path == b"/metrics" else self._general
        slot = slots.enter(transport.abort, State.ARRIVED if is_whole else State.SLOW, _holder(transport))
        if slot is None:
            self._refuse(transport)
            return None
        idle_s = self._node.settings.http_idle_timeout_ms / 1000
        options = {"loop": self._node.loop, "access_log": None, "lingering_time": _LINGER_S}
        return _Protocol(self._server, slot, keepalive_timeout=idle_s + _LINGER_S, **options)

    def close_overdue(self) -> None:
        """Close connections whose clients take longer than they may."""
        settings = self._node.settings
        request_s = settings.http_request_timeout_ms / 1000
        for slots in self._slots:
            slots.close_overdue(request_s, settings.http_idle_timeout_ms / 1000)
        due_s = self._node.loop.time() - request_s
        while self._hall and next(iter(self._hall.values())) <= due_s:
            self._hall.popitem(last=False)[0].abort()

    def close(self) -> None:
        """Close what has no request."""
        while self._hall:
            self._hall.popitem()[0].abort()

    def _refuse(self, transport: asyncio.Transport) -> None:
        self._node.metrics.count_http("", "", 503)
        problem = Problem(
            503, "TOO_MANY_CONNECTIONS",
            f"the broker works on the requests of {len(self._general)} HTTP connections; the last are for others",
            "Try again, send fewer requests at once, or raise pqbroker.http.connections.max.",
        )  # fmt: skip
        _answer(transport, problem.status, problem.document())

    def _tell_health(self, transport: asyncio.Transport, path: str) -> None:
        status, document = self._health[path]()
        self._node.metrics.count_http("GET", path, status)
        _answer(transport, status, document)


def _answer(transport: asyncio.Transport, status: int, document: Any) -> None:
    """Answer the one request of a connection that has no slot."""
    body = as_line(document).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    transport.write(head.encode() + body)
    transport.close()


def answer_plain(own: str, data: bytes) -> bytes:
    """Answer a client that speaks plain HTTP where https is served: where to go, or that a request has to be sent
    again, since it may have sent a secret. `own`: HOST:PORT of the node."""
    method, _, rest = data.partition(b" ")
    if not method.isalpha() or not method.isupper():
        return b""
    found = _HOST.search(data)
    host = found[1].decode() if found else own
    path = rest.partition(b" ")[0]
    if method in (b"GET", b"HEAD") and path.startswith(b"/") and path.isascii():
        status, location = HTTPStatus.PERMANENT_REDIRECT, f"Location: https://{host}{path.decode()}\r\n"
    else:
        status, location = HTTPStatus.BAD_REQUEST, ""
    problem = Problem(status, "TLS_REQUIRED", "this port serves https", f"Use https://{host}.")
    body = b"" if method == b"HEAD" else as_line(problem.document()).encode()
    head = (
        f"HTTP/1.1 {status} {status.phrase}\r\n{location}Content-Type: application/json; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Arrival(asyncio.Protocol):
    """A connection without a request: collects the head of the first one."""

    __slots__ = ("_data", "_door", "_is_whole", "path", "transport")

    def __init__(self, door: Door) -> None:
        self._door = door
        self._data = b""
        self._is_whole = False
        self.path = b""
        """Path that the first request asks for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._door.come(self)

    def data_received(self, data: bytes) -> None:
        self._data = data = (self._data + data).lstrip(b"\r\n")
        self._is_whole = b"\r\n\r\n" in data
        if not self._is_whole and len(data) <= _HEAD_BYTES and (not data or data[:1].isalpha()):
            return
        self.transport.pause_reading()
        self.path = _path(data)
        self._door.ask(self)

    def go_in(self) -> None:
        """Take a slot, or be refused."""
        protocol = self._door.protocol(self.transport, self.path, is_whole=self._is_whole)
        if protocol is not None:
            self.transport.set_protocol(protocol)
            self.transport.resume_reading()
            protocol.connection_made(self.transport)
            protocol.data_received(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)

    def abort(self) -> None:
        self.transport.abort()


def _path(head: bytes) -> bytes:
    """Return what the first line of a request asks for, without its query."""
    words = head.partition(b"\r\n")[0].split(b" ")
    return words[1].partition(b"?")[0] if len(words) == 3 and words[0] == b"GET" else b""


class _Protocol(web.RequestHandler):
    """aiohttp's, with a slot that follows what its connection does, and refusals in the form of the routes."""

    __slots__ = ("slot",)

    def __init__(self, server: web.Server, slot: Slot, **options: Any) -> None:
        super().__init__(server, **options)
        self.slot = slot

    def data_received(self, data: bytes) -> None:
        self.slot.hear()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.slot.leave()
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if self.slot.is_reserved:
            resp.force_close()
        self.slot.wait()
        finished = await super().finish_response(request, resp, start_time)
        self.slot.rest()
        return finished

    def refuse(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # the client has gone: aiohttp ends the connection without a word
        if status < 500:
            if request.writer.output_size:
                raise ConnectionError("an answer has begun")
            problem = unreadable(status, message or "")
        else:
            super().handle_error(request, status, exc, message)  # logs it; ConnectionError when an answer has begun
            problem = of_kafka(ErrorCode.UNKNOWN_SERVER_ERROR, "the request failed; this is a defect of the broker")
        answer = web.json_response(problem.document(), status=problem.status, dumps=as_line)
        answer.force_close()
        return answer

    handle_error = refuse  # as aiohttp calls it


def _holder(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return holder_of(peer[0], peer[1]) if peer else ""


def slot_of(request: web.Request) -> Slot:
    """The slot of the request's connection."""
    return cast(_Protocol, request.protocol).slot
