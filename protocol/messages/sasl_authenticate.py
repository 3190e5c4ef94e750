"""SaslAuthenticate (key 36): exchange the tokens of a SASL mechanism (KIP-152)."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import BYTES, ERROR_CODE, INT64, STRING, field, request, response


@request(36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(BYTES)


@response(36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, "1+")
