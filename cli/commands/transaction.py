"""`pqbroker transaction`: transactions over tables of a pqbroker, over its HTTP address."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import Http, Json, Yes
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("List, show and abort the transactions over tables of a pqbroker.")

_ALL = "/v1/transactions"
_NAME = "11f0c1a52d3b4e6f8a9b0c1d2e3f4a5b"
_TIMES = ("started", "expires")

TransactionName = Annotated[
    str, Argument(metavar="TRANSACTION", help="Name of the transaction: 32 digits that `transaction list` prints.")
]


@declare(app, "list", "pqbroker transaction list --state open")
def list_transactions(
    state: Annotated[
        str | None,
        option("--state", metavar="STATE", help="State of those to list: open, committing, committed or aborted."),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """List the transactions over tables, the oldest first: those that are open, and those that ended minutes ago."""
    query: dict[str, object] = {} if state is None else {"state": state}
    with Web(http) as web:
        found = list(web.items(_ALL, "transactions", "after", **query))
    if json:
        for one in found:
            show_json(one)
    elif found:
        names = ("transaction", "state", "principal", "started", "expires", "cause")
        show_table(names, ([_shown(name, one[name]) for name in names] for one in found))
    else:
        say("there is no transaction" if state is None else f"no transaction is {state}")


@declare(app, "describe", f"pqbroker transaction describe {_NAME}")
def describe_transaction(transaction: TransactionName, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Show a transaction: its state, whose it is, the timestamps that it reads at and has committed at, its cause."""
    with Web(http) as web:
        found = web.get(_path(transaction), "state")
    if json:
        show_json(found)
    else:
        show_table(("field", "value"), ([name.replace("_", " "), _shown(name, found[name])] for name in found))


@declare(app, "abort", f"pqbroker transaction abort {_NAME} --yes")
def abort_transaction(
    transaction: TransactionName,
    force: Annotated[bool, option("--force", help="Abort it even if it is another user's; for operators.")] = False,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Abort an open transaction: nothing of it is written, and its client learns it with its next request."""
    confirm(f"abort transaction {transaction}?", yes)
    path = _path(transaction)
    with Web(http) as web:
        web.command(f"{path}/abort", {"force": True} if force else {})
    if json:
        show_json({"transaction": transaction, "aborted": True})
    else:
        say(f"aborted transaction {transaction}")


def _path(transaction: str) -> str:
    return f"{_ALL}/{quote(transaction, safe='')}"


def _shown(name: str, value: Any) -> object:
    """Return a field as people read it: times in UTC."""
    if value is None:
        return "-"
    if name in _TIMES:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")
    return str(value)
