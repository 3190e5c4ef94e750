"""The JSON form of what a record holds, over HTTP and on the command line: what is read can be written again as it is.

Bytes that are UTF-8 are text, others {"base64": "…"}; null is null. {"json": …} is a JSON document, and only read.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class ShownRecord(Protocol):
    """A record that was read; a timestamp below 0 means that it has none."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class ContentError(ValueError):
    """A value that stands for no bytes; the text names its place, the reason and the right form."""


def show_record(topic: str, partition: int, record: ShownRecord) -> dict[str, Any]:
    """The one form in which commands and HTTP give a record, and take it."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        "key": show_content(record.key),
        "value": show_content(record.value),
        "headers": show_headers(record.headers),
    }


def show_content(content: bytes | None) -> str | dict[str, str] | None:
    """A key, a value, or the value of a header."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def show_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, object]]:
    """Return the headers in their order; a name may stand there twice."""
    return [{"key": name, "value": show_content(content)} for name, content in headers]


def read_content(value: Any, where: str) -> bytes | None:
    """The bytes that a JSON value stands for; ContentError, which names `where`."""
    if value is None:
        return None
    if isinstance(value, str):
        return read_text(value, where)
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"base64", "json"}:
        raise ContentError(f'{where} is neither text nor null; give those, {{"base64": "…"}} or {{"json": …}}')
    if "json" in value:
        return read_text(json.dumps(value["json"], ensure_ascii=False, separators=(",", ":")), f"{where}.json")
    try:
        return b64decode(value["base64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ContentError(f"{where}.base64 is no base64: {error}") from None


def read_text(text: str, where: str) -> bytes:
    """UTF-8; ContentError for half of a surrogate pair, which JSON can name and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ContentError(f'{where} is no text; give bytes as {{"base64": "…"}}') from None
