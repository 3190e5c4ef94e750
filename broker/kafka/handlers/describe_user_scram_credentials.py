"""DescribeUserScramCredentials (key 50), versions 0 to 0.

Behaviour: mechanisms and iterations of the users that are named, or of all (KIP-554). A user that is unknown is
RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE, once each.
Left out: nothing.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.logins.scram import SCRAM_MECHANISMS
from pqbroker.broker.services.logins.users import describe_users
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from pqbroker.storage.tablets.scheme_users import UserRecord


def serve(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    names = None if request.users is None else [user.name for user in request.users]
    results = each(describe_users(context, names), lambda found: _result(*found))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(name: str, found: UserRecord | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(user=name, error_code=found.code, error_message=found.message)
    infos = [
        CredentialInfo(mechanism=SCRAM_MECHANISMS[mechanism].number, iterations=credential.iterations)
        for mechanism, credential in sorted(found.credentials.items()) if mechanism in SCRAM_MECHANISMS
    ]  # fmt: skip
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)


API = Api(
    request=DescribeUserScramCredentialsRequest, response=DescribeUserScramCredentialsResponse, serve=serve,
    answers_at_length=True,
)  # fmt: skip
