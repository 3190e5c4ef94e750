"""Access rules over HTTP, and what they mean there."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.conf.addresses import Address
from tests.broker.conftest import Node

Start = Callable[..., Awaitable[Node]]
RULE = {"kind": "topic", "name": "orders", "principal": "User:ann", "operation": "read"}
SHOWN = {**RULE, "pattern": "literal", "host": "*", "permission": "allow"}


async def guarded(start: Start, **settings: Any) -> Node:
    return await start(
        http=Address("127.0.0.1", 0),
        **{"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS", **settings},
    )


async def ask(node: Node, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    url = f"http://{node.server.http_address}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as answer:
        return answer.status, await answer.json()


async def test_rules_are_added_listed_and_removed(start: Start) -> None:
    node = await guarded(start)
    _, answer = await ask(node, "POST", "/v1/acls", {"acls": [RULE, {**RULE, "principal": "ann"}]})
    assert [result["error"] and result["error"]["code"] for result in answer["results"]] == [None, "INVALID_REQUEST"]
    await ask(node, "POST", "/v1/acls", {"acls": [{**RULE, "name": "ord", "pattern": "prefixed"}]})
    _, page = await ask(node, "GET", "/v1/acls?limit=1")
    assert (page["acls"], page["next"], page["enabled"]) == ([SHOWN], "1", True)
    _, page = await ask(node, "GET", "/v1/acls?after=1")
    assert [rule["pattern"] for rule in page["acls"]] == ["prefixed"]
    _, page = await ask(node, "GET", "/v1/acls?name=orders&pattern=match&kind=topic")
    assert len(page["acls"]) == 2
    _, removed = await ask(node, "DELETE", "/v1/acls?name=orders")
    assert removed["acls"] == [SHOWN]
    assert (await ask(node, "DELETE", "/v1/acls"))[0] == 400, "every rule would go"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/acls?operation=reed", None),
        ("/v1/acls?permission=match", None),
        ("/v1/acls", {"acls": [{**RULE, "kind": "table"}]}),
        ("/v1/acls", {"acls": [{**RULE, "pattern": "match"}]}),
    ],
)
async def test_a_word_that_is_none_is_refused_with_those_there_are(start: Start, path: str, body: Any) -> None:
    node = await guarded(start)
    status, answer = await ask(node, "GET" if body is None else "POST", path, body)
    assert (status, "give one of" in answer["error"]["message"]) == (400, True)


async def test_without_rules_there_is_nothing_to_change(start: Start) -> None:
    node = await start(http=Address("127.0.0.1", 0))
    assert (await ask(node, "GET", "/v1/acls"))[1]["enabled"] is False
    for method, path, body in (("POST", "/v1/acls", {"acls": [RULE]}), ("DELETE", "/v1/acls?name=t", None)):
        status, answer = await ask(node, method, path, body)
        assert (status, answer["error"]["code"]) == (409, "SECURITY_DISABLED")


async def test_a_rule_lets_a_caller_do_over_http_what_it_lets_it_do_over_kafkas_protocol(start: Start) -> None:
    node = await guarded(start, super_users="")
    rules = node.server.node.rules
    assert rules is not None
    status, answer = await ask(node, "POST", "/v1/topics", {"name": "orders"})
    assert (status, answer["error"]["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    allowed = AclRule(
        AclKind.TOPIC, AclPattern.LITERAL, "orders", "User:ANONYMOUS", "127.0.0.1", AclOperation.CREATE,
        AclPermission.ALLOW,
    )  # fmt: skip
    rules.follow(allowed, {})
    assert (await ask(node, "POST", "/v1/topics", {"name": "orders"}))[0] == 201
    assert (await ask(node, "GET", "/v1/topics/orders"))[0] == 403
    rules.follow(allowed._replace(operation=AclOperation.READ), {})
    assert (await ask(node, "GET", "/v1/topics/orders"))[0] == 200
    assert (await ask(node, "GET", "/v1/node"))[0] == 403
    rules.follow(allowed._replace(host="10.0.0.1", permission=AclPermission.DENY, operation=AclOperation.ALL), {})
    assert (await ask(node, "GET", "/v1/topics/orders"))[0] == 200, "the denial is for another host"


async def test_unreadable_rules_are_shown_and_removed(start: Start) -> None:
    node = await guarded(start)
    await ask(node, "POST", "/v1/acls", {"acls": [RULE]})
    scheme = node.server.node.cell.current.scheme
    await scheme.change(lambda changes: changes.put("acls", (2, 3, "t", "User:ann", "*", 99, 3), {}))
    _, page = await ask(node, "GET", "/v1/acls")
    assert len(page["unreadable"]) == 1
    _, removed = await ask(node, "DELETE", "/v1/acls?unreadable=true")
    assert removed["unreadable"] == page["unreadable"]
    assert (await ask(node, "GET", "/v1/acls"))[1]["unreadable"] == []
