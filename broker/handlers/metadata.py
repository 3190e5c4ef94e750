"""Metadata (key 3), versions 0 to 13.

Behaviour: this node is the only broker, and the controller; its address is the configured one, or the local address
of the connection the request came on. Topics by name, or by id from version 12; no list (and in version 0 an empty
one) means all. An unknown topic is created when the request and auto.create.topics.enable allow it. Kafka answers
such a request with UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again; here the answer waits for the commit and
has the topic in it, which every client takes and saves it a round with its back-off. leader_epoch is the tablet's
generation. Who asks for authorized operations is told all of them: there is no access control.
Left out: racks.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.authorized_operations import ON_CLUSTER, ON_TOPIC
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.broker.topic_names import check_topic_name
from pqbroker.broker.topics import find_or_create_topic
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
    from pqbroker.pq.group import Group

TOPIC_IDS_IN_REQUEST_FROM_VERSION = 12
CREATION_FLAG_FROM_VERSION = 4


def serve(context: Context, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    node = context.node
    host, port = context.address
    node_id = node.settings.node_id
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)],
        cluster_id=node.cluster_id,
        controller_id=node_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ON_CLUSTER
    missing = _add_topics(context, request, response)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = ON_TOPIC
    return _create(context, response, missing) if missing else response


def refuse(context: Context, request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    response = MetadataResponse(error_code=code, cluster_id=context.node.cluster_id)
    response.topics = [_refused(context, asked, code) for asked in request.topics or ()]
    return response


def _add_topics(
    context: Context, request: MetadataRequest, response: MetadataResponse
) -> list[MetadataResponseTopic]:
    """What is known of the topics asked for; returned are those of them to be created."""
    node = context.node
    if request.topics is None or (context.version == 0 and not request.topics):
        groups = (node.groups.get(name) for name in node.groups.names())
        response.topics = [_describe(group, node.settings.node_id) for group in groups if group is not None]
        return []
    missing: list[MetadataResponseTopic] = []
    for asked in request.topics:
        answer = _find(context, asked)
        response.topics.append(answer)
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and _allows_creation(context, request):
            missing.append(answer)
        elif answer.error_code:
            node.metrics.count_error(ErrorCode(answer.error_code))
    return missing


def _find(context: Context, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    node = context.node
    by_id = asked.topic_id != NO_TOPIC_ID
    try:
        if by_id and context.version < TOPIC_IDS_IN_REQUEST_FROM_VERSION:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids are asked for from version 12")
        if not by_id and asked.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
        if not by_id:
            check_topic_name(asked.name or "")
        group = find_group(node.groups, asked.name, asked.topic_id, by_id=by_id)
        return _describe(group, node.settings.node_id)
    except KafkaError as error:
        return _refused(context, asked, error.code)


def _refused(context: Context, asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """A name of null, which versions 10 and 11 can ask for and not answer, is told as the empty text."""
    name = asked.name if context.version >= TOPIC_IDS_IN_REQUEST_FROM_VERSION else asked.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def _allows_creation(context: Context, request: MetadataRequest) -> bool:
    is_asked = context.version < CREATION_FLAG_FROM_VERSION or request.allow_auto_topic_creation
    return is_asked and context.node.settings.auto_create_topics_enable


async def _create(
    context: Context, response: MetadataResponse, missing: list[MetadataResponseTopic]
) -> MetadataResponse:
    """Create what is missing and put it into the response. One that somebody else just made is there next time."""
    for answer in missing:
        assert answer.name is not None
        try:
            group = await find_or_create_topic(context.node, answer.name)
        except REFUSED as error:
            answer.error_code, _ = translate(error)
            if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            context.node.metrics.count_error(ErrorCode(answer.error_code))
            continue
        created = _describe(group, context.node.settings.node_id)
        answer.error_code, answer.topic_id, answer.partitions = 0, created.topic_id, created.partitions
    return response


def _describe(group: "Group", node_id: int) -> MetadataResponseTopic:
    replicas = [node_id]
    return MetadataResponseTopic(
        name=group.topic.name,
        topic_id=group.topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=node_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
            for partition in group.partitions
        ],
    )


API = Api(
    key=3, name="Metadata", version_min=0, version_max=13,
    request=MetadataRequest, response=MetadataResponse, serve=serve, refuse=refuse,
)  # fmt: skip
