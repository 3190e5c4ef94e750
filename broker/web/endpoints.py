"""The node's HTTP side: the routes under /v1, /health and /metrics, put onto aiohttp. No state of its own.

What a browser can send across sites without being asked to is refused: a body must say that it is JSON.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from aiohttp import web

from pqbroker.broker.ground.access import AclOperation, DirectCaller, check_access
from pqbroker.broker.ground.listeners import Address, Connect, bind
from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.metrics import Sample, samples
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.web.door import HTTP_BACKLOG, Door, answer_plain, slot_of
from pqbroker.broker.web.hosts import Hosts
from pqbroker.broker.web.http_logins import HttpLogins, challenge_of
from pqbroker.broker.web.login_routes import add_console_logins
from pqbroker.broker.web.pages import add_console
from pqbroker.broker.web.replies import as_line, has_long_list, pack, reply, reply_written
from pqbroker.broker.web.routing.forwarded_calls import serve
from pqbroker.broker.web.routing.health import health_answers
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import (
    Problem,
    bad_request,
    not_json,
    of_error,
    of_status,
    too_large,
    too_many_objects,
    too_much_at_once,
)
from pqbroker.broker.web.routing.routes import NUMBERS_IN_PATHS, Accepted, Call, Route, Stream, Written
from pqbroker.broker.web.routing.schemas import (
    COUNT,
    SchemaError,
    TooManyObjects,
    check,
    parse_json,
    parse_json_lines,
    parse_text,
)
from pqbroker.broker.web.routing.stream_forms import LINES
from pqbroker.broker.web.served import ROUTES
from pqbroker.broker.web.slots import Slot
from pqbroker.broker.web.streams import Followers
from pqbroker.broker.web.tables.routes import INSERT, LOOKUP

HTTP_ACCEPTED = 202
JSON_TYPE = "application/json"
SHUTDOWN_TIMEOUT_S = 1.0
THREAD_FROM_BYTES = 8 * 1024
"""Bodies from this size on are parsed in a thread, and few at once: parsed they take up to thirty times the room."""
OVERDUE_LOOK_S = 0.5
"""Time between two looks for connections whose clients take longer than they may."""

_TRIED_FIRST = frozenset((INSERT.path, LOOKUP.path))
"""Paths that are asked for at high rates. Of those that begin alike, aiohttp tries one behind the other."""
_ANSWERED: tuple[type[Exception], ...] = (web.HTTPException, Problem, *REFUSED)
"""Errors that have an answer; any other is a defect."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _plainly(connect: Connect, _: Callable[[bytes], bytes]) -> Connect:
    """Put nothing under a door."""
    return connect


async def start_http(
    node: WebNode, address: Address, under: Callable[[Connect, Callable[[bytes], bytes]], Connect] = _plainly
) -> tuple[Callable[[], Awaitable[None]], Address]:
    """Serve on an address; returns what ends it, and the address with its port. CannotListen.

    `under` puts TLS under a door where HTTP is encrypted; a client that speaks plainly gets the second argument's
    answer.
    """

    def followers_max() -> int:
        settings = node.settings
        return min(settings.http_followers_max, settings.http_connections_max // 2)

    sockets, bound = bind(address)
    followers = Followers(followers_max)
    application = _application(node, Hosts(address.host, node), followers)
    runner = web.AppRunner(application, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    assert runner.server is not None
    door = Door(runner.server, node, health_answers(node))
    connect = under(door, partial(answer_plain, str(bound)))
    listeners = [await node.loop.create_server(connect, sock=listening, backlog=HTTP_BACKLOG) for listening in sockets]
    overdue = node.loop.create_task(_close_overdue(door))

    async def close() -> None:
        overdue.cancel()
        for listener in listeners:
            listener.close()
        door.close()
        followers.close()
        await runner.cleanup()

    return close, bound


async def _close_overdue(door: Door) -> None:
    while True:
        await asyncio.sleep(OVERDUE_LOOK_S)
        door.close_overdue()


def _application(node: WebNode, hosts: Hosts, followers: Followers) -> web.Application:
    scrapes = _Scrapes(node)

    answers = health_answers(node)

    async def health(request: web.Request) -> web.Response:
        status, document = answers[request.path]()
        return web.json_response(document, status=status, dumps=as_line)

    async def metrics(request: web.Request) -> web.Response:
        check_access(
            DirectCaller(node, slot_of(request).principal, host=request.remote or ""), AclOperation.DESCRIBE
        )
        text, content_type = await scrapes.text()
        return web.Response(body=text, headers={"Content-Type": content_type})

    logins = HttpLogins(node)
    application = web.Application(middlewares=[_every_request(node, hosts, logins)])
    for path in answers:
        application.router.add_get(path, health)
    application.router.add_get("/metrics", metrics)
    add_console(application)
    add_console_logins(application, node, logins)
    looks_max = node.settings.http_looks_max
    shared = _Shared(Looks(looks_max), Looks(looks_max), followers)
    for route in sorted(ROUTES, key=lambda each: each.path not in _TRIED_FIRST):
        path = route.path.replace("{path}", "{path:.*}")  # the one name that may have slashes
        application.router.add_route(route.method, path, _endpoint(route, node, shared))
    return application


class _Scrapes:
    """The text of /metrics. One at a time is made: requests that come meanwhile take the same one."""

    def __init__(self, node: WebNode) -> None:
        self._node = node
        self._making: asyncio.Task[tuple[bytes, str]] | None = None

    async def text(self) -> tuple[bytes, str]:
        """The text and its content type."""
        if self._making is None or self._making.done():
            self._making = self._node.loop.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> tuple[bytes, str]:
        taken = await self._node.turns.finish(samples(self._node.metrics))
        others = self._node.others()
        try:
            of_others = None if others is None else await others.samples()
        except NodeSilent as silent:
            cure = "Ask again; `pqbroker cell list` shows the cells of each node, the log says why it does not answer."
            raise Problem(503, "NODE_SILENT", f"metrics are of all nodes or of none: {silent}", cure) from None
        return await asyncio.to_thread(_exposition, taken, of_others)


def _exposition(taken: Sequence[Sample], others: Mapping[int, Sequence[Sample]] | None) -> tuple[bytes, str]:
    """Runs in a thread, imports included: both take longer than the loop's other work should wait."""
    from pqbroker.broker.web.exposition import CONTENT_TYPE, exposition

    return exposition(taken, others), CONTENT_TYPE


class _Shared(NamedTuple):
    """The resources that all requests share out."""

    looks: Looks
    bodies: Looks
    followers: Followers


def _endpoint(route: Route, node: WebNode, shared: _Shared) -> _Handler:
    body_types = (JSON_TYPE, *((LINES.content_type,) if route.lines else ()), *route.raw_types)

    async def answer(request: web.Request) -> web.StreamResponse:
        await node.turns.alone()
        _check_text(request)
        path, query, settings = _path(request), _query(route, request), node.settings
        slot = slot_of(request)
        holder = slot.holder
        call_of = partial(
            Call, node, path, query, looks=shared.looks.of(holder), headers=request.headers, holder=holder,
            principal=slot.principal, host=request.remote or "",
        )  # fmt: skip
        if route.body is None:
            call = call_of(body=None)
            return await _served(route, request, call, shared)
        given = request.content_type
        if given not in body_types:
            raise not_json(request.headers.get("Content-Type", ""))
        data = await _read(request, slot, settings.http_body_bytes_max)
        objects_max = settings.http_body_objects_max
        if len(data) < THREAD_FROM_BYTES or given in route.raw_types:
            body = _checked(route, data, given, objects_max)
            call = call_of(body=body)
            return await _served(route, request, call, shared)
        async with shared.bodies.of(holder):
            body = await asyncio.to_thread(_checked, route, data, given, objects_max)
            call = call_of(body=body)
            return await _served(route, request, call, shared, is_long=True)

    return answer


async def _served(
    route: Route, request: web.Request, call: Call, shared: _Shared, *, is_long: bool = False
) -> web.StreamResponse:
    """The answer. `is_long`: it may be, as the body was, so that a thread writes it, as others that are long."""
    if route.cluster is not None:
        check_access(call, route.cluster)
    served = await serve(route, call)
    if isinstance(served, Stream):
        return await shared.followers.send(request, served)
    if route.answer is None:
        return web.Response(status=route.status)
    if isinstance(served, Accepted):
        return reply(served.document, HTTP_ACCEPTED)
    if isinstance(served, Written):
        answer = reply_written(served.body, route.status)
    else:
        write = partial(reply, served, route.status)
        answer = await asyncio.to_thread(write) if is_long or has_long_list(served) else write()
    assert isinstance(answer.body, bytes)
    if not slot_of(request).hold(len(answer.body)):
        raise too_much_at_once("answer")
    return answer


def _check_text(request: web.Request) -> None:
    """Problem for escapes that are no UTF-8: read as other text, they would name another key, group or topic."""
    try:
        unquote_to_bytes(request.raw_path).decode()
    except UnicodeError:
        raise bad_request("path and parameters are no UTF-8; bytes that are no text cannot be named there") from None


def _path(request: web.Request) -> dict[str, Any]:
    """Return what the path names, each of its type. Raise Problem."""
    try:
        return {
            name: parse_text(text, COUNT, name) if name in NUMBERS_IN_PATHS else text
            for name, text in request.match_info.items()
        }
    except SchemaError as error:
        raise bad_request(str(error)) from None


def _query(route: Route, request: web.Request) -> dict[str, Any]:
    """The query's values by name, each known, given once and of its type; Problem."""
    values: dict[str, Any] = {}
    if not request.query and not route.parameters:
        return values
    known = {parameter.name: parameter for parameter in route.parameters}
    for name, text in request.query.items():
        if name not in known:
            raise bad_request(f"unknown parameter {name!r}; there is {', '.join(known) or 'none'}")
        if name in values:
            raise bad_request(f"the parameter {name!r} is given twice")
        try:
            values[name] = parse_text(text, known[name].schema, name)
        except SchemaError as error:
            raise bad_request(str(error)) from None
    missing = [name for name, parameter in known.items() if parameter.required and name not in values]
    if missing:
        raise bad_request(f"the parameter {missing[0]!r} is missing")
    return values


async def _read(request: web.Request, slot: Slot, bytes_max: int) -> bytes:
    """The body as it is; Problem. While it comes, the connection waits for its client."""
    content = request.content
    try:
        if content.is_eof():  # all of it came with the head
            data = content.read_nowait()
            _hold(slot, len(data), len(data), bytes_max)
            return data
        slot.wait()
        parts: list[bytes] = []
        size = 0
        while part := await content.readany():
            size += len(part)
            _hold(slot, len(part), size, bytes_max)
            parts.append(part)
    except RuntimeError:  # aiohttp's word for a connection that was closed before its body was waited for
        if request.transport is not None:
            raise
        raise ConnectionError("the connection was closed") from None
    except web.RequestPayloadError:
        raise bad_request("the body is not encoded as Content-Encoding and Transfer-Encoding say") from None
    slot.work()
    return b"".join(parts)


def _hold(slot: Slot, part_bytes: int, body_bytes: int, bytes_max: int) -> None:
    """Count a part of a body that has this many bytes with it; Problem."""
    if body_bytes > bytes_max:
        raise too_large(bytes_max)
    if not slot.hold(part_bytes):
        raise too_much_at_once("body")


def _checked(route: Route, data: bytes, content_type: str, objects_max: int) -> Any:
    """The body's value; Problem. Long ones in a thread, but what stays bytes."""
    assert route.body is not None
    if content_type in route.raw_types:
        return data
    try:
        if content_type == JSON_TYPE:
            value = parse_json(data, objects_max)
            check(value, route.body, "body")
        else:
            value = {route.lines: list(_lines(route, data, objects_max))}
    except TooManyObjects as error:
        raise too_many_objects(str(error)) from None
    except SchemaError as error:
        raise Problem(400, "INVALID_BODY", str(error), "See /v1/openapi.json for what this path takes.") from None
    return value


def _lines(route: Route, data: bytes, objects_max: int) -> Iterator[Any]:
    """Items of the body, one a line; what follows one that is none is not parsed."""
    assert route.body is not None
    schema = route.body["properties"][route.lines]["items"]
    for number, item in enumerate(parse_json_lines(data, objects_max)):
        check(item, schema, f"body.{route.lines}[{number}]")
        yield item


def _every_request(node: WebNode, hosts: Hosts, logins: HttpLogins) -> Any:
    """Return all that surrounds the routes, as one step: each costs a call whenever a request resumes."""

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        slot_of(request).work()
        try:
            hosts.check(request.method, request.path, request.headers)
            await logins.enter(request)
            response = await handler(request)
        except _ANSWERED as error:
            response = _refusal(node, request, error)
        await pack(response, request.headers.get("Accept-Encoding", ""))
        resource = request.match_info.route.resource  # requests by route, not by path: what people ask for has no end
        node.metrics.count_http(request.method, resource.canonical if resource else "", response.status)
        return response

    return answer


def _refusal(node: WebNode, request: web.Request, error: Exception) -> web.Response:
    """The one place where an error becomes an answer."""
    if isinstance(error, web.HTTPException):
        allowed = error.headers.get("Allow", "")
        problem = of_status(error.status, request.method, request.path, allowed)
        return reply(problem.document(), problem.status, {"Allow": allowed} if allowed else None)
    if not isinstance(error, Problem):
        node.metrics.count_error(translate(error)[0])
        error = of_error(error)
    return reply(error.document(), error.status, challenge_of(request, error))
