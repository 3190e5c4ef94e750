"""AlterUserScramCredentials (key 51), versions 0 to 0.

Behaviour: removes and sets SCRAM credentials, each durable when the answer comes, those of one user together (KIP-554).
A user begins with its first credential and ends with its last. Only verifiers are stored. A credential that is named
twice is DUPLICATE_RESOURCE, one that is unknown RESOURCE_NOT_FOUND, one with iterations outside 4096 to 16384
UNACCEPTABLE_CREDENTIAL; a user over the limit, or the last super user, is POLICY_VIOLATION.
Left out: nothing.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.logins.users import CredentialChange, Deletion, Upsertion, alter_users
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def serve(context: Context, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    changes: list[CredentialChange] = [Deletion(one.name, one.mechanism) for one in request.deletions]
    changes += [
        Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
        for one in request.upsertions
    ]  # fmt: skip
    results = await alter_users(context, changes)
    return AlterUserScramCredentialsResponse(results=each(list(results.items()), lambda result: _result(*result)))


def refuse(
    context: Context, request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=each(list(names), lambda name: _result(name, KafkaError(code, message)))
    )


def _result(name: str, refusal: KafkaError | None) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=name, error_message=None)
    return AlterUserScramCredentialsResult(user=name, error_code=refusal.code, error_message=refusal.message)


API = Api(
    request=AlterUserScramCredentialsRequest, response=AlterUserScramCredentialsResponse, serve=serve, refuse=refuse
)
