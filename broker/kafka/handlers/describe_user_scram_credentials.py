"""DescribeUserScramCredentials (key 50), versions 0 to 0.

Behaviour: there are no users, so all of them (null or none named) is an empty list. A user that is named is
RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE, once each.
Left out: SASL and its credentials.
"""

from collections import Counter

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def serve(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    check_access(context, AclOperation.DESCRIBE)
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=each(list(times.items()), lambda item: _answer(*item))
    )


def refuse(
    context: Context, request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)


def _answer(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code, text = ErrorCode.RESOURCE_NOT_FOUND, "this broker has no users"
    if count > 1:
        code, text = ErrorCode.DUPLICATE_RESOURCE, f"user {name} is named {count} times"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)


API = Api(
    key=50, name="DescribeUserScramCredentials", version_min=0, version_max=0,
    request=DescribeUserScramCredentialsRequest, response=DescribeUserScramCredentialsResponse,
    serve=serve, refuse=refuse,
)  # fmt: skip
