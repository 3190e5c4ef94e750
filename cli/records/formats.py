"""Formats of `consume` for a record: a part of it, JSON, or a template. Bytes come out as they are, never coloured."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from pqbroker.cli.output import display_width
from pqbroker.cli.refusals import WrongInput
from pqbroker.protocol.record_json import ShownRecord, show_record


class ReadRecord(ShownRecord, Protocol):
    """A record as aiokafka returns it; a timestamp of -1 means that it has none."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


Form = Callable[[ReadRecord], bytes]
"""A record's line, without its end."""


def parse_form(text: str) -> Form:
    """A name of a form, or a template with {fields}; WrongInput."""
    if text in _NAMED:
        return _NAMED[text]
    if not _FIELD.search(text):
        raise WrongInput(
            f"--format {text!r} is not one of {', '.join(_NAMED)}, nor a template with fields "
            f"({', '.join(f'{{{name}}}' for name in _FIELDS)}; {{key:>10}} is 10 wide, aligned right)"
        )
    return _template(text)


def _template(text: str) -> Form:
    pieces: list[Form] = []
    position = 0
    for found in _FIELD.finditer(text):
        if found[1] not in _FIELDS:
            fields = ", ".join(f"{{{name}}}" for name in _FIELDS)
            raise WrongInput(f"--format has no field {found[0]}; it has {fields}")
        field = _FIELDS[found[1]]
        pieces += [_literal(text[position : found.start()]), _padded(field, found) if found["width"] else field]
        position = found.end()
    pieces.append(_literal(text[position:]))
    return lambda record: b"".join(piece(record) for piece in pieces)


def _padded(field: Form, found: re.Match[str]) -> Form:
    """The field, filled up to the width that a template gives, in characters; a longer one stays whole. WrongInput."""
    width = int(found["width"])
    if width > _WIDTH_MAX:
        raise WrongInput(f"--format has the width {width} in {found[0]}; the most allowed is {_WIDTH_MAX}")
    is_filled_with_zeros = found["width"].startswith("0")
    fill = found["fill"] or ("0" if is_filled_with_zeros else " ")
    align = found["align"] or (">" if is_filled_with_zeros or found[1] in _NUMBERS else "<")

    def padded(record: ReadRecord) -> bytes:
        data = field(record)
        lacking = max(0, width - display_width(data.decode(errors="replace")))
        left = {"<": 0, ">": lacking, "^": lacking // 2}[align]
        return fill.encode() * left + data + fill.encode() * (lacking - left)

    return padded


def _literal(text: str) -> Form:
    written = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), text).encode(errors="surrogateescape")
    return lambda record: written


def _json(record: ReadRecord) -> bytes:
    return json.dumps(show_record(record.topic, record.partition, record), ensure_ascii=False).encode()


def _time(record: ReadRecord) -> bytes:
    if record.timestamp < 0:
        return b""
    seconds, milliseconds = divmod(record.timestamp, 1000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z".encode()
    except (OverflowError, ValueError, OSError):
        return str(record.timestamp).encode()


def _headers(record: ReadRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_FIELD = re.compile(r"\{(\w+)(?::(?:(?P<fill>[^{}])(?=[<>^]))?(?P<align>[<>^])?(?P<width>[0-9]{1,9}))?\}")
_WIDTH_MAX = 1000
_NUMBERS = frozenset(("partition", "offset", "timestamp"))
_ESCAPE = re.compile(r"\\([nrt0\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_FIELDS: dict[str, Form] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp,
    "time": _time,
    "key": lambda record: record.key or b"",
    "value": lambda record: record.value or b"",
    "headers": _headers,
}
_NAMED: dict[str, Form] = {
    "value": _FIELDS["value"],
    "key": _FIELDS["key"],
    "key-value": lambda record: (record.key or b"") + b"\t" + (record.value or b""),
    "json": _json,
}
