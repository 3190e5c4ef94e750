"""Metadata (key 3), versions 0 to 13.

Behaviour: the brokers are all nodes, one unless `--nodes` says more; the first one is the controller. Their address is
the configured one, or the local address of the connection the request came on, each with its own port. Topics by name,
or by id from version 12; no list (and in version 0 an empty one) means all. An unknown topic is created when the
request and auto.create.topics.enable allow it. Kafka answers such a request with UNKNOWN_TOPIC_OR_PARTITION and lets
the client ask again; here the answer waits for the commit and has the topic in it, which every client takes and saves
it a round with its back-off. All that a request creates is one commit, hundreds of topics a few. leader_epoch is the
tablet's generation. A topic named twice is answered once, as in Kafka. A topic that would be one partition too many
(pqbroker.partitions.max) is INVALID_TOPIC_EXCEPTION, which clients take as final. A partition whose tablet, one of a
table, is not mounted, or not open at its node, is LEADER_NOT_AVAILABLE and has no leader. A node without the system
cell answers from its mirror, and has the first one answer where it does not know a topic that is named.
Left out: racks.
"""

import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.authorized_operations import authorized_operations
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.leaders import NO_NODE
from pqbroker.broker.services.topics.finding import check_creation, every_topic, find_topic, visible_topics
from pqbroker.broker.services.topics.partitions import NO_TOPIC_ID
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.broker.services.topics.topics import create_named
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from pqbroker.broker.services.leaders import Leaders
    from pqbroker.pq.serving.partition_server import PartitionServer
    from pqbroker.pq.serving.topic import Topic

seldom = SeldomLog(logging.getLogger(__name__))

_IN_METADATA = {
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.POLICY_VIOLATION: ErrorCode.INVALID_TOPIC_EXCEPTION,
}
"""Codes of a refused creation that clients do not expect in Metadata, and those on which they retry, or give up."""
TOPIC_IDS_IN_REQUEST_FROM_VERSION = 12
CREATION_FLAG_FROM_VERSION = 4


def serve(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    node = context.node
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)
            for node_id, host, port in context.nodes()
        ],
        cluster_id=node.cluster_id,
        controller_id=node.leaders.controller,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(context)
    if request.topics is None or (context.version == 0 and not request.topics):
        if node.access is not None:
            return _describe_visible(context, request, response)
        response.topics = each(every_topic(context, None), lambda topic: _describe(topic, context, request))
        return response
    asked = list({(named.name, named.topic_id): named for named in request.topics}.values())
    refusals: dict[str, ErrorCode] = {}
    response.topics = each(asked, lambda named: _find(context, request, named, refusals))
    creates = _allows_creation(context, request) and (context.is_long or any(_missing(context, asked)))
    return _create(context, response, asked, refusals) if creates else response


async def _describe_visible(
    context: Context, request: MetadataRequest, response: MetadataResponse
) -> MetadataResponse:
    visible = await visible_topics(context, AclOperation.DESCRIBE)
    response.topics = each(visible, lambda topic: _describe(topic, context, request))
    return response


def refuse(context: Context, request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    response = MetadataResponse(error_code=code, cluster_id=context.node.cluster_id)
    response.topics = each(request.topics or (), lambda asked: _refused(context, asked, code))
    return response


def _missing(context: Context, asked: Iterable[MetadataRequestTopic]) -> Iterator[str | None]:
    """Yield for each topic asked for its name if no topic has it and the caller may know that, else None."""
    topics = context.node.cell.current.topics
    for topic in asked:
        name = topic.name if topic.topic_id == NO_TOPIC_ID else None
        is_missing = bool(name) and topics.get(name or "") is None
        allowed = is_missing and is_allowed(context, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, name or ""))
        yield name if allowed else None


def _find(
    context: Context, request: MetadataRequest, asked: MetadataRequestTopic, refusals: Mapping[str, ErrorCode]
) -> MetadataResponseTopic:
    """`refusals`: topics that were to be created, and why they were not."""
    by_id = asked.topic_id != NO_TOPIC_ID
    try:
        if by_id and context.version < TOPIC_IDS_IN_REQUEST_FROM_VERSION:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids are asked for from version 12")
        if not by_id and asked.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
        if not by_id:
            check_topic_name(asked.name or "")
        topic = find_topic(context, AclOperation.DESCRIBE, asked.name, asked.topic_id if by_id else None)
    except KafkaError as error:
        if by_id and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # which ids exist is nobody's business
            return _refused(context, asked, ErrorCode.UNKNOWN_TOPIC_ID)
        answer = _refused(context, asked, error.code if by_id else refusals.get(asked.name or "", error.code))
        if request.include_topic_authorized_operations and answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            resource = AclResource(AclKind.TOPIC, asked.name or "")
            answer.topic_authorized_operations = authorized_operations(context, resource)
        return answer
    return _describe(topic, context, request)


def _refused(context: Context, asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """A name of null, which versions 10 and 11 can ask for and not answer, is sent as the empty text."""
    name = asked.name if context.version >= TOPIC_IDS_IN_REQUEST_FROM_VERSION else asked.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def _allows_creation(context: Context, request: MetadataRequest) -> bool:
    is_asked = context.version < CREATION_FLAG_FROM_VERSION or request.allow_auto_topic_creation
    return is_asked and context.node.settings.auto_create_topics_enable


async def _create(
    context: Context,
    response: MetadataResponse,
    asked: Iterable[MetadataRequestTopic],
    refusals: dict[str, ErrorCode],
) -> MetadataResponse:
    """Create what is missing, all of it together. One that another request just created is found next time."""
    refused: dict[str, Exception] = {}
    names: list[str] = []
    for name in _missing(context, asked):
        await context.breathe()
        if name is None:
            continue
        try:
            check_creation(context, name)
            names.append(name)
        except KafkaError as refusal:
            refused[name] = refusal
    refused |= await create_named(context.node, names)
    for name, error in refused.items():
        code, message = translate(error)
        refusals[name] = _IN_METADATA.get(code, code)
        if len(refusals) == 1:
            seldom.info("%d topics named by a client were not created, one is %s: %s", len(refused), name, message)
    return response


def _describe(topic: "Topic", context: Context, request: MetadataRequest) -> MetadataResponseTopic:
    leaders = context.node.leaders
    answer = MetadataResponseTopic(
        name=topic.record.name,
        topic_id=topic.record.topic_id,
        partitions=each(
            topic.partitions, lambda partition: _describe_partition(topic, partition, leaders)
        ),
    )
    if request.include_topic_authorized_operations:
        resource = AclResource(AclKind.TOPIC, topic.record.name)
        answer.topic_authorized_operations = authorized_operations(context, resource)
    return answer


def _describe_partition(
    topic: "Topic", partition: "PartitionServer", leaders: "Leaders"
) -> MetadataResponsePartition:
    leader, epoch = leaders.of_partition(topic, partition)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_NODE else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=leaders.replicas(topic, partition),
        isr_nodes=leaders.replicas(topic, partition),
    )


API = Api(request=MetadataRequest, response=MetadataResponse, serve=serve, refuse=refuse, answers_at_length=True)
