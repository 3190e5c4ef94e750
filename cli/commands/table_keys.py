"""`pqbroker table lookup` and `table delete-rows`: rows of sorted tables by their keys."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from json import dumps
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_rows import ROWS_PER_REQUEST, json_object, json_objects, send_rows, shown_cell
from pqbroker.cli.options import Http, InTransaction, Json, Table, read_at, table_path
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, BrokerRefusal, Web

TIMESTAMP_MAX = (1 << 64) - 1
MISSING_SHOWN = 10
_TOO_LARGE = "LOOKUP_TOO_LARGE"
_TRUTHS = {"true": True, "false": False}
_NUMBERS = frozenset({f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"double", "timestamp"})
GivenKeys = Annotated[
    list[str] | None,
    Argument(
        metavar="KEY",
        help="Keys of rows: COLUMN=VALUE with commas between, or a JSON object; without one: lines of standard input.",
    ),
]


def add_lookup(app: Family) -> None:
    """Add the command to the family `table`."""

    @declare(app, "lookup", "pqbroker table lookup shop.stock shop=north,id=5")
    def lookup(
        table: Table,
        key: GivenKeys = None,
        at: Annotated[
            int | None,
            option(
                "--at",
                metavar="TIMESTAMP",
                least=0,
                most=TIMESTAMP_MAX,
                also=("--timestamp",),
                help="Timestamp of the commit to read at, as `table insert` prints it; without it: now.",
            ),
        ] = None,
        prefix: Annotated[
            str | None,
            option(
                "--prefix", metavar="KEY",
                help="First columns of a key, written as KEY is: print all rows whose keys begin so, in their order.",
            ),
        ] = None,
        transaction: InTransaction = None,
        column: Annotated[
            list[str] | None,
            option(
                "--column", metavar="NAME", also=("--columns", "--column-names"), help="Column to print; repeatable."
            ),
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Print the rows of a sorted table that have these keys, as they are or were; a thousand keys in a request."""
        if prefix is not None and key:
            raise WrongInput("give keys, or --prefix alone")
        asked = read_at(at, transaction)
        asked |= {"columns": column} if column else {}
        path = table_path(table)
        with Web(http) as web:
            if prefix is None:
                rows, missing = _look_up_all(web, path, key, asked)
            else:
                (begin,) = _keys(web, path, [prefix], is_whole=False)
                rows, missing = web.post(f"{path}/lookup", {"prefix": begin, **asked}, "rows")["rows"], []
        if not rows and not missing and not json:
            say("no key was given" if prefix is None else f"no row of {table} has such a key")
        _show(rows, missing, json=json)


def add_delete_rows(app: Family) -> None:
    """Add the command to the family `table`."""

    @declare(app, "delete-rows", "pqbroker table delete-rows shop.stock shop=north,id=5")
    def delete_rows(table: Table, key: GivenKeys = None, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
        """Delete the rows of a sorted table that have these keys, a thousand in a request; a key without a row is no
        error."""
        path = table_path(table)
        count = timestamp = 0
        with Web(http) as web:

            def send(some: list[dict[str, Any]], _: int) -> dict[str, Any]:
                return web.delete_part(f"{path}/rows", {"keys": some}, "timestamp")

            for sent, deleted in send_rows(_keys(web, path, key), send, "keys were deleted"):
                count += sent
                timestamp = deleted["timestamp"]
        if json:
            show_json({"rows": count, "timestamp": timestamp})
        elif count:
            say(f"deleted the rows of {count} key{'s' * (count != 1)} at timestamp {timestamp}")
        else:
            say("no key was given")


def _look_up_all(
    web: Web, path: str, texts: list[str] | None, asked: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of keys, and the keys that have none."""
    rows: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    given = _keys(web, path, texts)
    while some := list(islice(given, ROWS_PER_REQUEST)):
        found = _look_up(web, f"{path}/lookup", some, asked)
        rows += [row for row in found if row is not None]
        missing += [one for one, row in zip(some, found, strict=True) if row is None]
    return rows, missing


def _look_up(web: Web, path: str, keys: list[dict[str, Any]], asked: Mapping[str, Any]) -> list[Any]:
    """Return the rows of keys; where they are too many for one answer, by halves."""
    try:
        rows: list[Any] = web.post(path, {"keys": keys, **asked}, "rows")["rows"]
    except BrokerRefusal as refusal:
        if refusal.code != _TOO_LARGE or len(keys) == 1:
            raise
        middle = len(keys) // 2
        return _look_up(web, path, keys[:middle], asked) + _look_up(web, path, keys[middle:], asked)
    return rows


def _keys(web: Web, path: str, texts: list[str] | None, *, is_whole: bool = True) -> Iterator[dict[str, Any]]:
    """Return the keys that are given; the broker checks them. The schema is asked for where a key is no JSON."""
    if not texts:
        return json_objects(sys.stdin, "key")
    schema: list[dict[str, Any]] = []
    if not all(text.lstrip().startswith("{") for text in texts):
        schema = web.get(path, "schema")["schema"]
    types = {column["name"]: column["type"] for column in schema}
    of_key = [column["name"] for column in schema if column.get("sort_order") and not column.get("expression")]
    needed = of_key if is_whole else []
    return iter([_key(text, number, types, needed) for number, text in enumerate(texts, start=1)])


def _key(text: str, number: int, types: Mapping[str, str], needed: Sequence[str]) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        return json_object(text, f"key {number}")
    key: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            example = '\'{"name": "a, b"}\''
            raise WrongInput(f"key {text!r}: give COLUMN=VALUE with commas between, or JSON as in {example}")
        key[name.strip()] = _value(value, types.get(name.strip(), ""))
    lacking = ", ".join(name for name in needed if name not in key)
    if lacking and key.keys() <= types.keys():
        raise WrongInput(f"key {text!r} has no {lacking}: give it, or a JSON object, in which it is null if left out")
    return key


def _value(text: str, type_name: str) -> Any:
    """Return the value that a text means in a column; the text where it means none, which the broker refuses by name.
    """
    if type_name == "boolean":
        return _TRUTHS.get(text, text)
    if type_name in _NUMBERS:
        with suppress(ValueError):
            return float(text) if type_name == "double" else int(text)
    return text


def _show(rows: list[dict[str, Any]], missing: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        for row in rows:
            show_json(row)
        return
    if rows:
        columns = list(rows[0])
        show_table(columns, ([shown_cell(row[name]) for name in columns] for row in rows))
    for key in missing[:MISSING_SHOWN]:
        say(f"no row has the key {dumps(key, ensure_ascii=False)}")
    if len(missing) > MISSING_SHOWN:
        say(f"{len(missing) - MISSING_SHOWN} more keys have no row")
