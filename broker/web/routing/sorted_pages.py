"""Pages of a list that is sorted by a figure: each begins behind the last entry of the page before.

Entries may change between two pages: an entry whose figure has risen or fallen past that place is listed twice, or not
at all. Nothing is kept for a caller.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Parameter
from pqbroker.broker.web.routing.schemas import SHOWN

_DIRECTIONS: Final = ("ascending", "descending")
ORDER = Parameter(
    "order", {"type": "string", "enum": list(_DIRECTIONS)},
    "Direction of `sort`: figures are listed from the greatest unless given, texts from the first.",
)  # fmt: skip


def sort_field(call: Call, fields: Mapping[str, str]) -> str | None:
    """Return the field of an entry that the caller sorts by; None: by name, from the first. Problem for another one."""
    order, direction = call.query.get("sort"), call.query.get("order")
    if direction not in (None, *_DIRECTIONS):
        raise bad_request(f"order is {direction[:SHOWN]!r}; give ascending or descending")
    if order is None and direction == _DIRECTIONS[1]:
        order = "name"
    if order is not None and order not in fields:
        raise bad_request(f"sort is {order[:SHOWN]!r}; give one of {', '.join(fields)}")
    return None if order is None else fields[order]


def sorted_page(call: Call, entries: list[dict[str, Any]], field: str) -> tuple[Sequence[dict[str, Any]], str | None]:
    """Return the entries of this page, sorted by a field and those alike by name, and where the next one begins."""
    is_text = bool(entries) and isinstance(entries[0][field], str)
    is_down = call.query.get("order", _DIRECTIONS[0 if is_text else 1]) == _DIRECTIONS[1]
    entries.sort(key=lambda entry: entry["name"])
    entries.sort(key=lambda entry: _value(entry, field), reverse=is_down)
    after: str | None = call.query.get("after")
    if after is not None:
        entries = _behind(entries, field, _place(after, is_text=is_text), is_down=is_down)
    page, has_more = call.page(entries)
    return page, f"{_value(page[-1], field)}:{page[-1]['name']}" if has_more else None


def _value(entry: Mapping[str, Any], field: str) -> Any:
    """Return the value that an entry sorts by; one that is unknown comes below zero."""
    value = entry[field]
    return -1 if value is None else value


def _behind(
    entries: list[dict[str, Any]], field: str, place: tuple[Any, str], *, is_down: bool
) -> list[dict[str, Any]]:
    value, name = place

    def is_behind(entry: Mapping[str, Any]) -> bool:
        own = _value(entry, field)
        if own == value:
            return str(entry["name"]) > name
        return bool(own < value if is_down else own > value)

    return [entry for entry in entries if is_behind(entry)]


def _place(after: str, *, is_text: bool) -> tuple[Any, str]:
    value, colon, name = after.partition(":")
    try:
        if not colon:
            raise ValueError
        return (value if is_text else float(value)), name
    except ValueError:
        raise bad_request(f"after is {after[:SHOWN]!r}; give `next` of the answer before") from None
