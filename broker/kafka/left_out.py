"""APIs of what this broker leaves out: one table says how each is answered.

An answer tells a client at once what is missing, in the words that Kafka has for a feature that is off or unused.
Where the API itself is missing, many clients wait for long and name no cause.

DescribeAcls (key 29), versions 1 to 3.
Behaviour: SECURITY_DISABLED, as Kafka answers without an authorizer. MirrorMaker and consoles ask every broker, and
continue without access control.
Left out: access control.

CreateAcls (key 30), versions 1 to 3.
Behaviour: SECURITY_DISABLED for each rule, as in a Kafka without an authorizer.
Left out: access control.

DeleteAcls (key 31), versions 1 to 3.
Behaviour: SECURITY_DISABLED for each filter, as in a Kafka without an authorizer.
Left out: access control.

SaslHandshake (key 17), versions 0 to 1.
Behaviour: ILLEGAL_SASL_STATE and no mechanisms, as Kafka answers on a plain listener. A Java client that is set to SASL
fails with it at once; where the API is missing, it waits for a minute and names no cause.
Left out: SASL. Every listener is plain.

ConsumerGroupHeartbeat (key 68), versions 0 to 1.
Behaviour: UNSUPPORTED_VERSION, as Kafka answers where `group.coordinator.rebalance.protocols` leaves the protocol out.
Clients take it as final and name `group.protocol`; where the API is missing, a librdkafka consumer with
`group.protocol=consumer` waits for ever without an error.
Left out: consumer groups of KIP-848.

ShareGroupHeartbeat (key 76), versions 1 to 1.
Behaviour: UNSUPPORTED_VERSION, as Kafka answers where the feature `share.version` is off. A share consumer takes it as
final; where the API is missing, it waits for ever without an error.
Left out: share groups (KIP-932).

ListPartitionReassignments (key 46), versions 0 to 0.
Behaviour: an empty list, since nothing is ever being moved.
Left out: replicas and moves between nodes.

DescribeUserScramCredentials (key 50), versions 0 to 0.
Behaviour: there are no users, so all of them (null or none named) is an empty list. A user that is named is
RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE, once each.
Left out: SASL and its credentials.

DescribeClientQuotas (key 48), versions 0 to 1.
Behaviour: no client and no user has a quota, so the list is empty, never null: Java cannot read the latter. A filter is
checked as Kafka checks it: an unknown type of entity is UNSUPPORTED_VERSION, any other mistake INVALID_REQUEST.
Left out: quotas of clients. `pq.write.speed.bytes` limits a topic's partitions.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pqbroker.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pqbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from pqbroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from pqbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pqbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

EXACT, DEFAULT, ANY = 0, 1, 2
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({"user", "client-id", IP})


def _left_out(
    messages: tuple[type, type],
    answer: Callable[[Any], Any],
    operation: AclOperation | None = None,
    refuse: Callable[[Context, Any, ErrorCode, str], Any] | None = None,
) -> Api:
    """Declare an API that answers a request, to those who may do `operation`, by what it says alone."""

    def serve(context: Context, request: Any) -> Any:
        if operation is not None:
            check_access(context, operation)
        return answer(request)

    return Api(request=messages[0], response=messages[1], serve=serve, refuse=refuse)


def _always(code: ErrorCode, text: str) -> Callable[[object], None]:
    """Return an answer that is one error, whatever the request says."""

    def answer(_: object) -> None:
        raise KafkaError(code, text)

    return answer


def _refuse_creations(_: Context, request: CreateAclsRequest, code: ErrorCode, text: str) -> CreateAclsResponse:
    results = each(request.creations, lambda _: AclCreationResult(error_code=code, error_message=text))
    return CreateAclsResponse(results=results)


def _refuse_filters(_: Context, request: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    results = each(request.filters, lambda _: DeleteAclsFilterResult(error_code=code, error_message=text))
    return DeleteAclsResponse(filter_results=results)


def _no_users(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    times = Counter(user.name for user in request.users or ())
    results = each(list(times.items()), lambda item: _no_user(*item))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _no_user(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code, text = ErrorCode.RESOURCE_NOT_FOUND, "this broker has no users"
    if count > 1:
        code, text = ErrorCode.DUPLICATE_RESOURCE, f"user {name} is named {count} times"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)


def _no_quotas(request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    seen: set[str] = set()
    for component in request.components:
        _check(component, seen)
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter of ip cannot have user or client-id beside it")
    return DescribeClientQuotasResponse(error_message=None, entries=[])


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


APIS_LEFT_OUT: Final[tuple[Api, ...]] = (
    _left_out(
        (DescribeAclsRequest, DescribeAclsResponse),
        _always(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"), AclOperation.DESCRIBE,
    ),
    _left_out(
        (CreateAclsRequest, CreateAclsResponse),
        _always(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."), AclOperation.ALTER, _refuse_creations,
    ),
    _left_out(
        (DeleteAclsRequest, DeleteAclsResponse),
        _always(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."), AclOperation.ALTER, _refuse_filters,
    ),
    _left_out(
        (SaslHandshakeRequest, SaslHandshakeResponse),
        _always(ErrorCode.ILLEGAL_SASL_STATE, "this listener is plain; set security.protocol=PLAINTEXT"),
    ),
    _left_out(
        (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
        _always(
            ErrorCode.UNSUPPORTED_VERSION,
            "this broker does not serve the consumer group protocol of KIP-848; set group.protocol=classic",
        ),
    ),
    _left_out(
        (ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
        _always(
            ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve share groups; consume with a consumer group"
        ),
    ),
    _left_out(
        (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        lambda _: ListPartitionReassignmentsResponse(error_message=None), AclOperation.DESCRIBE,
    ),
    _left_out(
        (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse), _no_users, AclOperation.DESCRIBE
    ),
    _left_out(
        (DescribeClientQuotasRequest, DescribeClientQuotasResponse), _no_quotas, AclOperation.DESCRIBE_CONFIGS
    ),
)  # fmt: skip
