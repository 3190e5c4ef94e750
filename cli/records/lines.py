"""Conversion of a line to a record: its text, with a key before a separator, or JSON as `consume --json` prints it."""

import difflib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from pqbroker.cli.refusals import CommandError
from pqbroker.protocol.record_json import ContentError, read_content, read_text

NO_TIMESTAMP = -1
_FIELDS = ("key", "value", "headers", "partition", "timestamp", "topic", "offset")
_INT64_MAX = (1 << 63) - 1


class NewRecord(NamedTuple):
    """A record to write; a timestamp of None is the time of writing, a partition of None is chosen by key, or any."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp: int | None = None


class TextForm(NamedTuple):
    """The meaning of the parts of a line of text."""

    key_separator: bytes | None
    null: bytes | None
    headers: list[tuple[str, bytes | None]]


Parse = Callable[[bytes], NewRecord | None]
"""The record of a line without its end, None where it holds none; LineError."""


class LineError(CommandError):
    """A line that is no record; the text stands behind the line's number."""


def text_lines(form: TextForm) -> Parse:
    """Lines whose bytes are the records' values as they stand, but for a key."""

    def parse(line: bytes) -> NewRecord:
        key: bytes | None = None
        if form.key_separator is not None:
            key, separator, line = line.partition(form.key_separator)
            if not separator:
                raise LineError(f"has no {form.key_separator.decode()!r} after a key")
        return NewRecord(key, None if line == form.null else line, form.headers)

    return parse


def json_lines(headers: list[tuple[str, bytes | None]]) -> Parse:
    """Lines that are JSON objects, each with `headers` added; blank lines hold no record."""

    def parse(line: bytes) -> NewRecord | None:
        if not line.strip():
            return None
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LineError(f"is no JSON: {error}") from None
        try:
            record = _read_record(fields)
        except ContentError as error:
            raise LineError(f"is no record: {error}") from None
        return record._replace(headers=[*record.headers, *headers])

    return parse


def _read_record(fields: Any) -> NewRecord:
    """Topic and offset, where the record was read, do not count."""
    if not isinstance(fields, dict):
        raise ContentError('it is no object; give {"value": …}, or leave out --json to write lines as they are')
    for name in fields:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            fields_known = f"a record has {', '.join(_FIELDS)}; leave out --json to write lines as they are"
            hint = f"did you mean {near[0]}?" if near else fields_known
            raise ContentError(f"unknown field {name!r}; {hint}")
    if "value" not in fields:
        raise ContentError("it has no value; null is one too")
    stamped = "timestamp" in fields and fields["timestamp"] is None
    return NewRecord(
        read_content(fields.get("key"), "key"),
        read_content(fields["value"], "value"),
        [_read_header(each, f"headers[{number}]") for number, each in enumerate(_headers(fields))],
        _whole_number(fields, "partition"),
        NO_TIMESTAMP if stamped else _whole_number(fields, "timestamp"),
    )


def _headers(fields: dict[str, Any]) -> list[Any]:
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise ContentError('headers is no list; give [{"key": "name", "value": "text"}]')
    return headers


def _read_header(header: Any, where: str) -> tuple[str, bytes | None]:
    """Read a header as `consume` prints it, or a pair as it did in version 0.1."""
    if isinstance(header, list) and len(header) == 2:
        header = {"key": header[0], "value": header[1]}
    if not isinstance(header, dict) or header.keys() != {"key", "value"} or not isinstance(header["key"], str):
        raise ContentError(f'{where} is no header; give {{"key": "name", "value": "text"}}')
    read_text(header["key"], f"{where}.key")
    return header["key"], read_content(header["value"], f"{where}.value")


def _whole_number(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _INT64_MAX:
        raise ContentError(f"{name} is {number!r}; give a whole number from 0 on")
    return number
