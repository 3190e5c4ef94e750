"""Keys, values and headers of records over HTTP: their schemas, and their JSON form, refused as HTTP refuses."""

from typing import Any

from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.protocol.record_json import ContentError, read_content
from pqbroker.protocol.record_json import read_text as read_utf_8
from pqbroker.protocol.records import Record

CONTENT: Schema = {
    "type": ["string", "object", "null"],
    "properties": {"base64": TEXT, "json": {}},
    "additionalProperties": False,
}
"""An object has one of the two."""
HEADERS = array_of(object_of({"key": TEXT, "value": CONTENT}))
TIMESTAMP: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
DECODED: Schema = {
    "type": "object",
    "properties": {"schema": COUNT, "type": TEXT, "content": {}, "code": TEXT, "reason": TEXT},
    "additionalProperties": False,
}
"""A key or a value by the schema of a registry: schema, type and content; or a code and a reason, and it stays raw."""
RECORD = object_of(
    {
        "topic": TEXT, "partition": COUNT, "offset": OFFSET, "timestamp": nullable(TIMESTAMP), "key": CONTENT,
        "value": CONTENT, "headers": HEADERS,
    },
    {"decoded": object_of({}, {"key": DECODED, "value": DECODED})},
)  # fmt: skip
"""Schema of a record, as `record_json.show_record` makes it."""


def read(value: Any, where: str) -> bytes | None:
    """The bytes that a JSON value stands for; Problem when it stands for none."""
    try:
        return read_content(value, where)
    except ContentError as error:
        raise bad_request(str(error)) from None


def read_text(text: str, where: str) -> bytes:
    """UTF-8; Problem for half of a surrogate pair."""
    try:
        return read_utf_8(text, where)
    except ContentError as error:
        raise bad_request(str(error)) from None


def size_of(record: Record) -> int:
    """About how many bytes a record takes to show."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in record.headers)
