"""Users and tokens over HTTP: made, changed, used, refused, ended; nothing secret is shown."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import AclOperation, AclResource, Principal
from tests.broker.conftest import Node
from tests.broker.web.conftest import Web
from tests.broker.web.test_logins import basic, session, start_web

__all__ = ["session"]
Start = Callable[..., Awaitable[Node]]
ALICE = basic("alice", "secret")


class OnlyAlice:
    """Allows everything to alice, nothing to others."""

    revision = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return principal.name == "alice"


@pytest.fixture
async def web(start: Start, session: aiohttp.ClientSession) -> Web:
    found = await start_web(start, session)
    object.__setattr__(found.node.server.node, "access", OnlyAlice())
    return found


async def test_a_user_is_made_changed_and_removed(web: Web) -> None:
    status, made = await web.ask("PUT", "/v1/users/bob", {"password": "Very-secret", "iterations": 5000}, **ALICE)
    assert (status, made["name"], made["super"]) == (200, "bob", False)
    assert made["mechanisms"] == [{"name": f"SCRAM-SHA-{bits}", "iterations": 5000} for bits in (256, 512)]
    assert (await web.ask("GET", "/v1/login", None, **basic("bob", "Very-secret")))[0] == 200
    assert (await web.ask("PUT", "/v1/users/bob", {"password": "Another"}, **ALICE))[0] == 200
    assert (await web.ask("GET", "/v1/login", None, **basic("bob", "Very-secret")))[0] == 401
    status, page = await web.ask("GET", "/v1/users?limit=1", None, **ALICE)
    assert (status, [user["name"] for user in page["users"]], page["next"]) == (200, ["alice"], "alice")
    status, page = await web.ask("GET", "/v1/users?after=alice", None, **ALICE)
    assert ([user["name"] for user in page["users"]], page["next"]) == (["bob"], None)
    assert "ecret" not in str(page)
    assert (await web.ask("DELETE", "/v1/users/bob", None, **ALICE))[0] == 204
    assert (await web.refusal("DELETE", "/v1/users/bob", None, **ALICE))[:2] == (404, "RESOURCE_NOT_FOUND")
    assert (await web.refusal("PUT", "/v1/users/bob", {"super": True}, **ALICE))[:2] == (404, "RESOURCE_NOT_FOUND")


async def test_the_last_super_user_stays_one(web: Web) -> None:
    for name in ("root", "admin"):
        await web.ask("PUT", f"/v1/users/{name}", {"password": "x", "super": True}, **ALICE)
    assert (await web.ask("PUT", "/v1/users/root", {"super": False}, **ALICE))[1]["super"] is False
    assert (await web.refusal("PUT", "/v1/users/admin", {"super": False}, **ALICE))[:2] == (409, "POLICY_VIOLATION")
    assert (await web.refusal("DELETE", "/v1/users/admin", None, **ALICE))[:2] == (409, "POLICY_VIOLATION")
    await web.ask("PUT", "/v1/users/root", {"super": True}, **ALICE)
    assert (await web.ask("DELETE", "/v1/users/admin", None, **ALICE))[0] == 204


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("bob", {"password": ""}), ("bob", {"password": "a\0b"}), ("bob", {"password": "x" * 1025}),
        ("b" * 257, {"password": "x"}), ("bob", {"password": "x", "iterations": 4095}),
        ("bob", {"password": "x", "iterations": 16385}), ("bob", {"password": 7}), ("bob", {"salt": "x"}),
    ],
    ids=str,
)  # fmt: skip
async def test_a_user_that_is_none_is_refused(web: Web, name: str, body: dict[str, Any]) -> None:
    assert (await web.refusal("PUT", f"/v1/users/{name}", body, **ALICE))[0] == 400


async def test_a_token_stands_for_its_user_until_it_is_revoked(web: Web) -> None:
    await web.ask("PUT", "/v1/users/bob", {"password": "x"}, **ALICE)
    status, made = await web.ask("POST", "/v1/tokens", {"note": "dashboard"}, **basic("bob", "x"))
    assert (status, made["user"], made["note"], made["expires"]) == (201, "bob", "dashboard", None)
    bearer = {"Authorization": f"Bearer {made['token']}"}
    _, listed = await web.ask("GET", "/v1/tokens", None, **bearer)
    assert [(one["id"], one["user"]) for one in listed["tokens"]] == [(made["id"], "bob")]
    assert "token" not in listed["tokens"][0]
    wrong = {"Authorization": bearer["Authorization"][:-1] + ("A" if made["token"][-1] != "A" else "B")}
    assert (await web.refusal("GET", "/v1/tokens", None, **wrong))[0] == 401
    assert (await web.refusal("POST", "/v1/tokens", {"user": "alice"}, **bearer))[0] == 403
    _, hers = await web.ask("POST", "/v1/tokens", {}, **ALICE)
    assert (await web.refusal("DELETE", f"/v1/tokens/{hers['id']}", None, **bearer))[0] == 403
    assert len((await web.ask("GET", "/v1/tokens", None, **ALICE))[1]["tokens"]) == 2
    assert (await web.ask("DELETE", f"/v1/tokens/{made['id']}", None, **bearer))[0] == 204
    assert (await web.refusal("GET", "/v1/tokens", None, **bearer))[0] == 401


async def test_a_token_ends_with_its_time_and_with_its_user(web: Web) -> None:
    await web.ask("PUT", "/v1/users/bob", {"password": "x"}, **ALICE)
    bearers = []
    for body in ({"lifetime_ms": 1000}, {}):
        _, made = await web.ask("POST", "/v1/tokens", body, **basic("bob", "x"))
        bearers.append({"Authorization": f"Bearer {made['token']}"})
    assert [(await web.ask("GET", "/v1/tokens", None, **bearer))[0] for bearer in bearers] == [200, 200]
    web.node.clock.now_ms += 1000
    assert [(await web.ask("GET", "/v1/tokens", None, **bearer))[0] for bearer in bearers] == [401, 200]
    await web.ask("DELETE", "/v1/users/bob", None, **ALICE)
    await web.ask("PUT", "/v1/users/bob", {"password": "x"}, **ALICE)
    assert (await web.ask("GET", "/v1/tokens", None, **bearers[1]))[0] == 401


@pytest.mark.parametrize(
    "body", [{"user": "nobody"}, {"lifetime_ms": 0}, {"note": "x" * 257}, {"id": "0"}], ids=str
)
async def test_a_token_that_is_none_is_refused(web: Web, body: dict[str, Any]) -> None:
    assert (await web.refusal("POST", "/v1/tokens", body, **ALICE))[0] in (400, 404)


async def test_tokens_are_as_many_as_pqbroker_tokens_max(start: Start, session: aiohttp.ClientSession) -> None:
    web = await start_web(start, session, tokens_max=2)
    for _ in range(2):
        assert (await web.ask("POST", "/v1/tokens", {"lifetime_ms": 1000}, **ALICE))[0] == 201
    assert (await web.refusal("POST", "/v1/tokens", {}, **ALICE))[:2] == (409, "POLICY_VIOLATION")
    web.node.clock.now_ms += 1000
    assert (await web.ask("POST", "/v1/tokens", {}, **ALICE))[0] == 201
