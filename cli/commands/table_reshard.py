"""`pqbroker table reshard`: how many tablets a table has, and where those of a sorted one begin."""

from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_columns import Pivots, parse_pivots
from pqbroker.cli.commands.table_mount import First, Last, tablet_range
from pqbroker.cli.options import INT32_MAX, Http, Json, Table, table_path
from pqbroker.cli.output import say, show_bytes, show_json
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

_Count = Annotated[
    int | None,
    option(
        "--tablets", metavar="COUNT", least=1, most=INT32_MAX, also=("--tablet-count",),
        help="Tablets to have in the range; in a sorted table they begin where they have about as many rows.",
    ),
]  # fmt: skip
_Trimmed = Annotated[
    list[int] | None,
    option(
        "--trimmed", metavar="ROW_INDEX", also=("--trimmed-row-counts",),
        help="Row index a new tablet begins at; repeat for each one.",
    ),
]  # fmt: skip


def add_reshard(app: Family) -> None:
    """Add the command that changes how many tablets there are."""

    @declare(app, "reshard", "pqbroker table reshard shop.orders --tablets 4")
    def reshard(
        table: Table,
        tablets: _Count = None,
        pivot: Pivots = None,
        first: First = None,
        last: Last = None,
        trimmed: _Trimmed = None,
        dry_run: Annotated[
            bool, option("--dry-run", help="Print what would be copied of a sorted table, and change nothing.")
        ] = False,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Replace a range of unmounted tablets by more, or by fewer: rows of the last ones join those before."""
        if (tablets is None) == (not pivot):
            raise WrongInput("give --tablets, or of a sorted table --pivot for each tablet of the range but the first")
        body: dict[str, object] = tablet_range(first, last)
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
