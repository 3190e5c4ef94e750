"""Login of the console's pages at /v1/login: GET says who is logged in, POST logs in, DELETE logs out."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pqbroker.broker.web.console_logins import ConsoleLogin
from pqbroker.broker.web.door import slot_of
from pqbroker.broker.web.http_logins import COOKIE, LOGIN_PATH, HttpLogins
from pqbroker.broker.web.replies import reply
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem, not_json
from pqbroker.broker.web.routing.schemas import TEXT, SchemaError, check, object_of, parse_json

_BODY = object_of({"user": TEXT, "password": TEXT})
_BODY_BYTES_MAX = 4096
_OBJECTS_MAX = 4
_Handler = Callable[[web.Request], Awaitable[web.Response]]


def add_console_logins(application: web.Application, node: WebNode, logins: HttpLogins) -> None:
    """Add the routes."""
    application.router.add_get(LOGIN_PATH, _show(logins))
    application.router.add_post(LOGIN_PATH, _log_in(node, logins))
    application.router.add_delete(LOGIN_PATH, _log_out(logins))


def _show(logins: HttpLogins) -> _Handler:
    async def show(request: web.Request) -> web.Response:
        cookie = request.cookies.get(COOKIE)
        login = None if cookie is None else logins.find(cookie)
        return reply(_document(logins, login), 200)

    return show


def _log_in(node: WebNode, logins: HttpLogins) -> _Handler:
    async def log_in(request: web.Request) -> web.Response:
        body = await _read(request)
        name = body["user"]
        await logins.check_password(request, name, body["password"])
        lifetime_s = node.settings.console_login_ms / 1000
        cookie, login = logins.console.begin(name, node.logins.fingerprint(name), lifetime_s)
        node.metrics.count_login("console")
        answer = reply(_document(logins, login), 200)
        answer.set_cookie(
            COOKIE, cookie, max_age=int(lifetime_s), httponly=True, samesite="Strict", secure=request.secure
        )
        return answer

    return log_in


def _log_out(logins: HttpLogins) -> _Handler:
    async def log_out(request: web.Request) -> web.Response:
        cookie = request.cookies.get(COOKIE)
        if cookie is not None:
            logins.console.end(cookie)
        answer = reply(_document(logins, None), 200)
        answer.del_cookie(COOKIE)
        return answer

    return log_out


def _document(logins: HttpLogins, login: ConsoleLogin | None) -> dict[str, Any]:
    return {
        "required": logins.is_required,
        "user": None if login is None else login.user,
        "page_token": None if login is None else login.page_token,
    }


async def _read(request: web.Request) -> Any:
    """The body; Problem. Only JSON is taken, which pages of other sites may not send."""
    if request.content_type != "application/json":
        raise not_json(request.headers.get("Content-Type", ""))
    data = b""
    slot = slot_of(request)
    slot.wait()
    while len(data) <= _BODY_BYTES_MAX and (part := await request.content.readany()):
        data += part
    slot.work()
    try:
        if len(data) > _BODY_BYTES_MAX:
            raise SchemaError("body is longer than 4096 bytes")
        body = parse_json(data, _OBJECTS_MAX)
        check(body, _BODY, "body")
    except SchemaError as error:
        raise Problem(400, "INVALID_BODY", str(error), "Send user and password.") from None
    return body
