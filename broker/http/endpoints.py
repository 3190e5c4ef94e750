"""The node's HTTP side: the routes under /v1, /health and /metrics, put onto aiohttp. No state of its own.

What a browser can send across sites without being asked to is refused: a body must say that it is JSON.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web

from pqbroker.broker.cell_owner import CellOwner
from pqbroker.broker.context import Node
from pqbroker.broker.http.door import Door
from pqbroker.broker.http.problems import Problem, bad_request, not_json, of_kafka, of_status
from pqbroker.broker.http.routes import Call, Route, path_schema
from pqbroker.broker.http.schemas import SchemaError, check, parse_json, parse_text
from pqbroker.broker.http.served import ROUTES
from pqbroker.broker.listeners import Address, bind
from pqbroker.broker.metrics import Sample, samples
from pqbroker.broker.refusals import REFUSED, translate

SHUTDOWN_TIMEOUT_S = 1.0
THREAD_FROM_BYTES = 64 * 1024
"""Bodies from this size on are parsed in a thread."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def start_http(node: Node, owner: CellOwner, address: Address) -> tuple[Callable[[], Awaitable[None]], Address]:
    """Serve on an address; returns what ends it, and the address with its port. CannotListen."""
    sockets, bound = bind(address)
    runner = web.AppRunner(_application(node, owner), shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    assert runner.server is not None
    connect = Door(runner.server, node)
    listeners = [await node.loop.create_server(connect, sock=listening) for listening in sockets]

    async def close() -> None:
        for listener in listeners:
            listener.close()
        await runner.cleanup()

    return close, bound


def _application(node: Node, owner: CellOwner) -> web.Application:
    async def health(_: web.Request) -> web.Response:
        """200 while the cell is open, 503 while it is not: what a load balancer or a supervisor asks."""
        is_open = owner.is_open
        state = {"status": "ok" if is_open else "cell lost", "node": node.settings.node_id, "cluster": node.cluster_id}
        return web.json_response(state, status=200 if is_open else 503)

    async def metrics(_: web.Request) -> web.Response:
        text, content_type = await asyncio.to_thread(_exposition, samples(node.metrics))
        return web.Response(body=text, headers={"Content-Type": content_type})

    application = web.Application(
        client_max_size=node.settings.http_body_bytes_max, middlewares=[_counter(node), _refuser(node)]
    )
    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)
    looks = asyncio.Semaphore(node.settings.http_looks_max)
    for route in ROUTES:
        application.router.add_route(route.method, route.path, _endpoint(route, node, owner, looks))
    return application


def _exposition(taken: Sequence[Sample]) -> tuple[bytes, str]:
    """Runs in a thread, imports included: both take longer than the loop's other work should wait."""
    from pqbroker.broker.http.exposition import CONTENT_TYPE, exposition

    return exposition(taken), CONTENT_TYPE


def _endpoint(route: Route, node: Node, owner: CellOwner, looks: asyncio.Semaphore) -> _Handler:
    async def answer(request: web.Request) -> web.Response:
        _check_text(request)
        path = _path(request)
        query = _query(route, request)
        body = None if route.body is None else await _body(route, request)
        served = await route.serve(Call(node, owner, path, query, body, looks))
        return web.Response(status=route.status) if route.answer is None else _reply(served, route.status)

    return answer


def _check_text(request: web.Request) -> None:
    """Problem for escapes that are no UTF-8: read as other text, they would name another key, group or topic."""
    try:
        unquote_to_bytes(request.raw_path).decode()
    except UnicodeError:
        raise bad_request("path and parameters are no UTF-8; bytes that are no text cannot be named there") from None


def _path(request: web.Request) -> dict[str, Any]:
    """What the path names, each of its type; Problem."""
    try:
        return {name: parse_text(text, path_schema(name), name) for name, text in request.match_info.items()}
    except SchemaError as error:
        raise bad_request(str(error)) from None


def _query(route: Route, request: web.Request) -> dict[str, Any]:
    """The query's values by name, each known, given once and of its type; Problem."""
    known = {parameter.name: parameter for parameter in route.parameters}
    values: dict[str, Any] = {}
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


async def _body(route: Route, request: web.Request) -> Any:
    """The checked body; Problem."""
    assert route.body is not None
    if request.content_type != "application/json":
        raise not_json(request.headers.get("Content-Type", ""))
    try:
        data = await request.read()
    except web.RequestPayloadError:
        raise bad_request("the body is not encoded as Content-Encoding and Transfer-Encoding say") from None
    try:
        if len(data) < THREAD_FROM_BYTES:
            return _checked(route, data)
        return await asyncio.to_thread(_checked, route, data)
    except SchemaError as error:
        raise Problem(400, "INVALID_BODY", str(error), "See /v1/openapi.json for what this path takes.") from None


def _checked(route: Route, data: bytes) -> Any:
    assert route.body is not None
    value = parse_json(data)
    check(value, route.body, "body")
    return value


def _counter(node: Node) -> Any:
    @web.middleware
    async def count(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Requests by route, not by path: what people ask for has no end."""
        response = await handler(request)
        resource = request.match_info.route.resource
        node.metrics.count_http(request.method, resource.canonical if resource else "", response.status)
        return response

    return count


def _refuser(node: Node) -> Any:
    @web.middleware
    async def refuse(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """The one place where an error becomes an answer."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            allowed = error.headers.get("Allow", "")
            problem = of_status(error.status, request.method, request.path, allowed)
            return _reply(problem.document(), problem.status, {"Allow": allowed} if allowed else None)
        except Problem as error:
            problem = error
        except REFUSED as error:
            code, message = translate(error)
            node.metrics.count_error(code)
            problem = of_kafka(code, message)
        return _reply(problem.document(), problem.status)

    return refuse


def _reply(document: Any, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Half of a surrogate pair, which a request can name and UTF-8 cannot, goes back as JSON's escape for it."""
    body = json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace")
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")
