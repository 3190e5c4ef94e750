"""Rights that go away while an answer is on its way: streams end, and a query gives no further rows."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation
from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.broker.web.resources.sql import CallersTargets
from pqbroker.broker.web.routing.routes import Call
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.web.conftest import Web

Serve = Callable[..., Awaitable[Web]]


@pytest.fixture
async def web(serve: Serve) -> Web:
    """Return a node with a topic, whose rules allow everybody everything."""
    web = await serve(authorizer_class_name=STANDARD_AUTHORIZER)
    for kind, name in ((AclKind.TOPIC, "*"), (AclKind.CLUSTER, CLUSTER.name)):
        follow(web, AclRule(kind, AclPattern.LITERAL, name, "User:*", "*", AclOperation.ALL, AclPermission.ALLOW))
    await web.node.create_topic("t")
    return web


def follow(web: Web, rule: AclRule) -> None:
    rules = web.node.server.node.rules
    assert rules is not None
    rules.follow(rule, {})


def deny(web: Web, operation: AclOperation, kind: AclKind, name: str) -> None:
    follow(web, AclRule(kind, AclPattern.LITERAL, name, "User:*", "*", operation, AclPermission.DENY))


async def test_who_follows_a_topic_and_may_not_read_it_any_more_gets_a_refusal(web: Web) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(web.url("/v1/topics/t/records?follow=true")) as answer,
    ):
        await web.node.produce("t", b"before")
        assert json.loads(await answer.content.readline())["value"] == "before"
        deny(web, AclOperation.READ, AclKind.TOPIC, "t")
        await web.node.produce("t", b"secret")
        said: Any = [json.loads(line) async for line in answer.content if line.strip()]
    assert [one["error"]["code"] for one in said] == ["TOPIC_AUTHORIZATION_FAILED"]


async def test_events_end_with_the_right_to_see_them(web: Web) -> None:
    async with aiohttp.ClientSession() as session, session.get(web.url("/v1/events")) as answer:
        assert await answer.content.readline()
        deny(web, AclOperation.DESCRIBE, AclKind.CLUSTER, CLUSTER.name)
        assert await answer.content.read() is not None


async def test_a_query_gives_no_further_rows_of_a_topic_that_may_not_be_read_any_more(web: Web) -> None:
    node = web.node.server.node
    targets = CallersTargets(Call(node, {}, {}, None, Looks(1).of("a"), host="127.0.0.1"))
    targets.topic("t")
    deny(web, AclOperation.WRITE, AclKind.TOPIC, "t")
    targets.check()
    deny(web, AclOperation.READ, AclKind.TOPIC, "t")
    with pytest.raises(KafkaError) as refused:
        targets.check()
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
