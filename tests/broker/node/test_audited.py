"""A broker with an audit log."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import Node, make_batch, produce_request, until

Start = Callable[..., Awaitable[Node]]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def written(node: Node, path: Path, count: int) -> list[dict[str, Any]]:
    """Return the lines of the log once there are so many."""
    await until(lambda: len(read(path)) >= count)
    return read(path)


@pytest.mark.parametrize("guarded", [False, True])
async def test_refusals_and_changes_are_said_and_reads_are_not(start: Start, tmp_path: Path, guarded: bool) -> None:
    path = tmp_path / "audit.log"
    rules = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"} if guarded else {}
    node = await start(audit_file=str(path), **rules)
    await node.create_topic("t")
    client = await node.connect()
    await client.ask(produce_request("t", make_batch()), 9)
    await client.ask(MetadataRequest(topics=None))
    (line,) = await written(node, path, 1)
    assert (line["operation"], line["resource"], line["allowed"]) == ("CREATE", "topic t", True)
    assert (line["principal"], line["host"]) == ("User:ANONYMOUS", "127.0.0.1")


async def test_a_refusal_names_its_resource_and_a_filtered_list_none(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start(audit_file=str(path), authorizer_class_name=STANDARD_AUTHORIZER)
    client = await node.connect()
    answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert answer.topics[0].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await client.ask(MetadataRequest(topics=None))
    lines = await written(node, path, 1)
    assert {(line["operation"], line["resource"], line["allowed"]) for line in lines} == {
        ("DESCRIBE", "topic t", False)
    }


async def test_a_new_access_rule_is_said_as_it_is(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start(
        audit_file=str(path), authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS"
    )
    client = await node.connect()
    rule = AclCreation(
        resource_type=2, resource_name="t", principal="User:ann", host="*", operation=3, permission_type=3
    )
    await client.ask(CreateAclsRequest(creations=[rule]))
    lines = await written(node, path, 2)
    assert lines[-1]["detail"] == "access rule added: allow User:ann READ on topic t from *"


async def test_everything_that_is_allowed_is_said_where_that_is_set(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start(audit_file=str(path), audit_everything=True)
    await node.create_topic("t")
    await node.produce("t", b"v")
    lines = await written(node, path, 2)
    assert ("WRITE", "topic t") in {(line["operation"], line["resource"]) for line in lines}
