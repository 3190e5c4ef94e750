"""CreateAcls (key 30), versions 1 to 3.

Behaviour: SECURITY_DISABLED for each rule, as in a Kafka without an authorizer.
Left out: access control.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def serve(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    check_access(context, AclOperation.ALTER)
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refuse(context: Context, request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=each(request.creations, lambda _: AclCreationResult(error_code=code, error_message=message))
    )


API = Api(
    key=30, name="CreateAcls", version_min=1, version_max=3,
    request=CreateAclsRequest, response=CreateAclsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
