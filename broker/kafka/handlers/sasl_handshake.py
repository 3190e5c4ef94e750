"""SaslHandshake (key 17), versions 0 to 1.

Behaviour: on a listener with a login it chooses a mechanism, and begins a login, or another one on the connection of a
client that has logged in (KIP-368); a mechanism that is off is UNSUPPORTED_SASL_MECHANISM with those that are on, and
the connection closes. After version 0 the client sends its tokens without a header. On a plain listener, and within a
second of the login before, it is ILLEGAL_SASL_STATE.
Left out: GSSAPI.
"""

from collections.abc import Awaitable

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def serve(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    login = context.peer.login
    if login is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener is plain; set security.protocol=PLAINTEXT")
    chosen = login.choose(request.mechanism, context.version)
    return SaslHandshakeResponse(mechanisms=list(chosen)) if isinstance(chosen, tuple) else chosen


def refuse(context: Context, request: SaslHandshakeRequest, code: ErrorCode, message: str) -> SaslHandshakeResponse:
    login = context.peer.login
    mechanisms = list(login.mechanisms) if login and code is ErrorCode.UNSUPPORTED_SASL_MECHANISM else []
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


API = Api(request=SaslHandshakeRequest, response=SaslHandshakeResponse, serve=serve, refuse=refuse)
