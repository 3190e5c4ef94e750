"""DescribeClientQuotas (key 48), versions 0 to 1.

Behaviour: no client and no user has a quota, so the list is empty, never null: Java cannot read the latter. A filter is
checked as Kafka checks it: an unknown type of entity is UNSUPPORTED_VERSION, any other mistake INVALID_REQUEST.
Left out: quotas of clients. `pq.write.speed.bytes` limits a topic's partitions.
"""

from typing import Final

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT, ANY = 0, 1, 2
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({"user", "client-id", IP})


def serve(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    check_access(context, AclOperation.DESCRIBE_CONFIGS)
    seen: set[str] = set()
    for component in request.components:
        _check(component, seen)
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter of ip cannot have user or client-id beside it")
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def refuse(
    context: Context, request: DescribeClientQuotasRequest, code: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _check(component: ComponentData, seen: set[str]) -> None:
    entity_type = component.entity_type
    if not entity_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a component of the filter has no entity type")
    if entity_type in seen:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"entity type {entity_type} is named more than once")
    if component.match_type not in (EXACT, DEFAULT, ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"match type {component.match_type} is unknown")
    if (component.match_type == EXACT) != (component.match is not None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "match type 0 needs a name to match, the others take none")
    if entity_type not in ENTITY_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"entity type {entity_type} is unknown")


API = Api(
    key=48, name="DescribeClientQuotas", version_min=0, version_max=1,
    request=DescribeClientQuotasRequest, response=DescribeClientQuotasResponse, serve=serve, refuse=refuse,
)  # fmt: skip
