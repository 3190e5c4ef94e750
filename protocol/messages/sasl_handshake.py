"""SaslHandshake (key 17): choose a SASL mechanism."""

from pqbroker.protocol.schema import INT16, STRING, array, field, request, response


@request(17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = field(STRING)


@response(17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
