"""DescribeAcls (key 29), versions 1 to 3.

Behaviour: SECURITY_DISABLED, as Kafka answers without an authorizer. MirrorMaker and consoles ask every broker: they
take this for "there is no access control" and go on without, while that the API is missing is an error to them.
Left out: access control.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def serve(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_access(context, AclOperation.DESCRIBE)
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def refuse(context: Context, request: DescribeAclsRequest, code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)


API = Api(
    key=29, name="DescribeAcls", version_min=1, version_max=3,
    request=DescribeAclsRequest, response=DescribeAclsResponse, serve=serve, refuse=refuse,
)  # fmt: skip
