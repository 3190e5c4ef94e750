"""Request and response headers. The header's version follows from the API's key and version (KIP-482, KIP-511)."""

import struct
from typing import Final, NamedTuple

from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.primitives import TAGGED_FIELDS_MAX, skip_tagged_fields
from pqbroker.protocol.schema import is_flexible

_API_VERSIONS_KEY: Final = 18
_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header with which every request starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request and the position of its body.

    The header of an API that is not declared is read as version 1; its body must not be read. ProtocolError when the
    frame is too short for its header.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(frame)
        position = _REQUEST.size + max(size, 0)
        if size < -1 or position > len(frame):
            raise ProtocolError("the client id of a request header runs past the end")
        client_id = None if size == -1 else str(frame[_REQUEST.size : position], "utf-8")
        if is_flexible(api_key, api_version):
            position, _ = skip_tagged_fields(frame, position, len(frame), TAGGED_FIELDS_MAX)
    except (IndexError, struct.error):
        raise ProtocolError("a request header ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError("the client id of a request header is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header of a response. ApiVersions has version 0 always: a client reads it before it knows what we speak."""
    encoded = _CORRELATION_ID.pack(correlation_id)
    if is_flexible(api_key, api_version) and api_key != _API_VERSIONS_KEY:
        return encoded + b"\0"
    return encoded
