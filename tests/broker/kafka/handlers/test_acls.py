"""Access rules over Kafka's protocol: made, shown, removed, and what they mean for other requests.

Nobody logs in here: rules tell callers apart by their address. 127.0.0.2 may do everything.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation
from pqbroker.broker.services.access.changes import RULES_PER_COMMIT
from pqbroker.broker.services.access.rules import ANY_CODE, MATCH, AclPattern, AclPermission
from pqbroker.conf.access import STANDARD_AUTHORIZER
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import Node, make_batch, produce_request, until
from tests.broker.wire import Client

Start = Callable[..., Awaitable[Node]]
ADMIN = "127.0.0.2"
SETTINGS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": ""}
CALLER = {"principal": "User:ANONYMOUS", "host": "127.0.0.1"}


def creation(name: str = "t", operation: int = AclOperation.READ, **fields: Any) -> AclCreation:
    given = {
        "resource_type": AclKind.TOPIC, "resource_pattern_type": AclPattern.LITERAL, "principal": "User:ANONYMOUS",
        "host": "127.0.0.1", "permission_type": AclPermission.ALLOW, **fields,
    }  # fmt: skip
    return AclCreation(resource_name=name, operation=operation, **given)


def named(name: str | None = None, **fields: Any) -> DeleteAclsFilter:
    given = {
        "resource_type_filter": ANY_CODE, "pattern_type_filter": ANY_CODE, "operation": ANY_CODE,
        "permission_type": ANY_CODE,
        "principal_filter": None, "host_filter": None, **fields,
    }  # fmt: skip
    return DeleteAclsFilter(resource_name_filter=name, **given)


async def guarded(start: Start, **settings: Any) -> Node:
    """Start a broker with rules that allow the address of the administrator everything."""
    node = await start(**{**SETTINGS, "allow_everyone_if_no_acl_found": True, **settings})
    node.source = ADMIN
    client = await node.connect(ADMIN)
    everything = [
        creation("kafka-cluster" if kind is AclKind.CLUSTER else "*", AclOperation.ALL, resource_type=kind, host=ADMIN)
        for kind in (AclKind.TOPIC, AclKind.GROUP, AclKind.CLUSTER, AclKind.TRANSACTIONAL_ID)
    ]
    assert await codes_of(client, *everything) == [ErrorCode.NONE] * 4
    return node


async def codes_of(client: Client, *rules: AclCreation) -> list[ErrorCode]:
    return [each.error_code for each in (await client.ask(CreateAclsRequest(creations=list(rules)))).results]


async def shown(client: Client, name: str | None = None, pattern: int = ANY_CODE) -> list[tuple[Any, ...]]:
    asked = DescribeAclsRequest(
        resource_type_filter=ANY_CODE, resource_name_filter=name, pattern_type_filter=pattern, principal_filter=None,
        host_filter="127.0.0.1", operation=ANY_CODE, permission_type=ANY_CODE,
    )  # fmt: skip
    answer = await client.ask(asked)
    assert answer.error_code == 0
    return [
        (resource.resource_name, resource.pattern_type, rule.operation, rule.permission_type)
        for resource in answer.resources
        for rule in resource.acls
    ]


async def produced(client: Client, topic: str) -> ErrorCode:
    answer = await client.ask(produce_request(topic, make_batch()), 9)
    code: ErrorCode = answer.responses[0].partition_responses[0].error_code
    return code


async def test_rules_are_made_shown_and_removed(start: Start) -> None:
    node = await guarded(start)
    admin = await node.connect(ADMIN)
    prefixed = creation("ord", AclOperation.WRITE, resource_pattern_type=AclPattern.PREFIXED)
    assert await codes_of(admin, creation(), creation(), prefixed) == [ErrorCode.NONE] * 3
    assert sorted(await shown(admin)) == [("ord", 4, 4, 3), ("t", 3, 3, 3)]
    assert await shown(admin, "t") == [("t", 3, 3, 3)]
    assert await shown(admin, "orders") == []
    assert await shown(admin, "orders", MATCH) == [("ord", 4, 4, 3)]
    deleted = await admin.ask(DeleteAclsRequest(filters=[named("t"), named(host_filter="127.0.0.1"), named("none")]))
    names = [[match.resource_name for match in found.matching_acls] for found in deleted.filter_results]
    assert [sorted(each) for each in names] == [["t"], ["ord", "t"], []]
    assert await shown(admin) == []


async def test_a_rule_counts_from_its_answer_on(start: Start) -> None:
    node = await guarded(start)
    await node.create_topic("t")
    admin, caller = await node.connect(ADMIN), await node.connect()
    assert await produced(caller, "t") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await codes_of(admin, creation("t", AclOperation.WRITE))
    assert await produced(caller, "t") is ErrorCode.NONE
    assert await produced(caller, "t") is ErrorCode.NONE, "in its lane"
    await codes_of(admin, creation("t", AclOperation.WRITE, permission_type=AclPermission.DENY))
    assert await produced(caller, "t") is ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a warm request is checked again"
    await admin.ask(DeleteAclsRequest(filters=[named("t", permission_type=AclPermission.DENY)]))
    assert await produced(caller, "t") is ErrorCode.NONE


async def test_a_parked_fetch_gives_nothing_that_was_forbidden_meanwhile(start: Start) -> None:
    node = await guarded(start)
    await node.create_topic("t")
    admin, caller, producer = await node.connect(ADMIN), await node.connect(), await node.connect(ADMIN)
    await codes_of(admin, creation("t"))
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
    caller.send(FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12)
    await admin.ask(DeleteAclsRequest(filters=[named("t")]))
    assert await produced(producer, "t") is ErrorCode.NONE
    (partition,) = (await caller.receive()).responses[0].partitions
    assert (partition.error_code, len(partition.records or b"")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)


async def test_rules_outlive_a_cell_that_is_lost_and_opened_again(start: Start) -> None:
    node = await guarded(start)
    await node.create_topic("t")
    admin = await node.connect(ADMIN)
    await codes_of(admin, creation("t", AclOperation.WRITE))
    rules = node.server.node.rules
    assert rules is not None
    before = set(rules.rules)
    node.engine.faults.lose_next(stored=True)
    assert await codes_of(admin, creation("u", AclOperation.WRITE)) != [ErrorCode.NONE]
    await until(lambda: node.server.node.metrics.cell_openings == 2)
    assert [rule.name for rule in rules.rules.keys() - before] == ["u"], "stored, though its outcome was unknown"
    assert await codes_of(admin, creation("v", AclOperation.WRITE)) == [ErrorCode.NONE]
    assert len(rules.rules) == len(before) + 2


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (creation(""), "Invalid empty resource name"),
        (creation("kafka", resource_type=AclKind.CLUSTER), "The only valid name for the CLUSTER resource"),
        (creation(resource_type=1), "Invalid resourceType ANY"),
        (creation(resource_type=99), "Invalid resourceType UNKNOWN"),
        (creation(resource_pattern_type=2), "Invalid patternType MATCH"),
        (creation(operation=1), "Invalid operation ANY"),
        (creation(permission_type=1), "Invalid permissionType ANY"),
        (creation(principal="ann"), "no colon is present"),
        (creation("t" * 3000), "the most allowed is 2048 (pqbroker.acl.bytes.max)"),
    ],
)  # fmt: skip
async def test_a_rule_that_says_nothing_is_refused_and_others_beside_it_are_made(
    start: Start, rule: AclCreation, text: str
) -> None:
    node = await guarded(start)
    admin = await node.connect(ADMIN)
    answer = await admin.ask(CreateAclsRequest(creations=[rule, creation("fine")]))
    assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert text in answer.results[0].error_message
    assert [name for name, *_ in await shown(admin)] == ["fine"]


async def test_there_are_so_many_rules_at_most(start: Start) -> None:
    node = await guarded(start, acls_max=7)
    admin = await node.connect(ADMIN)
    full = ErrorCode.POLICY_VIOLATION
    asked = [creation(f"t{number}") for number in (0, 1, 0, 2, 3, 3)]
    assert await codes_of(admin, *asked) == [ErrorCode.NONE] * 4 + [full] * 2
    assert await codes_of(admin, creation("t0"), creation("t4")) == [ErrorCode.NONE, full]
    await admin.ask(DeleteAclsRequest(filters=[named("t0")]))
    assert await codes_of(admin, creation("t4")) == [ErrorCode.NONE]


async def test_many_rules_are_made_and_removed_in_several_commits(start: Start) -> None:
    node = await guarded(start)
    admin = await node.connect(ADMIN)
    count = 2 * RULES_PER_COMMIT + 1
    assert await codes_of(admin, *[creation(f"t{number}") for number in range(count)]) == [ErrorCode.NONE] * count
    assert len(await shown(admin)) == count
    await admin.ask(DeleteAclsRequest(filters=[named(host_filter="127.0.0.1")]))
    assert await shown(admin) == []


async def test_metadata_names_what_the_caller_may_see(start: Start) -> None:
    node = await guarded(start)
    seen, hidden = await node.create_topic("seen"), await node.create_topic("hidden")
    admin, caller = await node.connect(ADMIN), await node.connect()
    await codes_of(admin, creation("seen"))
    every = await caller.ask(MetadataRequest(topics=None))
    assert [topic.name for topic in every.topics] == ["seen"]
    asked = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (seen, hidden)]
    by_id = (await caller.ask(MetadataRequest(topics=asked))).topics
    assert [(topic.name, topic.error_code) for topic in by_id] == [
        ("seen", ErrorCode.NONE), (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]  # fmt: skip
    by_name = [MetadataRequestTopic(name=name) for name in ("hidden", "nowhere")]
    answer = await caller.ask(MetadataRequest(topics=by_name, allow_auto_topic_creation=True))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
