"""The words of a request: its bytes up to what differs from one to the next. A lane compares them; see `Lane`."""

import struct
from dataclasses import dataclass
from typing import Final

from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.headers import decode_request_header
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import is_flexible

WORDS_BYTES_MAX: Final = 1 << 10
"""A request that says more than this has no lane: each connection keeps the words of its lanes."""
BODY_AT: Final = 8
"""Position behind the API's key and version, and the correlation id, which differs."""
TOPIC_IDS_FROM_VERSION: Final = 13
"""First version of Produce and of Fetch that names topics by id."""

_STRING = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Words:
    """`api`: key and version; `start`: from `BODY_AT` up to where `end` says."""

    api: bytes
    start: bytes
    end: int
    is_flexible: bool


def find_words(frame: memoryview, body: bytes) -> Words | None:
    """Return the words of a request whose body begins with `body`; None if it does not, or if they are too long."""
    header, position = decode_request_header(frame)
    end = position + len(body)
    if end - BODY_AT > WORDS_BYTES_MAX or frame[position:end] != body:
        return None
    flexible = is_flexible(header.api_key, header.api_version)
    return Words(bytes(frame[:4]), bytes(frame[BODY_AT:end]), end, flexible)


def topic_words(context: Context, name: str, topic_id: bytes, *, flexible: bool) -> bytes:
    """Return the bytes that name a topic in a request or an answer."""
    if context.version >= TOPIC_IDS_FROM_VERSION:
        return topic_id
    encoded = name.encode()
    return (unsigned_varint(len(encoded) + 1) if flexible else _STRING.pack(len(encoded))) + encoded
