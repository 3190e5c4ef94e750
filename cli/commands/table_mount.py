"""`pqbroker table mount` and its kin: the mount states of a table's tablets, and how many there are."""

from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_columns import Pivots, parse_pivots
from pqbroker.cli.options import INT32_MAX, Http, Json, Table, table_path
from pqbroker.cli.output import say, show_bytes, show_json
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

First = Annotated[
    int | None,
    option(
        "--first", metavar="INDEX", least=0, also=("--first-tablet-index",),
        help="First tablet; without it: the table's first.",
    ),
]  # fmt: skip
Last = Annotated[
    int | None,
    option(
        "--last", metavar="INDEX", least=0, also=("--last-tablet-index",),
        help="Last tablet; without it: the table's last.",
    ),
]  # fmt: skip


def add_mount(app: Family) -> None:
    """Add the commands to the family `table`."""

    @declare(app, "mount", "pqbroker table mount shop.orders")
    def mount(
        table: Table,
        first: First = None,
        last: Last = None,
        frozen: Annotated[bool, option("--frozen", help="Mount for reading only.")] = False,
        cell: Annotated[
            str | None, option("--cell", metavar="CELL", help="Have the tablets live in this cell of the bundle.")
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Mount tablets: their rows are read and written."""
        home = {} if cell is None else {"cell_id": cell}
        _change(http, table, "mount", {**_range(first, last), "freeze": frozen, **home}, json)

    @declare(app, "unmount", "pqbroker table unmount shop.orders")
    def unmount(
        table: Table,
        first: First = None,
        last: Last = None,
        force: Annotated[bool, option("--force", help="Leave out the flush; no row is lost.")] = False,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Unmount tablets: nothing of them is read or written."""
        _change(http, table, "unmount", {**_range(first, last), "force": force}, json)

    @declare(app, "freeze", "pqbroker table freeze shop.orders --first 1 --last 2")
    def freeze(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Freeze tablets: their rows are read, none written."""
        _change(http, table, "freeze", _range(first, last), json)

    @declare(app, "unfreeze", "pqbroker table unfreeze shop.orders")
    def unfreeze(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Unfreeze tablets: their rows are written again."""
        _change(http, table, "unfreeze", _range(first, last), json)


def add_remount(app: Family) -> None:
    """Add the command that has attributes act."""

    @declare(app, "remount", "pqbroker table remount shop.orders --first 1 --last 2")
    def remount(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Have the attributes that were set act in tablets, which stay mounted."""
        _change(http, table, "remount", _range(first, last), json)


def add_reshard(app: Family) -> None:
    """Add the command that changes how many tablets there are."""

    @declare(app, "reshard", "pqbroker table reshard shop.orders --tablets 4")
    def reshard(
        table: Table,
        tablets: Annotated[
            int | None,
            option(
                "--tablets",
                metavar="COUNT",
                least=1,
                most=INT32_MAX,
                also=("--tablet-count",),
                help="Tablets to have in the range; in a sorted table they begin where they have about as many rows.",
            ),
        ] = None,
        pivot: Pivots = None,
        first: First = None,
        last: Last = None,
        trimmed: Annotated[
            list[int] | None,
            option(
                "--trimmed",
                metavar="ROW_INDEX",
                also=("--trimmed-row-counts",),
                help="Row index a new tablet begins at; repeat for each one.",
            ),
        ] = None,
        dry_run: Annotated[
            bool, option("--dry-run", help="Print what would be copied of a sorted table, and change nothing.")
        ] = False,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Replace a range of unmounted tablets by more, or by fewer: rows of the last ones join those before."""
        if (tablets is None) == (not pivot):
            raise WrongInput("give --tablets, or of a sorted table --pivot for each tablet of the range but the first")
        body: dict[str, object] = _range(first, last)
        body |= {} if tablets is None else {"tablet_count": tablets}
        body |= {"trimmed_row_counts": trimmed} if trimmed else {}
        body |= {"dry_run": True} if dry_run else {}
        path = table_path(table)
        with Web(http) as web:
            if pivot:
                body["pivot_keys"] = parse_pivots(pivot, _pivot_of(web, path, first or 0))
            changed = web.post(f"{path}/reshard", body, "state")
        if json:
            show_json(changed)
        elif "copied_bytes" in changed:
            say(_cost(changed, dry_run=dry_run))
        else:
            say(f"table {changed['path']} is {changed['state']}")


def _cost(changed: dict[str, Any], *, dry_run: bool) -> str:
    """Return what a reshard of a sorted table has copied, or would copy."""
    copied, rewritten = (show_bytes(changed[name]) for name in ("copied_bytes", "rewritten_bytes"))
    if dry_run:
        duration = f"about {changed['seconds']:.0f} s"
        return f"{changed['path']} would have other tablets: {copied} copied and {rewritten} rewritten, {duration}"
    return f"{changed['path']} has other tablets, {changed['state']}: {copied} copied and {rewritten} rewritten"


def _pivot_of(web: Web, path: str, index: int) -> list[Any]:
    """Return the first key of a tablet, from which the others of a range are found; the first tablet's is known."""
    if index == 0:
        return []
    found = web.get(f"{path}/tablets", "tablets", after=index - 1, limit=1)["tablets"]
    pivot: list[Any] = found[0].get("pivot_key", []) if found else []
    return pivot


def _range(first: int | None, last: int | None) -> dict[str, object]:
    named = {"first_tablet_index": first, "last_tablet_index": last}
    return {name: index for name, index in named.items() if index is not None}


def _change(http: str, table: str, verb: str, body: dict[str, object], json: bool) -> None:
    with Web(http) as web:
        changed = web.post(f"{table_path(table)}/{verb}", body, "state")
    if json:
        show_json(changed)
    else:
        say(f"table {changed['path']} is {changed['state']}")
