"""Every API asks one place whether the caller may do what it does, and answers with the code of what was refused."""

from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, CLUSTER, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.kafka.apis.context import Context, Peer
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.served import APIS
from pqbroker.broker.services.coordination.consumer_groups import visible_groups
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.conf.addresses import Address
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages import init_producer_id, metadata
from tests.broker.access_cases import CASES, GROUP, TOPIC, TRANSACTIONAL_ID, Case, created
from tests.broker.conftest import Node, until
from tests.broker.wire import BY_REQUEST, error_codes, read_response, request_frame

Op = AclOperation
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {"ApiVersions", "DescribeCluster"}
"""What Kafka answers everybody."""
FILTERED = {"ListGroups", "ListTransactions"}
"""APIs whose answers leave out whatever the caller may not see."""
REFUSED_TO_ALL = {"SaslAuthenticate", "SaslHandshake", "ShareGroupHeartbeat"}
"""What is not served, whoever asks; Kafka says so before it looks at who it is."""


class Refusal:
    """Allows everything but one operation on one resource; without one, nothing."""

    revision = 0

    def __init__(
        self, operation: AclOperation | None = None, resource: AclResource = TOPIC, also: AclOperation | None = None
    ) -> None:
        self._refused = (operation, resource)
        self._also = also
        self.asked: set[Principal] = set()

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        assert host == "127.0.0.1"
        self.asked.add(principal)
        if operation is self._also:
            return False
        return self._refused[0] is not None and (operation, resource) != self._refused

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        return self._refused[0] is not None and (operation, kind) != (self._refused[0], self._refused[1].kind)


def guarded_by(node: Node, access: Refusal | None) -> Context:
    guarded = replace(node.server.node, access=access)
    return Context(guarded, Peer(guarded, Address("127.0.0.1", 9092), "127.0.0.1"), 9, None)


async def answer_of(node: Node, access: Refusal | None, request: Any, version: int | None = None) -> Any:
    """What the node's dispatcher answers under such an access check."""
    context, api = guarded_by(node, access), BY_REQUEST[type(request)]
    version = api.version_max if version is None else version
    frame = memoryview(request_frame(request, version))[4:]
    exchange = Dispatcher(context.node, APIS).begin(context.peer, frame)
    await until(lambda: exchange.is_done)
    output: Any = exchange.output
    return read_response(api, version, b"".join(map(bytes, output))[4:])[1]


def codes_of(answer: Any) -> set[ErrorCode]:
    """Every code in an answer, that of configs which are left out too."""
    left_out = {getattr(topic, "topic_config_error_code", ErrorCode.NONE) for topic in getattr(answer, "topics", ())}
    return {*error_codes(answer), *left_out} - {ErrorCode.NONE}


def test_every_api_is_checked_or_named() -> None:
    named = OPEN | FILTERED | REFUSED_TO_ALL
    assert {case.api for case in CASES} | {"InitProducerId"} | named == {api.name for api in APIS}
    assert {case.api for case in CASES} & named == set()


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_is_refused_has_the_code_of_its_resource(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    if case.api == "CreateTopics":
        request.topics[0].name = "u"
        case = replace(case, resource=AclResource(AclKind.TOPIC, "u"))
    if case.api == "OffsetDelete":
        await has_offsets(node, "g")
    access = Refusal(case.operation, case.resource, case.or_else)
    expected = CODES.get(case.resource, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert codes_of(await answer_of(node, access, request, case.version)) == {expected}
    assert access.asked == {ANONYMOUS}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_who_may_do_nothing_is_refused_everything(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    codes = codes_of(await answer_of(node, Refusal(), request, case.version))
    assert codes
    assert codes <= set(CODES.values())


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_another_operation_is_refused_for_is_allowed(node: Node, case: Case) -> None:
    request = case.make(await node.create_topic("t"))
    another = Op.CREATE if case.operation is Op.CLUSTER_ACTION else Op.CLUSTER_ACTION
    access = Refusal(another, case.resource)
    assert codes_of(await answer_of(node, access, request, case.version)).isdisjoint(CODES.values())


async def has_offsets(node: Node, *groups: str) -> None:
    for group in groups:
        outcomes = await node.server.node.cell.current.topics.offsets.commit(group, {("t", 0): ConsumerOffset(0)})
        assert outcomes == {("t", 0): None}


async def test_a_name_that_no_topic_has_is_refused_alike(node: Node) -> None:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    assert codes_of(await answer_of(node, Refusal(Op.DESCRIBE), request, 9)) == {CODES[TOPIC]}
    assert node.server.node.cell.current.topics.get("t") is None


@pytest.mark.parametrize("api", ["CreateTopics", "Metadata"])
@pytest.mark.parametrize("resource", [TOPIC, CLUSTER])
async def test_a_topic_is_created_by_a_right_on_the_cluster_or_on_its_name(
    node: Node, api: str, resource: AclResource
) -> None:
    request: Any = created(b"") if api == "CreateTopics" else metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )  # fmt: skip
    assert codes_of(await answer_of(node, Refusal(Op.CREATE, resource), request)) == set()


async def test_a_topic_is_not_created_without_a_right_on_either(node: Node) -> None:
    class NoCreation(Refusal):
        def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
            return operation is not Op.CREATE

    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    assert codes_of(await answer_of(node, NoCreation(), request)) == {CODES[TOPIC]}
    assert codes_of(await answer_of(node, NoCreation(), created(b""))) == {CODES[TOPIC]}


async def test_a_producer_id_takes_a_right_on_the_cluster_or_on_some_topic(node: Node) -> None:
    class NoWriting(Refusal):
        def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
            return False

    request = init_producer_id.InitProducerIdRequest(transactional_id=None)
    assert codes_of(await answer_of(node, NoWriting(Op.IDEMPOTENT_WRITE, CLUSTER), request)) == {CODES[CLUSTER]}
    assert codes_of(await answer_of(node, NoWriting(Op.WRITE), request)) == set()
    assert codes_of(await answer_of(node, Refusal(Op.IDEMPOTENT_WRITE, CLUSTER), request)) == set()


async def test_a_list_of_topics_has_those_alone_that_the_caller_may_see(node: Node) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    context = guarded_by(node, Refusal(Op.DESCRIBE))
    assert [topic.record.name for topic in every_topic(context, Op.DESCRIBE)] == ["u"]
    assert [topic.record.name for topic in every_topic(context, Op.READ)] == ["t", "u"]
    assert [topic.record.name for topic in every_topic(context, Op.READ, ["u", "no"])] == ["u"]


async def test_a_list_of_groups_has_those_alone_that_the_caller_may_see(node: Node) -> None:
    class OnlyOne(Refusal):
        def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
            return resource == GROUP

    await node.create_topic("t")
    await has_offsets(node, "f", "g")
    assert await seen_groups(guarded_by(node, OnlyOne())) == ["g"]
    assert await seen_groups(guarded_by(node, Refusal(Op.DESCRIBE, GROUP))) == ["f", "g"]


async def seen_groups(context: Context) -> list[str]:
    return [group.group_id for group in await context.node.turns.finish(visible_groups(context))]


async def test_authorized_operations_are_those_that_are_allowed(node: Node) -> None:
    await node.create_topic("t")
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
    )
    every = (await answer_of(node, None, request, 9)).topics[0].topic_authorized_operations
    some = (await answer_of(node, Refusal(Op.WRITE), request, 9)).topics[0].topic_authorized_operations
    assert every - some == 1 << Op.WRITE


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
