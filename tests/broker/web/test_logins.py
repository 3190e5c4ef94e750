"""Logins over HTTP: passwords, tokens, the console's cookie, and what stays open."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import ANONYMOUS, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.ground.listeners import Address
from pqbroker.broker.web.console_logins import ConsoleLogins
from pqbroker.broker.web.http_logins import COOKIE, PAGE_TOKEN
from tests.broker.conftest import Node, until
from tests.broker.kafka.net.test_logins import start_locked
from tests.broker.web.conftest import Web
from tests.support.sasl import credential

Start = Callable[..., Awaitable[Node]]
ANY = Address("127.0.0.1", 0)
MANY, DELAY_MS = 20, 500


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


class Witness:
    """Allows everything, and notes to whom."""

    revision = 0

    def __init__(self) -> None:
        self.seen: list[Principal] = []

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        self.seen.append(principal)
        return True

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return True


@pytest.fixture
async def session() -> Any:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def start_web(start: Start, session: aiohttp.ClientSession, **settings: Any) -> Web:
    return Web(await start_locked(start, credential("alice", "secret"), http=ANY, **settings), session)


async def test_nobody_is_served_without_a_login(start: Start, session: aiohttp.ClientSession) -> None:
    web = await start_web(start, session)
    for path in ("/v1/topics", "/v1/node", "/metrics", "/v1/openapi.json", "/v1/nowhere", "/anything"):
        assert (await web.refusal("GET", path))[:2] == (401, "LOGIN_REQUIRED"), path
        async with session.get(web.url(path), headers=basic("alice", "secret")) as answer:
            assert answer.status in (200, 404)
    async with session.get(web.url("/v1/topics")) as answer:
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="pqbroker", charset="UTF-8"'
    async with session.get(web.url("/v1/topics"), headers={"Sec-Fetch-Mode": "cors"}) as answer:
        assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize("path", ["/health", "/ready", "/", "/console/app.js", "/v1/login"])
async def test_health_and_the_files_of_the_console_are_open(
    start: Start, session: aiohttp.ClientSession, path: str
) -> None:
    web = await start_web(start, session)
    for _ in range(2):  # the second one comes on the connection of the first
        async with session.get(web.url(path), headers={"Accept": "text/html"}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "header",
    [
        basic("alice", "wrong"), basic("bob", "secret"), basic("alice", ""), basic("", "secret"),
        {"Authorization": "Basic"}, {"Authorization": "Basic !!!"}, {"Authorization": "Basic /w=="},
        {"Authorization": "Digest x"}, {"Authorization": "Bearer pqb_unknown"}, {"Authorization": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_required", [False, True])
async def test_a_wrong_login_is_refused_also_where_none_is_required(
    start: Start, session: aiohttp.ClientSession, header: dict[str, str], is_required: bool
) -> None:
    web = await start_web(start, session, http_login_required=is_required)
    assert (await web.refusal("GET", "/v1/topics", None, **header))[:2] == (401, "LOGIN_FAILED")
    assert (await web.ask("GET", "/v1/topics"))[0] == (401 if is_required else 200)


async def test_late_answers_to_wrong_logins_leave_in_turns_of_their_own(
    start: Start, session: aiohttp.ClientSession
) -> None:
    web = await start_web(start, session, failed_login_delay_ms=DELAY_MS)
    metrics = web.node.server.node.metrics

    def refused() -> int:
        return sum(count for (_, _, status), count in metrics.http_requests.items() if status == "401")

    asking = [asyncio.ensure_future(web.ask("GET", "/v1/topics", None, **basic("alice", "no"))) for _ in range(MANY)]
    await until(lambda: metrics.login_refusals.get(("Basic", "credentials")) == MANY)
    time.sleep(2 * DELAY_MS / 1000)  # noqa: ASYNC251 (a loop that is late: all answers are due in one turn)
    most, before = 0, refused()
    async with asyncio.timeout(60):
        while before < MANY:
            await asyncio.sleep(0)
            most, before = max(most, refused() - before), refused()
    assert most == 1
    assert {(await answer)[0] for answer in asking} == {401}


async def test_a_request_is_its_users(start: Start, session: aiohttp.ClientSession) -> None:
    web = await start_web(start, session, http_login_required=False)
    witness = Witness()
    object.__setattr__(web.node.server.node, "access", witness)
    await web.ask("GET", "/v1/node", None, **basic("alice", "secret"))
    await web.ask("GET", "/v1/node")
    assert list(dict.fromkeys(witness.seen)) == [Principal("User", "alice"), ANONYMOUS]


async def test_a_password_that_was_right_is_not_computed_again(
    start: Start, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await start_web(start, session)
    assert (await web.ask("GET", "/v1/topics", None, **basic("alice", "secret")))[0] == 200
    monkeypatch.setattr("pqbroker.broker.services.logins.logins.is_password", lambda *_: False)
    assert (await web.ask("GET", "/v1/topics", None, **basic("alice", "secret")))[0] == 200
    assert (await web.ask("GET", "/v1/topics", None, **basic("alice", "Secret")))[0] == 401
    await start_users(web, credential("alice", "another"))
    assert (await web.ask("GET", "/v1/topics", None, **basic("alice", "secret")))[0] == 401


async def start_users(web: Web, *users: Any) -> None:
    """Set passwords over the plain listener."""
    from pqbroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from tests.broker.wire import Client

    client = await Client.connect("127.0.0.1", web.node.server.listeners[1].address.port)
    await client.ask(AlterUserScramCredentialsRequest(upsertions=list(users)))
    await client.close()


async def test_more_passwords_than_may_wait_are_answered_503(
    start: Start, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await start_web(start, session)

    def too_many(*_: object) -> bool:
        from pqbroker.broker.services.logins.password_checks import TooManyChecks

        raise TooManyChecks

    monkeypatch.setattr(web.node.server.node.logins.checks, "run", too_many)
    assert (await web.refusal("GET", "/v1/topics", None, **basic("alice", "secret")))[:2] == (503, "TOO_MANY_LOGINS")


async def test_the_console_logs_in_by_a_cookie_and_changes_by_a_page_token(
    start: Start, session: aiohttp.ClientSession
) -> None:
    web = await start_web(start, session)
    assert await web.ask("GET", "/v1/login") == (200, {"required": True, "user": None, "page_token": None})
    async with session.post(web.url("/v1/login"), json={"user": "alice", "password": "secret"}) as answer:
        document = await answer.json()
        cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert (document["user"], document["required"]) == ("alice", True)
    assert (await web.ask("GET", "/v1/topics"))[0] == 200
    assert await web.ask("GET", "/v1/login") == (200, document)
    topic = {"name": "t", "partitions": 1}
    assert (await web.refusal("POST", "/v1/topics", topic))[:2] == (403, "NO_PAGE_TOKEN")
    assert (await web.refusal("POST", "/v1/topics", topic, **{PAGE_TOKEN: "guess"}))[:2] == (403, "NO_PAGE_TOKEN")
    assert (await web.ask("POST", "/v1/topics", topic, **{PAGE_TOKEN: document["page_token"]}))[0] == 201
    assert (await web.ask("DELETE", "/v1/login", None, **{PAGE_TOKEN: document["page_token"]}))[0] == 200
    assert (await web.refusal("GET", "/v1/topics"))[0] == 401


async def test_a_login_of_the_console_ends_with_the_password(start: Start, session: aiohttp.ClientSession) -> None:
    web = await start_web(start, session)
    await web.ask("POST", "/v1/login", {"user": "alice", "password": "secret"})
    assert (await web.ask("GET", "/v1/topics"))[0] == 200
    await start_users(web, credential("alice", "another"))
    assert (await web.refusal("GET", "/v1/topics"))[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "alice", "password": "wrong"}, 401), ({"user": "alice"}, 400), ([], 400), (b"{", 400),
        ({"user": "a" * 5000, "password": "x"}, 400), ({"user": "alice", "password": "secret", "x": 1}, 400),
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_no_login_is_refused(
    start: Start, session: aiohttp.ClientSession, body: Any, status: int
) -> None:
    web = await start_web(start, session)
    assert (await web.refusal("POST", "/v1/login", body))[0] == status
    assert (await web.refusal("POST", "/v1/login", b"user=a&password=b", Content_Type="text/plain"))[0] == 415


def test_logins_of_the_console_are_as_many_as_their_limit_and_end_in_time() -> None:
    now, texts = [0.0], iter(map(str, range(100)))
    logins = ConsoleLogins(lambda: now[0], lambda: next(texts), lambda: 2)
    cookies = [logins.begin(name, b"", 10.0)[0] for name in "abc"]
    assert [login and login.user for login in map(logins.find, cookies)] == [None, "b", "c"]
    logins.end(cookies[1])
    assert logins.find(cookies[1]) is None
    now[0] = 10.0
    assert logins.find(cookies[2]) is None
    assert len(logins) == 0
