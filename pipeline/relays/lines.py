"""A line of JSON as a record: the form that `consume --json` and `topic export` write, else the line as a value."""

import json
from base64 import b64decode
from typing import Any, NamedTuple


class LineRecord(NamedTuple):
    """A record of a line; None for what the line leaves out."""

    partition: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_line(line: str) -> LineRecord:
    """The record of a line."""
    try:
        fields = json.loads(line)
        if isinstance(fields, dict) and "value" in fields:
            return _record(fields)
    except (ValueError, TypeError, KeyError):
        pass
    return LineRecord(None, None, None, line.encode(errors="surrogatepass"), [])


def _record(fields: dict[str, Any]) -> LineRecord:
    headers = [(str(header["key"]), _content(header["value"])) for header in fields.get("headers") or ()]
    whole = (_whole(fields.get("partition")), _whole(fields.get("timestamp")))
    return LineRecord(*whole, _content(fields.get("key")), _content(fields["value"]), headers)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _content(value: Any) -> bytes | None:
    """Text, {"base64": …}, {"json": …} or null; ValueError, TypeError or KeyError for others."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if "json" in value:
        return json.dumps(value["json"], ensure_ascii=False, separators=(",", ":")).encode()
    return b64decode(value["base64"], validate=True)
