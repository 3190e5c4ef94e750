"""Forms of a new table as they are typed: its columns, its attributes, and the first keys of its tablets."""

from collections.abc import Iterable, Mapping, Sequence
from json import loads
from typing import Annotated, Any

from pqbroker.cli.options import assignments, json_or_text
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput

COLUMN_EXAMPLE = "id:int64:required"
KEY_EXAMPLE = "id:int64:ascending"
REQUIRED, KEY, ASCENDING = "required", "key", "ascending"
_WORDS = (REQUIRED, KEY, ASCENDING)
_FORM = "NAME:TYPE[:required][:ascending|:key]"
Columns = Annotated[
    list[str] | None,
    option(
        "--column",
        metavar=_FORM,
        help="Column of the schema; repeatable. `ascending`: rows are sorted and found by it; such columns stand first."
        " `key`: it is stored in the record's key, in a table that is a topic.",
    ),
]
Pivots = Annotated[
    list[str] | None,
    option(
        "--pivot",
        metavar="KEY",
        also=("--pivots", "--pivot-keys"),
        help="First key of a sorted table's tablet but the first, such as '[5]'; repeatable, in rising order.",
    ),
]


def columns_of(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the columns of a schema as HTTP takes them; WrongInput."""
    return [_column(text) for text in texts]


def key_names(schema: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the columns that rows are sorted by."""
    return [column["name"] for column in schema if column.get("sort_order") == ASCENDING]


def attributes_of(texts: list[str]) -> dict[str, Any]:
    """Return attributes by name, values as JSON or as text; WrongInput."""
    given = assignments("--attribute", texts, "max_data_ttl=86400000")
    return {name: json_or_text(value) for name, value in given.items()}


def parse_pivots(texts: Sequence[str], first: Sequence[Any] = ()) -> list[Any]:
    """Return the first key of every tablet, that of the first one too, which need not be typed; WrongInput."""
    pivots = [_pivot(text) for text in texts]
    return pivots if pivots[:1] == [[*first]] else [[*first], *pivots]


def check_tablets(body: Mapping[str, Any]) -> None:
    """WrongInput where the tablets of a new table are given as those of the other kind are."""
    is_sorted = bool(key_names(body["schema"]))
    if is_sorted and "tablet_count" in body:
        raise WrongInput("--tablets is given, and the table is sorted: give --pivot once for each tablet but the first")
    if not is_sorted and "pivot_keys" in body:
        raise WrongInput(f"--pivot is given, and no column is `{ASCENDING}`: give one, as in --column {KEY_EXAMPLE}")


def _column(text: str) -> dict[str, Any]:
    name, *words = text.split(":")
    if not name or not words or not {*words[1:]} <= {*_WORDS}:
        raise WrongInput(f"--column {text!r}: give {_FORM}, as in {COLUMN_EXAMPLE} or {KEY_EXAMPLE}")
    column = {"name": name, "type": words[0], "required": REQUIRED in words[1:]}
    if KEY in words[1:] and ASCENDING in words[1:]:
        raise WrongInput(f"--column {text!r}: give {ASCENDING} for a sorted table, or {KEY} for one that is a topic")
    if KEY in words[1:]:
        column["from"] = KEY
    if ASCENDING in words[1:]:
        column["sort_order"] = ASCENDING
    return column


def _pivot(text: str) -> list[Any]:
    try:
        pivot = loads(text)
    except ValueError:
        pivot = None
    if not isinstance(pivot, list):
        raise WrongInput(f"--pivot {text!r}: give the values of the first key columns as a JSON list, as in '[5]'")
    return pivot
