"""`pqbroker transaction`: transactions over tables, and with --kafka those of Kafka producers, over HTTP."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import Http, Json, Yes
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("List, show and abort the transactions of a pqbroker: over tables, and those of Kafka producers.")

_ALL = "/v1/transactions"
_IDS = "/v1/transactional-ids"
_NAME = "11f0c1a52d3b4e6f8a9b0c1d2e3f4a5b"
_TIMES = ("started", "expires", "since", "resolved", "changed")

TransactionName = Annotated[
    str, Argument(metavar="TRANSACTION", help="Name of the transaction: 32 digits that `transaction list` prints.")
]
AnyTransactionName = Annotated[
    str,
    Argument(
        metavar="TRANSACTION",
        help="Name of the transaction: 32 digits that `transaction list` prints; with --kafka a transactional id.",
    ),
]
Kafka = Annotated[bool, option("--kafka", help="Transactions of Kafka producers, by their transactional ids.")]


@declare(app, "list", "pqbroker transaction list --state open")
def list_transactions(
    state: Annotated[
        str | None,
        option(
            "--state", metavar="STATE",
            help="State of those to list: open, committing, committed or aborted; with --kafka as Kafka names them, "
            "such as Ongoing.",
        ),
    ] = None,
    unfinished: Annotated[
        bool,
        option("--unfinished", help="List what commits over several tablets have not finished, and what it waits for."),
    ] = False,
    resolved: Annotated[
        bool, option("--resolved", help="List those in doubt that operators have resolved, until the home agrees.")
    ] = False,
    kafka: Kafka = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """List the transactions over tables, the oldest first: those that are open, and those that ended minutes ago. With
    --kafka list the transactional ids of Kafka producers instead."""
    if (state is not None) + unfinished + resolved > 1:
        raise WrongInput("--state, --unfinished and --resolved exclude each other; give one of them")
    if kafka and (unfinished or resolved):
        raise WrongInput("--unfinished and --resolved are for transactions over tables; leave out --kafka")
    if kafka:
        _list_ids(state, http, json)
        return
    if unfinished or resolved:
        _list_in_doubt("unfinished" if unfinished else "resolved", http, json)
        return
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
def describe_transaction(
    transaction: AnyTransactionName, kafka: Kafka = False, http: Http = DEFAULT_HTTP, json: Json = False
) -> None:
    """Show a transaction: its state, whose it is, the timestamps that it reads at and has committed at, its cause. With
    --kafka its producer, partitions, groups and offsets."""
    with Web(http) as web:
        found = web.get(_path(transaction, kafka=kafka), "state")
    if json:
        show_json(found)
    else:
        show_table(("field", "value"), ([name.replace("_", " "), _shown(name, found[name])] for name in found))


@declare(app, "abort", f"pqbroker transaction abort {_NAME} --yes")
def abort_transaction(
    transaction: AnyTransactionName,
    force: Annotated[bool, option("--force", help="Abort it even if it is another user's; for operators.")] = False,
    kafka: Kafka = False,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Abort an open transaction: nothing of it is written, and its client learns it with its next request. With --kafka
    it is aborted in all its partitions, and its producer is fenced."""
    confirm(f"abort transaction {transaction}?", yes)
    path = f"{_path(transaction, kafka=kafka)}/abort"
    with Web(http) as web:
        if kafka:
            web.post(path, {}, "state")
        else:
            web.command(path, {"force": True} if force else {})
    if json:
        show_json({"transaction": transaction, "aborted": True})
    else:
        say(f"aborted transaction {transaction}")


@declare(app, "resolve", f"pqbroker transaction resolve {_NAME} --abort")
def resolve_transaction(
    transaction: TransactionName,
    abort: Annotated[bool, option("--abort", help="Drop its rows.")] = False,
    commit: Annotated[
        int | None,
        option("--commit", metavar="TIMESTAMP", help="Write its rows at this timestamp, that of its other rows."),
    ] = None,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """End the rows in doubt of a transaction whose cell with the decision does not come back, after showing them."""
    if abort is (commit is not None):
        raise WrongInput("give one of --abort and --commit TIMESTAMP")
    body = {"outcome": "abort"} if commit is None else {"outcome": "commit", "timestamp": commit}
    path = f"{_path(transaction)}/resolve"
    with Web(http) as web:
        found = web.post(path, {**body, "dry_run": True}, "participants")
        if not json:
            _show_resolving(found)
        confirm(f"{'drop' if commit is None else 'write'} these rows, whatever the home says later?", yes)
        done = web.post(path, {**body, "dry_run": False}, "participants")
    if json:
        show_json(done)
    elif done["left"]:
        say(f"resolved transaction {transaction}; {done['left']} tablets end their rows later")
    else:
        say(f"resolved transaction {transaction}: its rows were {'dropped' if commit is None else 'written'}")


def _show_resolving(found: Mapping[str, Any]) -> None:
    known = found["known"]
    if known is None:
        what = "this broker does not remember its commit"
    elif known["committed"]:
        what = f"it is committed at timestamp {known['timestamp']}, as this broker remembers"
    else:
        what = f"it is committed at timestamp {known['timestamp']}, or not at all, as this broker remembers"
    say(f"the decision lies in {found['waits_for']}, which is not open; {what}")
    rows = ((_place(one["participant"]), one["bytes"], _shown("since", one["since"])) for one in found["participants"])
    show_table(("rows in", "bytes", "since"), rows)


def _list_in_doubt(what: str, http: str, json: bool) -> None:
    with Web(http) as web:
        found = list(web.items(f"{_ALL}/{what}", what, "after"))
    if json:
        for one in found:
            show_json(one)
    elif not found:
        say(f"no transaction is {what}")
    elif what == "unfinished":
        names = ("transaction", "what", "participant", "home", "since", "waits for")
        show_table(names, (_unfinished_row(one) for one in found))
    else:
        columns = ("transaction", "outcome", "timestamp", "home", "resolved", "principal", "the home says")
        show_table(columns, (_resolved_row(one) for one in found))


def _resolved_row(one: Mapping[str, Any]) -> Sequence[object]:
    shown = [_shown(name, one[name]) for name in ("timestamp", "resolved", "principal", "home_says")]
    return one["transaction"], one["outcome"], shown[0], _place(one["home"]), *shown[1:]


def _unfinished_row(one: Mapping[str, Any]) -> Sequence[object]:
    since, waits_for = _shown("since", one["since"]), one["waits_for"] or "-"
    return one["transaction"], one["what"], _place(one["participant"]), _place(one["home"]), since, waits_for


def _place(place: Mapping[str, Any]) -> str:
    """Return the table, tablet and cell of a participant."""
    if place["table"] is None:
        return f"deleted tablet {place['tablet_id']}"
    return f"{place['table']} {place['tablet_index']}, cell {place['cell']}"


def _list_ids(state: str | None, http: str, json: bool) -> None:
    query: dict[str, object] = {} if state is None else {"state": state}
    with Web(http) as web:
        found = list(web.items(_IDS, "transactional_ids", "after", **query))
    if json:
        for one in found:
            show_json(one)
    elif found:
        names = ("name", "state", "producer_id", "producer_epoch", "started", "timeout_ms", "partition_count")
        rows = ([_shown(name, one[name]) for name in names] for one in found)
        show_table([name.replace("_", " ") for name in names], rows)
    else:
        say("there is no transactional id" if state is None else f"no transactional id is {state}")


def _path(transaction: str, *, kafka: bool = False) -> str:
    return f"{_IDS if kafka else _ALL}/{quote(transaction, safe='')}"


def _shown(name: str, value: Any) -> object:
    """Return a field as people read it: times in UTC."""
    if value is None:
        return "-"
    if name in _TIMES:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")
    return str(value)
