"""DeleteAcls (key 31), versions 1 to 3.

Behaviour: SECURITY_DISABLED for each filter, as in a Kafka without an authorizer.
Left out: access control.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def serve(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    check_access(context, AclOperation.ALTER)
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refuse(context: Context, request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=each(request.filters, lambda _: DeleteAclsFilterResult(error_code=code, error_message=message))
    )


API = Api(
    key=31, name="DeleteAcls", version_min=1, version_max=3,
    request=DeleteAclsRequest, response=DeleteAclsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
