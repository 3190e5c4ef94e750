"""Rights of the caller, as the console asks for them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.access.rules import EVERY_USER, AclPattern, AclPermission, AclRule
from pqbroker.broker.web.endpoints import start_http
from pqbroker.conf.addresses import Address
from tests.broker.conftest import Node

EVERYTHING = ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"]


@pytest.fixture
async def access(node: Node) -> AsyncIterator[tuple[str, RuleAccess]]:
    """Return the URL of the rights, and the rules of the node."""
    rules = RuleAccess((), allows_unruled=False, decisions_max=lambda: 1000)
    close, address = await start_http(replace(node.server.node, access=rules), Address("127.0.0.1", 0))
    yield f"http://{address}/v1/rights", rules
    await close()


async def ask(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.json()


def allow(rules: RuleAccess, kind: AclKind, name: str, operation: AclOperation) -> None:
    rules.follow(AclRule(kind, AclPattern.LITERAL, name, EVERY_USER, "*", operation, AclPermission.ALLOW), {})


async def test_everybody_may_do_everything_where_there_are_no_rules(node: Node) -> None:
    close, address = await start_http(node.server.node, Address("127.0.0.1", 0))
    found = await ask(f"http://{address}/v1/rights?topic=t&group=g")
    assert found["cluster"] == found["topic"] == found["group"] == EVERYTHING
    assert (found["is_guarded"], found["creates_topics"], found["console_writes"]) == (False, True, False)
    await close()


async def test_rights_are_those_of_the_rules_and_of_what_is_named_alone(access: tuple[str, RuleAccess]) -> None:
    url, rules = access
    found = await ask(url)
    assert (found["cluster"], found["topic"], found["group"], found["creates_topics"]) == ([], None, None, False)
    allow(rules, AclKind.TOPIC, "t", AclOperation.DELETE)
    allow(rules, AclKind.GROUP, "g", AclOperation.READ)
    allow(rules, AclKind.TOPIC, "new", AclOperation.CREATE)
    found = await ask(f"{url}?topic=t&group=g")
    assert (found["topic"], found["group"]) == (["delete", "describe"], ["read", "describe"])
    assert (found["creates_topics"], found["cluster"], found["is_guarded"]) == (True, [], True)
    assert (await ask(f"{url}?topic=u"))["topic"] == []
    allow(rules, AclKind.CLUSTER, CLUSTER.name, AclOperation.ALTER)
    assert (await ask(url))["cluster"] == ["alter", "describe"]
