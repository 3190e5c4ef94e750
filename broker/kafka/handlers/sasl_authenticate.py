"""SaslAuthenticate (key 36), versions 0 to 2.

Behaviour: carries the tokens of the mechanism that SaslHandshake chose; with the last one the client has logged in, for
session_lifetime_ms (`connections.max.reauth.ms`; 0: for as long as it is connected). What proves nothing is
SASL_AUTHENTICATION_FAILED, after `connection.failed.authentication.delay.ms`, and the connection closes. Where a client
has logged in already, and on a plain listener, it is ILLEGAL_SASL_STATE.
A token of OAUTHBEARER that is refused is answered as RFC 7628 has it, {"status":"invalid_token"} without an error, and
the client's answer to that with SASL_AUTHENTICATION_FAILED; one that is taken ends the session at its time.
Left out: GSSAPI, delegation tokens.
"""

from collections.abc import Awaitable

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.login import Login
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def serve(
    context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    login = context.peer.login
    if login is None or not login.is_under_way:
        text = "SaslAuthenticate request received after successful authentication"
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
    answered = login.answer(request.auth_bytes)
    return _response(login, answered) if isinstance(answered, bytes) else _awaited(login, answered)


async def _awaited(login: Login, answering: Awaitable[bytes]) -> SaslAuthenticateResponse:
    return _response(login, await answering)


def _response(login: Login, token: bytes) -> SaslAuthenticateResponse:
    lifetime_ms = 0 if login.is_under_way else login.lifetime_ms
    return SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms)


API = Api(request=SaslAuthenticateRequest, response=SaslAuthenticateResponse, serve=serve)
