"""`pqbroker table materialize` and its kin: topics that feed sorted tables."""

from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import Http, Json, Table, TopicName, Yes, assignments, table_path
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

_INTO = "into"
_ALL = "/v1/materializations"
_EXAMPLE = "pqbroker table materialize orders into //shop/latest --column id=key --column order=value"


def add_materialize(app: Family) -> None:
    """Add the commands to the family `table`."""
    _add_materialize(app)
    _add_materializations(app)
    _add_changes(app)


def _add_materialize(app: Family) -> None:
    @declare(app, "materialize", _EXAMPLE)
    def materialize(
        topic: TopicName,
        into: Annotated[str, Argument(metavar="into", help="The word `into`.")],
        table: Table,
        column: Annotated[
            list[str] | None,
            option(
                "--column", metavar="NAME=ORIGIN",
                help="Origin of a column: a column of the topic's schema, key, value, timestamp_ms, $row_index or "
                "$tablet_index; repeatable; columns left out are null. Without one: each comes from the origin of its "
                "name.",
            ),
        ] = None,
        dead_letters: Annotated[
            str | None,
            option(
                "--dead-letters", metavar="TOPIC", also=("--dead-letter-topic",),
                help="Topic that gets the records that are no rows of the table, with the reason as a header.",
            ),
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Have a sorted table keep the latest value of each key of a topic; null values delete."""
        if into.lower() != _INTO:
            raise WrongInput(f"{into!r} stands between topic and table; give {_INTO}, as in {_EXAMPLE}")
        body: dict[str, Any] = {"topic": topic, "table": table}
        body |= {"columns": assignments("--column", column, "id=key")} if column else {}
        body |= {} if dead_letters is None else {"dead_letter_topic": dead_letters}
        with Web(http) as web:
            made = web.post(_ALL, body, "columns")
        if json:
            show_json(made)
        else:
            say(f"{made['path']} is fed from topic {made['topic']}; {made['lag']} records are to be read")


def _add_materializations(app: Family) -> None:
    @declare(app, "materializations", "pqbroker table materializations //shop/latest")
    def materializations(
        table: Annotated[
            str | None, Argument(metavar="TABLE", help="Path or name of one table, shown with its dead letters.")
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Show the sorted tables that topics feed, with state and lag; or one of them, whole."""
        with Web(http) as web:
            if table is None:
                found = list(web.items(_ALL, "materializations", "after"))
            else:
                found = [web.get(_path(table), "partitions")]
        if json:
            for each in found:
                show_json(each)
        elif table is not None:
            _show_one(found[0])
        elif found:
            names = ("path", "topic", "state", "lag", "dead_letter_count")
            header = ("path", "topic", "state", "lag", "dead letters")
            show_table(header, ([row[name] for name in names] for row in found))
            _say_reasons(found)
        else:
            say(f"no table is fed from a topic; `{_EXAMPLE}` has one fed")


def _add_changes(app: Family) -> None:
    @declare(app, "pause-materialization", "pqbroker table pause-materialization //shop/latest")
    def pause(table: Table, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
        """Stop feeding a table until it is resumed."""
        _change(http, table, "pause", {}, json)

    @declare(app, "resume-materialization", "pqbroker table resume-materialization //shop/latest --from-start")
    def resume(
        table: Table,
        from_start: Annotated[
            bool, option("--from-start", help="Read the topic from its start, even if it was re-created.")
        ] = False,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Resume feeding a table where it stopped."""
        _change(http, table, "resume", {"from_start": from_start}, json)

    @declare(app, "drop-materialization", "pqbroker table drop-materialization //shop/latest --yes")
    def drop(table: Table, yes: Yes = False, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
        """End feeding a table; its rows stay, and its place in the topic is forgotten."""
        confirm(f"feed {table} no more, and forget where its topic was read up to?", yes)
        with Web(http) as web:
            web.delete(_path(table))
        if json:
            show_json({"table": table, "dropped": True})
        else:
            say(f"{table} is fed no more; its rows stay")


def _path(table: str) -> str:
    return table_path(table).replace("/v1/tables/", f"{_ALL}/", 1)


def _change(http: str, table: str, verb: str, body: dict[str, Any], json: bool) -> None:
    with Web(http) as web:
        found = web.post(f"{_path(table)}/{verb}", body, "partitions")
    if json:
        show_json(found)
    else:
        say(f"{found['path']} from topic {found['topic']}: {found['state']}, lag {found['lag']}")
        _say_reasons([found])


def _show_one(found: Any) -> None:
    names = ("path", "topic", "state", "lag", "dead_letter_count", "dead_letter_topic")
    origins = ", ".join(f"{name} from {origin}" for name, origin in found["columns"].items())
    show_table(("field", "value"), [*([name.replace("_", " "), found[name]] for name in names), ["columns", origins]])
    _say_reasons([found])
    rows = ([each["partition"], each["offset"], each["end_offset"], each["lag"]] for each in found["partitions"])
    show_table(("partition", "offset", "end offset", "lag"), rows)
    if found["dead_letters"]:
        letters = ([each["partition"], each["offset"], each["reason"]] for each in found["dead_letters"])
        show_table(("partition", "offset", "no row, because"), letters)


def _say_reasons(found: list[Any]) -> None:
    for each in found:
        if each["reason"] is not None:
            say(f"{each['path']} is {each['state']}: {each['reason']['message']}. {each['reason']['cure']}")
