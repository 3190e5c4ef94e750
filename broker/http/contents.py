"""Keys, values and headers of records in JSON: text where the bytes are UTF-8, else {"base64": "…"}; null is null.

What is read can be produced again as it is.
"""

import binascii
from base64 import b64decode, b64encode
from typing import Any

from pqbroker.broker.http.problems import bad_request
from pqbroker.broker.http.schemas import OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.protocol.records import Record

CONTENT: Schema = {
    "type": ["string", "object", "null"],
    "properties": {"base64": TEXT},
    "required": ["base64"],
    "additionalProperties": False,
}
HEADERS = array_of(object_of({"key": TEXT, "value": CONTENT}))
TIMESTAMP: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
RECORD = object_of(
    {"offset": OFFSET, "timestamp": nullable(TIMESTAMP), "key": CONTENT, "value": CONTENT, "headers": HEADERS}
)


def show_record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        "key": show(record.key),
        "value": show(record.value),
        "headers": [{"key": name, "value": show(content)} for name, content in record.headers],
    }


def show(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def read(value: Any, where: str) -> bytes | None:
    """The bytes that a checked JSON value stands for; Problem when it stands for none."""
    if value is None:
        return None
    if isinstance(value, str):
        return read_text(value, where)
    try:
        return b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{where}.base64 is no base64: {error}") from None


def read_text(text: str, where: str) -> bytes:
    """UTF-8; Problem for half of a surrogate pair, which JSON can name and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_request(f'{where} is no text; give bytes as {{"base64": "…"}}') from None


def size_of(record: Record) -> int:
    """About how many bytes a record takes to show."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in record.headers)
