"""`pqbroker table`: tables of a pqbroker, over its HTTP address. Changes of their mount states stand beside."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from json import dumps, loads
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_mount import add_mount, add_remount, add_reshard
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import INT32_MAX, Http, Json, Table, Yes, assignments, table_path
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("Create, list, fill, read, alter, mount and drop tables of a pqbroker.")
ROWS_PER_REQUEST = 1000
RANGES_SHOWN = 10
COLUMN_EXAMPLE = "id:int64:required"
Columns = Annotated[
    list[str] | None,
    option(
        "--column",
        metavar="NAME:TYPE[:required][:key]",
        help="Column of the schema; repeatable. With `key` it is stored in the record's key.",
    ),
]
_EXAMPLE = "pqbroker table create //shop/orders --column id:int64:required --column note:utf8"


@declare(app, "create", _EXAMPLE)
def create(
    path: Annotated[str, Argument(metavar="PATH", help="Path such as //shop/orders, which is the topic shop.orders.")],
    column: Columns = None,
    tablets: Annotated[
        int, option("--tablets", metavar="COUNT", least=1, most=INT32_MAX, help="Tablets, each a partition.")
    ] = 1,
    bundle: Annotated[
        str, option("--bundle", metavar="NAME", help="Bundle whose cells the tablets live in.")
    ] = "default",
    config: Annotated[
        list[str] | None,
        option("--config", "-c", metavar="NAME=VALUE", help="Topic config, such as value.format=avro; repeatable."),
    ] = None,
    unmounted: Annotated[bool, option("--unmounted", help="Leave the tablets unmounted.")] = False,
    static: Annotated[
        bool, option("--static", help="Make a table for SQL alone: no topic, no tablets, no rows yet.")
    ] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Create an ordered table, which is a topic for Kafka clients."""
    schema = [_column(text) for text in column or []]
    if static and (unmounted or tablets > 1):
        raise WrongInput("--static makes a table without tablets: leave --tablets and --unmounted out")
    of_tablets = {"dynamic": False} if static else {"tablet_count": tablets, "mount": not unmounted}
    body: dict[str, Any] = {"path": path, "schema": schema, "bundle": bundle, **of_tablets}
    if config:
        body["config"] = assignments("--config", config, "value.format=avro")
    with Web(http) as web:
        made = web.post("/v1/tables", body, "schema")
    if json:
        show_json(made)
    elif static:
        say(f"created static table {made['path']}, {made['name']} in SQL")
    else:
        say(f"created table {made['path']}, topic {made['name']}, {_tablets(made)}, {made['state']}")


@declare(app, "list", "pqbroker table list")
def list_all(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List tables."""
    with Web(http) as web:
        found = list(web.items("/v1/tables", "tables", "after"))
    if json:
        for each in found:
            show_json(each)
    elif found:
        columns = ("path", "name", "tablet_count", "state", "bundle")
        show_table(("path", "topic", "tablets", "state", "bundle"), ([one[name] for name in columns] for one in found))
    else:
        say(f"no tables; `{_EXAMPLE}` makes one")


@declare(app, "describe", "pqbroker table describe shop.orders")
def describe(table: Table, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Show a table's schema, attributes and tablets."""
    path = table_path(table)
    with Web(http) as web:
        found = web.get(path, "schema")
        tablets = list(web.items(f"{path}/tablets", "tablets", "after"))
    if json:
        show_json({**found, "tablets": tablets})
        return
    if found["dynamic"]:
        say(f"table {found['path']}, topic {found['name']}, {_tablets(found)}, {found['state']}")
    else:
        say(f"static table {found['path']}, {found['name']} in SQL")
    for name, value in found["formats"].items():
        say(f"  {name}={value}")
    for name, value in found["attributes"].items():
        say(f"  {name}={_set(value)}{_acting(name, value, found, tablets)}")
    columns = ("name", "type", "required", "from")
    show_table(columns, ([_cell(column[name]) for name in columns] for column in found["schema"]))
    counts = ("index", "state", "trimmed_row_count", "flushed_row_count", "total_row_count")
    header = ("tablet", "state", "trimmed", "flushed", "rows_end")
    if tablets:
        show_table(header, ([tablet[name] for name in counts] for tablet in tablets))


@declare(app, "insert", """pqbroker table insert shop.orders --row '{"id": 1, "note": "first"}'""")
def insert(
    table: Table,
    row: Annotated[
        list[str] | None,
        option("--row", metavar="JSON", help="Row as a JSON object; repeatable; without one: lines of standard input."),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Insert rows, a thousand in a request; those of one request appear together."""
    path, given = f"{table_path(table)}/rows", _rows(row or sys.stdin)
    count = weight = 0
    with Web(http) as web:
        while some := list(islice(given, ROWS_PER_REQUEST)):
            try:
                weight += web.post(path, {"rows": some}, "data_weight")["data_weight"]
            except CommandError as refusal:
                before = f" ({count} rows were inserted before)" if count else ""
                raise CommandError(f"{refusal}{before}") from None
            count += len(some)
    if json:
        show_json({"rows": count, "data_weight": weight})
    else:
        say(f"inserted {count} row{'s' * (count != 1)}, {weight} bytes by weight")


@declare(app, "select", "pqbroker table select shop.orders --from 10 --limit 5")
def select(
    table: Table,
    tablet: Annotated[int, option("--tablet", metavar="INDEX", least=0, help="Tablet to read.")] = 0,
    first: Annotated[int, option("--from", metavar="ROW_INDEX", help="First row to read.")] = 0,
    limit: Annotated[
        int, option("--limit", metavar="COUNT", least=1, most=1000, help="Rows to read at most.")
    ] = 100,
    raw: Annotated[bool, option("--raw", help="Print keys, values and headers of the records.")] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Print rows of a tablet; any topic can be read raw."""
    query = {"tablet_index": tablet, "first_row_index": first, "limit": limit, **({"view": "raw"} if raw else {})}
    with Web(http) as web:
        found = web.get(f"{table_path(table)}/rows", "rows", **query)["rows"]
    if json:
        for row in found:
            show_json(row)
    elif found:
        columns = list(dict.fromkeys(name for row in found for name in row))
        show_table(columns, ([_cell(row.get(name)) for name in columns] for row in found))
    else:
        say(f"no rows in tablet {tablet} of {table} from row {first} on")


@declare(app, "alter", "pqbroker table alter clicks --column id:int64 --column url:utf8")
def alter(
    table: Table,
    column: Columns = None,
    no_schema: Annotated[bool, option("--no-schema", help="Take a topic's schema away; its records stay.")] = False,
    static: Annotated[bool, option("--static", help="Have an unmounted table be for SQL alone, no topic.")] = False,
    dynamic: Annotated[bool, option("--dynamic", help="Have a static table be a topic again, unmounted.")] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Set all columns of an unmounted table, or of any topic, whose records are then rows too; or make a table static
    or dynamic."""
    if [bool(column), no_schema, static, dynamic].count(True) != 1:
        cure = f"give every column, as in --column {COLUMN_EXAMPLE}, or --no-schema for a topic"
        raise WrongInput(f"{cure}; or one of --static and --dynamic")
    is_conversion = static or dynamic
    change = {"dynamic": dynamic} if is_conversion else {"schema": list(map(_column, column or []))}
    with Web(http) as web:
        altered = web.post(f"{table_path(table)}/alter", change, "schema")
    if json:
        show_json(altered)
    elif is_conversion:
        say(f"{altered['path']} is static now" if static else f"{altered['path']} is dynamic now, and unmounted")
    else:
        count = len(altered["schema"])
        say(f"{altered['path']} has {count} column{'s' * (count != 1)}" if count else f"{table} has no schema now")


@declare(app, "trim", "pqbroker table trim shop.orders --tablet 0 --to 100 --yes")
def trim(
    table: Table,
    to: Annotated[
        int,
        option("--to", metavar="ROW_INDEX", least=0, also=("--trimmed-row-count",), help="First row to keep."),
    ],
    tablet: Annotated[
        int, option("--tablet", metavar="INDEX", least=0, also=("--tablet-index",), help="Tablet to trim.")
    ] = 0,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Delete the rows of a tablet before an index."""
    confirm(f"delete the rows of {table} before {to} in tablet {tablet}?", yes)
    body = {"tablet_index": tablet, "trimmed_row_count": to}
    with Web(http) as web:
        done = web.post(f"{table_path(table)}/trim", body, "trimmed_row_count")
    if json:
        show_json(done)
    else:
        say(f"tablet {tablet} of {table} begins at row {done['trimmed_row_count']}")


@declare(app, "drop", "pqbroker table drop shop.orders --yes")
def drop(table: Table, yes: Yes = False, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Delete a table with its topic and all rows."""
    with Web(http) as web:
        web.get(table_path(table), "schema")
        confirm(f"delete {table} with all rows?", yes)
        web.delete(table_path(table))
    if json:
        show_json({"table": table, "deleted": True})
    else:
        say(f"deleted table {table}")


add_mount(app)
add_remount(app)
add_reshard(app)


def _acting(name: str, value: Any, table: dict[str, Any], tablets: list[dict[str, Any]]) -> str:
    """Return the other values of an attribute that act, and where."""
    agreed = table["mounted_attributes"]
    if name in agreed:
        return "" if agreed[name] == value else f", {_set(agreed[name])} until the table is remounted"
    indexes: dict[Any, list[int]] = {}
    for tablet in tablets:
        if (acting := tablet["mounted_attributes"][name]) != value:
            indexes.setdefault(acting, []).append(tablet["index"])
    return "".join(f", {_set(other)} in tablets {_ranges(which)} until remounted" for other, which in indexes.items())


def _ranges(indexes: list[int]) -> str:
    """Rising numbers such as 0-2,5; the first ones of many."""
    present = set(indexes)
    starts = [index for index in indexes if index - 1 not in present]
    ends = [index for index in indexes if index + 1 not in present]
    pairs = [f"{start}-{end}" if end > start else str(start) for start, end in zip(starts, ends, strict=True)]
    return ",".join(pairs[:RANGES_SHOWN]) + ",…" * (len(pairs) > RANGES_SHOWN)


def _column(text: str) -> dict[str, Any]:
    """A column of the schema; WrongInput."""
    name, *words = text.split(":")
    if not name or not words or not set(words[1:]) <= {"required", "key"}:
        raise WrongInput(f"--column {text!r}: give NAME:TYPE[:required][:key], as in {COLUMN_EXAMPLE}")
    part = "key" if "key" in words[1:] else "value"
    return {"name": name, "type": words[0], "required": "required" in words[1:], "from": part}


def _rows(lines: Iterable[str]) -> Iterator[Any]:
    """Empty lines are left out; WrongInput for one that is no JSON object."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise WrongInput(f"row {number} is no JSON object: {line.strip()[:60]}")
        yield row


def _tablets(table: dict[str, Any]) -> str:
    return f"{table['tablet_count']} tablet{'s' * (table['tablet_count'] != 1)}"


def _set(value: object) -> object:
    """Return the value that an attribute is set to; null: it is set to nothing."""
    return "none" if value is None else value


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
