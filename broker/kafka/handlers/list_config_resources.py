"""ListConfigResources (key 74), versions 0 to 1.

Behaviour: every topic, this broker and its loggers, groups and client metrics subscriptions for which something is set,
or those of the types asked for; a type that Kafka does not know is UNSUPPORTED_VERSION. Version 0 asks for client
metrics alone.
Left out: groups that exist without configs of their own.
"""

from collections.abc import Iterator

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.configs.changes import NAMED_KINDS, Resource
from pqbroker.broker.services.configs.named_resources import names
from pqbroker.broker.services.topics.finding import every_topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def serve(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    check_access(context, AclOperation.DESCRIBE_CONFIGS)
    every: set[int] = set(Resource) if context.version >= 1 else {Resource.CLIENT_METRICS}
    asked = set(request.resource_types) or every
    unknown = sorted(asked - every)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource types {unknown} are unknown")
    resources = list(_resources(context, asked))
    return ListConfigResourcesResponse(
        config_resources=each(resources, lambda item: ConfigResource(resource_type=item[0], resource_name=item[1]))
    )


def _resources(context: Context, asked: set[int]) -> Iterator[tuple[Resource, str]]:
    if Resource.TOPIC in asked:
        for topic in every_topic(context, None):
            yield Resource.TOPIC, topic.record.name
    for resource in (Resource.BROKER, Resource.BROKER_LOGGER):
        if resource in asked:
            yield from ((resource, str(node_id)) for node_id in context.node.leaders.nodes)
    for resource, kind in NAMED_KINDS.items():
        if resource in asked:
            yield from ((resource, name) for name in names(kind, context.node.cell.current.scheme))


API = Api(request=ListConfigResourcesRequest, response=ListConfigResourcesResponse, serve=serve, answers_at_length=True)
