"""Senders of HTTP requests: a user with a password (Basic), a token, a cookie of the console's, a certificate.

Whatever is given must be right, also where nothing has to be given. `/health`, `/ready`, the console's files and
`/v1/login` are open to everybody.
"""

import asyncio
import base64
import binascii
import logging
import secrets
from typing import Final

from aiohttp import web

from pqbroker.broker.ground.access import ANONYMOUS, DirectCaller, Principal, audit_login
from pqbroker.broker.ground.listeners import HTTP_NAME, Listener
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.services.logins.bearer_rules import TokenRefused
from pqbroker.broker.services.logins.listener_logins import is_http_login_required
from pqbroker.broker.services.logins.password_checks import TooManyChecks
from pqbroker.broker.services.logins.sasl_login import LoginRefused
from pqbroker.broker.services.logins.tokens import TOKEN_PREFIX
from pqbroker.broker.web.console_logins import ConsoleLogin, ConsoleLogins
from pqbroker.broker.web.door import slot_of
from pqbroker.broker.web.routing.health import PATHS
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.conf.broker import BrokerSettings

COOKIE: Final = "pqbroker_login"
PAGE_TOKEN: Final = "X-Pqbroker-Page-Token"
LOGIN_PATH: Final = "/v1/login"
BASIC: Final = "Basic"
BEARER: Final = "Bearer"
CERTIFICATE: Final = "certificate"
CONSOLE: Final = "console"
ON_HTTP: Final = "listener HTTP"
"""Name of the HTTP listener in the audit log."""
_OPEN: Final = frozenset((*PATHS, "/", LOGIN_PATH))
_OPEN_FILES: Final = "/console/"
_CURE: Final = "Log in as a user of the broker (curl: -u NAME), or with a token (Authorization: Bearer TOKEN)."
_READS: Final = frozenset(("GET", "HEAD"))
_RANDOM_BYTES: Final = 32

seldom = SeldomLog(logging.getLogger(__name__))


class HttpLogins:
    """Logins of one node's HTTP side."""

    def __init__(self, node: WebNode) -> None:
        self._node = node
        self._known_required: tuple[BrokerSettings, tuple[Listener, ...], bool] | None = None
        """The settings and listeners by which it was last decided if a login is required, and what was."""
        self.console = ConsoleLogins(
            node.loop.time, lambda: secrets.token_urlsafe(_RANDOM_BYTES), lambda: node.settings.console_logins_max
        )

    @property
    def is_required(self) -> bool:
        """Return True if nobody is served without a login."""
        settings, listeners = self._node.settings, self._node.listeners
        known = self._known_required
        if known is None or known[0] is not settings or known[1] is not listeners:
            known = self._known_required = settings, listeners, is_http_login_required(settings, listeners)
        return known[2]

    async def enter(self, request: web.Request) -> None:
        """Have the request's connection know its sender; the audit log says one that is another than before. Problem.
        """
        principal, slot = await self.principal(request), slot_of(request)
        if principal != slot.principal and principal != ANONYMOUS:
            header = request.headers.get("Authorization", "")
            mechanism = header.partition(" ")[0].capitalize() or (CONSOLE if COOKIE in request.cookies else CERTIFICATE)
            audit_login(DirectCaller(self._node, principal, request.remote or ""), ON_HTTP, mechanism)
        slot.principal = principal

    async def principal(self, request: web.Request) -> Principal:
        """Return the sender of a request. Problem 401 where that is not proved, 503 where the broker is too busy."""
        header = request.headers.get("Authorization")
        if header is not None:
            return await self._by_header(request, header)
        if request.path == LOGIN_PATH and request.method == "POST":
            return ANONYMOUS
        cookie = request.cookies.get(COOKIE)
        if cookie is not None and (login := self.find(cookie)):
            if request.method not in _READS and not login.has_page_token(request.headers.get(PAGE_TOKEN, "")):
                cure = "Send it from the console's pages, or with a password or token in place of the cookie."
                raise Problem(403, "NO_PAGE_TOKEN", "the request has no page token", cure)
            return Principal("User", login.user)
        user = None if request.transport is None else request.transport.get_extra_info("certificate_user")
        if user:
            return Principal("User", user)
        if self.is_required and not _is_open(request.path):
            raise Problem(401, "LOGIN_REQUIRED", "this broker serves nobody without a login", _CURE)
        return ANONYMOUS

    def find(self, cookie: str) -> ConsoleLogin | None:
        """Return the console's login of a cookie, while its user has the same password."""
        login = self.console.find(cookie)
        if login is None or self._node.logins.fingerprint(login.user) != login.fingerprint:
            return None
        return login

    async def check_password(self, request: web.Request, name: str, password: str) -> None:
        """Raise Problem unless it is the password of a user. A wrong one is answered late."""
        slot = slot_of(request)
        slot.wait()  # while it waits, others may have the slot
        try:
            is_right = await self._node.logins.is_password(name, password, slot.holder)
        except TooManyChecks:
            raise self._busy(BASIC) from None
        if not is_right:
            refused = LoginRefused("credentials", "wrong password or unknown user", "", name)
            await self._refuse(request, BASIC, refused)
        slot.work()

    async def _by_header(self, request: web.Request, header: str) -> Principal:
        scheme, _, given = header.partition(" ")
        if scheme.lower() == BEARER.lower():
            return Principal("User", await self._user_of_token(request, given.strip()))
        found = _read_basic(given) if scheme.lower() == BASIC.lower() else None
        if found is None:
            reason = "the header Authorization is neither Basic nor Bearer"
            await self._refuse(request, BASIC, LoginRefused("message", reason, ""))
            raise AssertionError("refused")
        await self.check_password(request, *found)
        return Principal("User", found[0])

    async def _user_of_token(self, request: web.Request, token: str) -> str:
        """Return the user of a token of this broker's, or of an authorization server's. Problem."""
        logins = self._node.logins
        refusal = LoginRefused("credentials", "unknown, expired or revoked token", "")
        user = logins.user_of_token(token)
        bearer = logins.bearers.get(HTTP_NAME)
        if user is None and bearer is not None and not token.startswith(TOKEN_PREFIX):
            slot = slot_of(request)
            slot.wait()
            try:
                user = (await bearer.check(token, slot.holder)).name
            except TokenRefused as refused:
                refusal = LoginRefused(refused.kind, str(refused), "")
            except TooManyChecks:
                raise self._busy(BEARER) from None
            slot.work()
        if user is None:
            await self._refuse(request, BEARER, refusal)
            raise AssertionError("refused")
        return user

    def _busy(self, mechanism: str) -> Problem:
        self._node.metrics.count_login_refusal(mechanism, "busy")
        cure = "Try again in a moment, or raise pqbroker.login.checks.max."
        return Problem(503, "TOO_MANY_LOGINS", "too many passwords wait for their check", cure)

    async def _refuse(self, request: web.Request, mechanism: str, refused: LoginRefused) -> None:
        settings, slot = self._node.settings, slot_of(request)
        self._node.metrics.count_login_refusal(mechanism, refused.kind)
        seldom.warning(
            f"login over HTTP from %s refused ({mechanism}, {refused.kind}): %s", request.remote, refused.reason
        )
        named = f" (it named the user {refused.name!r})" if refused.name else ""
        caller = DirectCaller(self._node, host=request.remote or "")
        audit_login(caller, ON_HTTP, mechanism, refusal=f"{refused.reason}{named}")
        slot.wait()
        await asyncio.sleep(settings.failed_login_delay_ms / 1000)
        await self._node.turns.alone()  # many of them may be due at once
        slot.work()
        raise Problem(401, "LOGIN_FAILED", "wrong user, password or token", _CURE)


def challenge_of(request: web.Request, problem: Problem) -> dict[str, str] | None:
    """Return the headers that ask a client for a login; not for a page, over which a browser would ask itself."""
    if problem.status != 401 or "Sec-Fetch-Mode" in request.headers:
        return None
    return {"WWW-Authenticate": 'Basic realm="pqbroker", charset="UTF-8"'}


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FILES)


def _read_basic(given: str) -> tuple[str, str] | None:
    """Return name and password; None if there are none."""
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if name and colon and password else None
