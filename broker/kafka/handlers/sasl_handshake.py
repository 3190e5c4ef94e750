"""SaslHandshake (key 17), versions 0 to 1.

Behaviour: ILLEGAL_SASL_STATE and no mechanisms, as Kafka answers on a plain listener. A Java client that is set to SASL
fails with it at once; where the API is missing, it waits for a minute and names no cause.
Left out: SASL. Every listener is plain.
"""

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def serve(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener is plain; set security.protocol=PLAINTEXT")


def refuse(context: Context, request: SaslHandshakeRequest, code: ErrorCode, message: str) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code)


API = Api(
    key=17, name="SaslHandshake", version_min=0, version_max=1,
    request=SaslHandshakeRequest, response=SaslHandshakeResponse, serve=serve, refuse=refuse,
)  # fmt: skip
