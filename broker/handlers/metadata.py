"""Metadata (key 3), versions 0 to 13.

Behaviour: this node is the only broker, and the controller; its address is the configured one, or the local address
of the connection the request came on. Topics by name, or by id from version 12; no list (and in version 0 an empty
one) means all. An unknown topic is created when the request and auto.create.topics.enable allow it. Kafka answers
such a request with UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again; here the answer waits for the commit and
has the topic in it, which every client takes and saves it a round with its back-off. leader_epoch is the tablet's
generation. A topic named twice is answered once, as in Kafka. Who asks for authorized operations is told all of them:
there is no access control. A topic that would be one partition too many (pqbroker.partitions.max) is
INVALID_TOPIC_EXCEPTION, which clients take as final.
Left out: racks.
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING

from pqbroker.broker.apis import Api
from pqbroker.broker.authorized_operations import ON_CLUSTER, ON_TOPIC
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group
from pqbroker.broker.refusals import REFUSED, translate
from pqbroker.broker.seldom_log import SeldomLog
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
    host, port = context.address
    node_id = node.settings.node_id
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)],
        cluster_id=node.cluster_id,
        controller_id=node_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ON_CLUSTER
    if request.topics is None or (context.version == 0 and not request.topics):
        every = [group for name in node.groups.names() if (group := node.groups.get(name)) is not None]
        response.topics = each(every, lambda group: _describe(group, context, request))
        return response
    asked = list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())
    refusals: dict[str, ErrorCode] = {}
    response.topics = each(asked, lambda topic: _find(context, request, topic, refusals))
    missing = _missing(context, asked) if _allows_creation(context, request) else []
    return _create(context, response, missing, refusals) if missing else response


def refuse(context: Context, request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    response = MetadataResponse(error_code=code, cluster_id=context.node.cluster_id)
    response.topics = each(request.topics or (), lambda asked: _refused(context, asked, code))
    return response


def _missing(context: Context, asked: Iterable[MetadataRequestTopic]) -> list[str]:
    """Names among those asked for that no topic has."""
    known = context.node.groups
    names = (topic.name for topic in asked if topic.topic_id == NO_TOPIC_ID)
    return [name for name in names if name and known.get(name) is None]


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
        return _describe(find_group(context.node.groups, asked.name, asked.topic_id, by_id=by_id), context, request)
    except KafkaError as error:
        code = error.code if by_id else refusals.get(asked.name or "", error.code)
        context.node.metrics.count_error(code)
        return _refused(context, asked, code)


def _refused(context: Context, asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """A name of null, which versions 10 and 11 can ask for and not answer, is told as the empty text."""
    name = asked.name if context.version >= TOPIC_IDS_IN_REQUEST_FROM_VERSION else asked.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)


def _allows_creation(context: Context, request: MetadataRequest) -> bool:
    is_asked = context.version < CREATION_FLAG_FROM_VERSION or request.allow_auto_topic_creation
    return is_asked and context.node.settings.auto_create_topics_enable


async def _create(
    context: Context, response: MetadataResponse, missing: list[str], refusals: dict[str, ErrorCode]
) -> MetadataResponse:
    """Create what is missing. One that somebody else just made is there next time."""
    reason = ""
    for name in missing:
        await context.breathe()
        try:
            await find_or_create_topic(context.node, name)
        except REFUSED as error:
            code, message = translate(error)
            refusals[name] = _IN_METADATA.get(code, code)
            reason = reason or f"{name}: {message}"
    if refusals:
        seldom.info("%d topics that a client named were not created, the first of them %s", len(refusals), reason)
    return response


def _describe(group: "Group", context: Context, request: MetadataRequest) -> MetadataResponseTopic:
    node_id = context.node.settings.node_id
    replicas = [node_id]
    topic = MetadataResponseTopic(
        name=group.topic.name,
        topic_id=group.topic.topic_id,
        partitions=each(
            group.partitions,
            lambda partition: MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=node_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=replicas,
            ),
        ),
    )
    if request.include_topic_authorized_operations:
        topic.topic_authorized_operations = ON_TOPIC
    return topic


API = Api(
    key=3, name="Metadata", version_min=0, version_max=13,
    request=MetadataRequest, response=MetadataResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
