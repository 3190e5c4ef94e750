"""DescribeConfigs (key 32), versions 1 to 4.

Behaviour: every config of a topic (resource type 2) or of this broker (type 4, named by the node id), each with its
source, type, synonyms and documentation when asked for; no keys asked means all. A topic's synonyms are the node's
settings that stand for it, by their own names and values; the value of what is not set is null. Broker settings that
are read at start only are read-only; listeners, advertised.listeners and log.dirs are what they are in fact. Of all
brokers together (type 4, empty name) only what was set for them is shown.
A resource named twice is described twice, as in Kafka. The levels of this broker's loggers (type 8) last until it
ends. Groups (32) and client metrics subscriptions (16) are described whether anything is set for them or not; what is
set has no effect yet. A resource type that Kafka does not know is INVALID_REQUEST.
Left out: nothing.
"""

from collections.abc import Iterable

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.configs.changes import NAMED_KINDS, Resource, access_resource, unknown_kind
from pqbroker.broker.services.configs.location_configs import with_locations
from pqbroker.broker.services.configs.logger_levels import check_logger_node, logger_texts
from pqbroker.broker.services.configs.named_resources import texts_of
from pqbroker.broker.services.configs.node_settings import EVERY_NODE, check_node_name
from pqbroker.broker.services.configs.texts import ConfigText, broker_texts, every_broker_texts, topic_texts
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.conf.declare import Kind
from pqbroker.conf.dynamic import is_dynamic
from pqbroker.conf.topic import FIXED_AT_CREATION
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def serve(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=each(request.resources, lambda resource: _describe(context, request, resource))
    )


def refuse(
    context: Context, request: DescribeConfigsRequest, code: ErrorCode, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=each(request.resources, lambda resource: _refused(resource, code, message))
    )


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        texts = _texts(context, resource)
    except KafkaError as error:
        return _refused(resource, error.code, error.message)
    keys = set(resource.configuration_keys or ())
    wanted = [text for text in texts if not keys or not keys.isdisjoint(text.declaration.names)]
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=each(wanted, lambda text: _show(text, request, is_read_only=_is_read_only(resource, text))),
    )


def _texts(context: Context, resource: DescribeConfigsResource) -> Iterable[ConfigText]:
    name, layers = resource.resource_name, context.node.cell.current.settings.layers
    if resource.resource_type == Resource.TOPIC:
        check_topic_name(name)
        topic = find_topic(context, AclOperation.DESCRIBE_CONFIGS, name).record
        return topic_texts(topic.config, layers)
    if resource.resource_type not in tuple(Resource):
        raise unknown_kind(resource.resource_type)
    check_access(context, AclOperation.DESCRIBE_CONFIGS, access_resource(resource.resource_type, name))
    if resource.resource_type in NAMED_KINDS:
        kind = NAMED_KINDS[Resource(resource.resource_type)]
        return texts_of(kind, context.node.cell.current.scheme, name, layers)
    node_id = str(context.node.leaders.own)
    if resource.resource_type == Resource.BROKER_LOGGER:
        check_logger_node(name, node_id)
        return logger_texts()
    check_node_name(name, node_id)
    return every_broker_texts(layers) if name == EVERY_NODE else with_locations(context.node, broker_texts(layers))


def _is_read_only(resource: DescribeConfigsResource, text: ConfigText) -> bool:
    name = text.declaration.name
    if resource.resource_type == Resource.BROKER:
        return not is_dynamic(name)
    return resource.resource_type == Resource.TOPIC and name in FIXED_AT_CREATION


def _show(text: ConfigText, request: DescribeConfigsRequest, *, is_read_only: bool) -> DescribeConfigsResourceResult:
    declaration = text.declaration
    shown = DescribeConfigsResourceResult(
        name=declaration.name,
        value=text.value,
        read_only=is_read_only,
        config_source=text.source,
        is_sensitive=declaration.kind is Kind.PASSWORD,
        config_type=declaration.kind.value,
        documentation=text.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        shown.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.text, source=synonym.source)
            for synonym in text.synonyms
        ]
    return shown


def _refused(resource: DescribeConfigsResource, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


API = Api(
    request=DescribeConfigsRequest, response=DescribeConfigsResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
