"""`pqbroker table mount` and its kin: the mount states of a table's tablets."""

from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Http, Json, Table, table_path
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import option
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
            str | None, option("--cell", metavar="CELL", help="Place the tablets in this cell of the bundle.")
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Mount tablets: their rows are read and written."""
        home = {} if cell is None else {"cell_id": cell}
        _change(http, table, "mount", {**tablet_range(first, last), "freeze": frozen, **home}, json)

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
        _change(http, table, "unmount", {**tablet_range(first, last), "force": force}, json)

    @declare(app, "freeze", "pqbroker table freeze shop.orders --first 1 --last 2")
    def freeze(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Freeze tablets: their rows are read, none written."""
        _change(http, table, "freeze", tablet_range(first, last), json)

    @declare(app, "unfreeze", "pqbroker table unfreeze shop.orders")
    def unfreeze(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Unfreeze tablets: their rows are written again."""
        _change(http, table, "unfreeze", tablet_range(first, last), json)


def add_remount(app: Family) -> None:
    """Add the command that has attributes act."""

    @declare(app, "remount", "pqbroker table remount shop.orders --first 1 --last 2")
    def remount(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Apply the attributes that were set to tablets, which stay mounted."""
        _change(http, table, "remount", tablet_range(first, last), json)


def tablet_range(first: int | None, last: int | None) -> dict[str, object]:
    """Return the range of tablets as HTTP takes it."""
    named = {"first_tablet_index": first, "last_tablet_index": last}
    return {name: index for name, index in named.items() if index is not None}


def _change(http: str, table: str, verb: str, body: dict[str, object], json: bool) -> None:
    with Web(http) as web:
        changed = web.post(f"{table_path(table)}/{verb}", body, "state")
    if json:
        show_json(changed)
    else:
        say(f"table {changed['path']} is {changed['state']}")
