"""`pqbroker table`: tables of a pqbroker, over its HTTP address. Changes of their mount states stand beside."""

import sys
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_columns import (
    COLUMN_EXAMPLE,
    Columns,
    Pivots,
    attributes_of,
    check_tablets,
    columns_of,
    parse_pivots,
)
from pqbroker.cli.commands.table_inside import add_compact, add_inside
from pqbroker.cli.commands.table_keys import add_delete_rows, add_lookup
from pqbroker.cli.commands.table_materialize import add_materialize
from pqbroker.cli.commands.table_mount import add_mount, add_remount
from pqbroker.cli.commands.table_reshard import add_reshard
from pqbroker.cli.commands.table_rows import json_objects, send_rows, shown_cell
from pqbroker.cli.commands.table_shown import kind_of, show_description, summary_of
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import INT32_MAX, Http, Json, Table, Yes, assignments, table_path
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("Create, list, fill, read, alter, mount and drop tables of a pqbroker.")
_EXAMPLE = "pqbroker table create //shop/orders --column id:int64:required --column note:utf8"


@declare(app, "create", _EXAMPLE)
def create(
    path: Annotated[str, Argument(metavar="PATH", help="Path such as //shop/orders, which is the topic shop.orders.")],
    column: Columns = None,
    tablets: Annotated[
        int | None,
        option(
            "--tablets", metavar="COUNT", least=1, most=INT32_MAX,
            help="Tablets, each a partition; without it: 1. Those of a sorted table are given by --pivot.",
        ),
    ] = None,
    pivot: Pivots = None,
    bundle: Annotated[
        str | None,
        option(
            "--bundle", metavar="NAME",
            help="Bundle whose cells the tablets live in; without it: the directory's, or the default one.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        option("--config", "-c", metavar="NAME=VALUE", help="Topic config, such as value.format=avro; repeatable."),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        option("--attribute", metavar="NAME=VALUE", help="Attribute, such as max_data_ttl=86400000; repeatable."),
    ] = None,
    unmounted: Annotated[bool, option("--unmounted", help="Leave the tablets unmounted.")] = False,
    static: Annotated[
        bool, option("--static", help="Make a table for SQL alone: no topic, no tablets, no rows yet.")
    ] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Create a table: ordered, which is a topic for Kafka clients, or sorted by its `ascending` columns."""
    body: dict[str, Any] = {"path": path, "schema": columns_of(column or [])}
    body |= {} if bundle is None else {"bundle": bundle}
    body |= {} if tablets is None else {"tablet_count": tablets}
    body |= {"dynamic": False} if static else {"mount": not unmounted}
    body |= {"pivot_keys": parse_pivots(pivot)} if pivot else {}
    body |= {"config": assignments("--config", config, "value.format=avro")} if config else {}
    body |= {"attributes": attributes_of(attribute)} if attribute else {}
    if static and (unmounted or tablets is not None):
        raise WrongInput("--static makes a table without tablets: leave --tablets and --unmounted out")
    check_tablets(body)
    with Web(http) as web:
        made = web.post("/v1/tables", body, "schema")
    if json:
        show_json(made)
    else:
        say(f"created {summary_of(made)}")


@declare(app, "list", "pqbroker table list")
def list_all(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List tables."""
    with Web(http) as web:
        found = list(web.items("/v1/tables", "tables", "after"))
    if json:
        for each in found:
            show_json(each)
    elif found:
        names = ("path", "name", "kind", "tablet_count", "state", "bundle")
        rows = ({**one, "kind": kind_of(one)} for one in found)
        header = ("path", "name", "kind", "tablets", "state", "bundle")
        show_table(header, ([row[name] for name in names] for row in rows))
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
    else:
        show_description(found, tablets)


@declare(app, "insert", """pqbroker table insert shop.orders --row '{"id": 1, "note": "first"}'""")
def insert(
    table: Table,
    row: Annotated[
        list[str] | None,
        option("--row", metavar="JSON", help="Row as a JSON object; repeatable; without one: lines of standard input."),
    ] = None,
    update: Annotated[
        bool, option("--update", help="Sorted table: leave columns that a row lacks as they were; else they are null.")
    ] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Insert rows, a thousand in a request; those of one request appear together."""
    path = f"{table_path(table)}/rows{'?update=true' if update else ''}"
    count = weight = 0
    timestamp: int | None = None
    with Web(http) as web:

        def send(some: list[dict[str, Any]], _: int) -> dict[str, Any]:
            return web.post(path, {"rows": some}, "data_weight")

        for sent, written in send_rows(json_objects(row or sys.stdin, "row"), send, "rows were inserted"):
            count += sent
            weight += written["data_weight"]
            timestamp = written.get("timestamp")
    of_kind = {"data_weight": weight} if timestamp is None else {"timestamp": timestamp}
    if json:
        show_json({"rows": count, **of_kind})
    else:
        how = f", {weight} bytes by weight" if timestamp is None else f" at timestamp {timestamp}"
        say(f"inserted {count} row{'s' * (count != 1)}{how}")


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
        show_table(columns, ([shown_cell(row.get(name)) for name in columns] for row in found))
    else:
        say(f"no rows in tablet {tablet} of {table} from row {first} on")


@declare(app, "alter", "pqbroker table alter clicks --column id:int64 --column url:utf8")
def alter(
    table: Table,
    column: Columns = None,
    no_schema: Annotated[bool, option("--no-schema", help="Remove a topic's schema; its records stay.")] = False,
    static: Annotated[bool, option("--static", help="Make an unmounted table static: for SQL only, no topic.")] = False,
    dynamic: Annotated[bool, option("--dynamic", help="Make a static table a topic again, unmounted.")] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Set all columns of an unmounted table, or of any topic, whose records are then rows too; or make a table static
    or dynamic."""
    if [bool(column), no_schema, static, dynamic].count(True) != 1:
        cure = f"give every column, as in --column {COLUMN_EXAMPLE}, or --no-schema for a topic"
        raise WrongInput(f"{cure}; or one of --static and --dynamic")
    is_conversion = static or dynamic
    change = {"dynamic": dynamic} if is_conversion else {"schema": columns_of(column or [])}
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


add_lookup(app)
add_delete_rows(app)
add_mount(app)
add_remount(app)
add_reshard(app)
add_inside(app)
add_compact(app)
add_materialize(app)
