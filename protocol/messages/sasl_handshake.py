"""SaslHandshake (key 17): choose a SASL mechanism."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, STRING, array, field, request, response


@request(17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = field(STRING)


@response(17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: ErrorCode = field(ERROR_CODE)
    mechanisms: list[str] = field(array(STRING))
