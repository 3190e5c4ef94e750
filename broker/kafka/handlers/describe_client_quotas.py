"""DescribeClientQuotas (key 48), versions 0 to 1.

Behaviour: the entities that a filter matches, with their quotas. A filter is checked as Kafka checks it: an unknown
type of entity is UNSUPPORTED_VERSION, any other mistake INVALID_REQUEST. Needs DescribeConfigs on the cluster.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.quotas.changes import find_quotas
from pqbroker.broker.services.quotas.quota_rules import (
    QUOTA_ANY,
    QUOTA_CLIENT_ID,
    QUOTA_DEFAULT,
    QUOTA_EXACT,
    QUOTA_IP,
    QUOTA_USER,
    QuotaFilter,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def serve(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    check_access(context, AclOperation.DESCRIBE_CONFIGS)
    components: dict[str, tuple[int, str | None]] = {}
    for component in request.components:
        _check(component, components)
        components[component.entity_type] = (component.match_type, component.match)
    if QUOTA_IP in components and len(components) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter of ip cannot have user or client-id beside it")
    found = await find_quotas(context.node, QuotaFilter(components, request.strict))
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=each(
            found,
            lambda item: EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in item[0].parts()],
                values=[ValueData(key=key, value=value) for key, value in sorted(item[1].items())],
            ),
        ),
    )


def _check(component: ComponentData, seen: dict[str, tuple[int, str | None]]) -> None:
    entity_type = component.entity_type
    if not entity_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a component of the filter has no entity type")
    if entity_type in seen:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"entity type {entity_type} is named more than once")
    if component.match_type not in (QUOTA_EXACT, QUOTA_DEFAULT, QUOTA_ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"match type {component.match_type} is unknown")
    if (component.match_type == QUOTA_EXACT) != (component.match is not None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "match type 0 needs a name to match, the others take none")
    if entity_type not in (QUOTA_USER, QUOTA_CLIENT_ID, QUOTA_IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"entity type {entity_type} is unknown")


API = Api(
    request=DescribeClientQuotasRequest, response=DescribeClientQuotasResponse, serve=serve, answers_at_length=True
)
