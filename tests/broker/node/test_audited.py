"""A broker with an audit log."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from pqbroker.broker.ground.listeners import Address
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.kafka.net.test_logins import log_in, start_locked
from tests.support.sasl import credential

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


async def test_changed_quotas_are_said_by_name_and_value(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start(audit_file=str(path))
    client = await node.connect()
    entity = [EntityData(entity_type="user", entity_name="ann"), EntityData(entity_type="client-id", entity_name=None)]
    changes = [OpData(key="producer_byte_rate", value=1_000_000.0), OpData(key="request_percentage", remove=True)]
    await client.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=changes)]))
    lines = await written(node, path, 2)
    told = "quotas of user ann, client-id (default): producer_byte_rate=1000000, request_percentage removed"
    assert lines[-1]["detail"] == told


async def test_everything_that_is_allowed_is_said_where_that_is_set(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start(audit_file=str(path), audit_everything=True)
    await node.create_topic("t")
    await node.produce("t", b"v")
    lines = await written(node, path, 2)
    assert ("WRITE", "topic t") in {(line["operation"], line["resource"]) for line in lines}


async def test_logins_and_refused_ones_are_said_with_address_and_mechanism(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start_locked(start, credential("alice", "secret"), audit_file=str(path))
    assert (await log_in(await node.connect(), "SCRAM-SHA-256", "alice", "secret")).error_code is ErrorCode.NONE
    await log_in(await node.connect(), "PLAIN", "alice", "wrong")
    await (await node.connect()).ask(SaslHandshakeRequest(mechanism="GSSAPI"))
    early = await node.connect()
    early.send(MetadataRequest())
    assert await early.is_closed_by_peer()
    said = [line for line in await written(node, path, 5) if line["operation"] == "LOGIN"]
    assert [(line["principal"], line["host"], line["resource"], line["allowed"], line["detail"]) for line in said] == [
        ("User:alice", "127.0.0.1", "listener LOCKED", True, "SCRAM-SHA-256"),
        ("User:ANONYMOUS", "127.0.0.1", "listener LOCKED", False,
         "PLAIN: wrong password or unknown user (it named the user 'alice')"),
        ("User:ANONYMOUS", "127.0.0.1", "listener LOCKED", False, "no mechanism: the mechanism 'GSSAPI' is off"),
        ("User:ANONYMOUS", "127.0.0.1", "listener LOCKED", False,
         "no mechanism: a request of API key 3 before a login"),
    ]  # fmt: skip


async def test_refused_logins_that_come_too_fast_are_counted(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    node = await start_locked(start, audit_file=str(path), audit_lines_per_second=4)
    for _ in range(5):
        await (await node.connect()).ask(SaslHandshakeRequest(mechanism="GSSAPI"))
    audit = node.server.node.audit
    assert audit is not None
    assert audit.suppressed > 0


async def test_logins_over_http_are_said_once_for_a_connection(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    http = Address("127.0.0.1", 0)
    node = await start_locked(start, credential("alice", "secret"), audit_file=str(path), http=http)
    address = node.server.http_address
    assert address is not None
    async with ClientSession(f"http://{address}") as session:
        for password, status in (("secret", 200), ("secret", 200), ("wrong", 401)):
            given = b64encode(f"alice:{password}".encode()).decode()
            async with session.get("/v1/topics", headers={"Authorization": f"Basic {given}"}) as answer:
                assert answer.status == status
                await answer.read()
    said = [line for line in await written(node, path, 3) if line["operation"] == "LOGIN"]
    assert [(line["principal"], line["resource"], line["allowed"], line["detail"]) for line in said] == [
        ("User:alice", "listener HTTP", True, "Basic"),
        ("User:ANONYMOUS", "listener HTTP", False,
         "Basic: wrong password or unknown user (it named the user 'alice')"),
    ]  # fmt: skip
