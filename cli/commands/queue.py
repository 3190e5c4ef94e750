"""`pqbroker queue`: consumers, pulled rows, sessions of producers and auto trim of queues, over HTTP."""

import sys
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_rows import json_object, json_objects, send_rows, shown_cell
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import Http, Json, Yes, complete_topics, queue_path
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("Register consumers of queues, pull and push rows of queues, and trim what was read.")
_COLUMNS = ("tablet_index", "offset", "first_row_index", "end_row_index", "unread_row_count", "disposition")

QueueName = Annotated[
    str, Argument(metavar="QUEUE", complete=complete_topics, help="Path of the ordered table, or name of its topic.")
]
Consumer = Annotated[str, Argument(metavar="CONSUMER", help="Name of the consumer: the id of a consumer group.")]
TabletIndex = Annotated[int, option("--tablet", metavar="INDEX", least=0, also=("--tablet-index",), help="Tablet.")]
ProducerName = Annotated[str, option("--producer", metavar="NAME", help="Name of the producer.")]
SessionArgument = Annotated[str, Argument(metavar="SESSION", help="Name of the session.")]


@declare(app, "list", "pqbroker queue list --consumer billing")
def list_all(
    consumer: Annotated[
        str | None, option("--consumer", metavar="CONSUMER", help="List only the queues of this consumer.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """List queues that have consumers or auto trim."""
    query: dict[str, object] = {} if consumer is None else {"consumer": consumer}
    with Web(http) as web:
        found = list(web.items("/v1/queues", "queues", "after", **query))
    if json:
        for one in found:
            show_json(one)
    elif found:
        show_table(("queue", "tablets", "consumers", "auto trim"), map(_summary, found))
    else:
        say("no queue has consumers or auto trim" if consumer is None else f"{consumer} is registered with no queue")


@declare(app, "describe", "pqbroker queue describe shop.orders")
def describe(queue: QueueName, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Show the consumers of a queue with their offsets, and its auto trim."""
    path = queue_path(queue)
    with Web(http) as web:
        found = web.get(path, "consumers")
        places = {
            one["consumer"]: list(web.items(f"{path}/consumers/{quote(one['consumer'], safe='')}", "tablets", "after"))
            for one in found["consumers"]
        }
    if json:
        show_json({**found, "places": places})
        return
    rows = (
        (one["consumer"], "vital" if one["vital"] else "", *(shown_cell(place[name]) for name in _COLUMNS))
        for one in found["consumers"]
        for place in places[one["consumer"]]
    )
    if places:
        show_table(("consumer", "", "tablet", "offset", "first row", "end", "unread", "place"), rows)
    else:
        say(f"{found['name']} has no consumers; `pqbroker queue register {found['name']} CONSUMER` adds one")
    say(f"auto trim: {_auto_trim(found)}")


@declare(app, "register", "pqbroker queue register shop.orders billing --vital")
def register(
    queue: QueueName,
    consumer: Consumer,
    vital: Annotated[
        bool, option("--vital", help="Make it vital: its unread rows are kept, and auto trim waits for it; else not.")
    ] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Register a consumer with a queue, or change whether it is vital."""
    with Web(http) as web:
        done = web.post(f"{queue_path(queue)}/consumers", {"consumer": consumer, "vital": vital}, "consumers")
    if json:
        show_json(done)
    else:
        say(f"{consumer} is a {'vital ' * vital}consumer of {done['name']}")


@declare(app, "unregister", "pqbroker queue unregister shop.orders billing --yes")
def unregister(
    queue: QueueName, consumer: Consumer, yes: Yes = False, http: Http = DEFAULT_HTTP, json: Json = False
) -> None:
    """Remove a consumer from a queue; its offsets stay."""
    confirm(f"take consumer {consumer} from {queue}?", yes)
    with Web(http) as web:
        web.delete(f"{queue_path(queue)}/consumers/{quote(consumer, safe='')}")
    if json:
        show_json({"queue": queue, "consumer": consumer, "registered": False})
    else:
        say(f"{consumer} is no consumer of {queue} any more")


@declare(app, "pull", "pqbroker queue pull shop.orders --consumer billing --limit 10")
def pull(
    queue: QueueName,
    consumer: Annotated[
        str | None, option("--consumer", metavar="CONSUMER", help="Pull as this registered consumer.")
    ] = None,
    tablet: TabletIndex = 0,
    offset: Annotated[
        int | None,
        option("--from", metavar="ROW_INDEX", least=0, help="First row; without it: the consumer's offset, or 0."),
    ] = None,
    limit: Annotated[int, option("--limit", metavar="COUNT", least=1, most=1000, help="Rows to pull at most.")] = 100,
    advance: Annotated[
        bool, option("--advance", help="Commit the rows that were printed, if nobody has moved the consumer meanwhile.")
    ] = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Print rows of a tablet from a consumer's offset, or from any row."""
    if advance and consumer is None:
        raise WrongInput("--advance moves a consumer: give --consumer")
    given = {"consumer": consumer, "offset": offset}
    query = {name: value for name, value in given.items() if value is not None}
    with Web(http) as web:
        found = web.get(f"{queue_path(queue)}/rows", "rows", tablet_index=tablet, max_row_count=limit, **query)
        rows = found["rows"]
        if json:
            for row in rows:
                show_json(row)
        elif rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            show_table(columns, ([shown_cell(row.get(name)) for name in columns] for row in rows))
        else:
            say(f"no rows in tablet {tablet} of {queue} from row {found['offset']} on")
        if advance and found["next_offset"] != found["offset"]:
            moved = {
                "consumer": consumer, "tablet_index": tablet, "old_offset": found["offset"],
                "new_offset": found["next_offset"],
            }  # fmt: skip
            web.post(f"{queue_path(queue)}/advance", moved, "new_offset")


@declare(app, "advance", "pqbroker queue advance shop.orders billing --to 100 --if-at 50")
def advance_consumer(
    queue: QueueName,
    consumer: Consumer,
    to: Annotated[int, option("--to", metavar="ROW_INDEX", least=0, help="First row that it has not read.")],
    tablet: TabletIndex = 0,
    if_at: Annotated[
        int | None,
        option("--if-at", metavar="ROW_INDEX", least=0, help="Offset that it must have, else nothing changes."),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Commit how far a consumer has read in a tablet."""
    body = {"consumer": consumer, "tablet_index": tablet, "old_offset": if_at, "new_offset": to}
    cure = "Another reader was faster: read from where the consumer stands, or leave --if-at out."
    with Web(http, cures={"CONSUMER_OFFSET_CONFLICT": cure}) as web:
        done = web.post(f"{queue_path(queue)}/advance", body, "new_offset")
    if json:
        show_json(done)
    else:
        say(f"{consumer} stands at row {done['new_offset']} of tablet {tablet} of {queue}")


@declare(app, "auto-trim", "pqbroker queue auto-trim shop.orders --enable --retained-rows 1000")
def auto_trim(
    queue: QueueName,
    enable: Annotated[bool, option("--enable", help="Delete rows that all vital consumers have read.")] = False,
    disable: Annotated[bool, option("--disable", help="Turn auto trim off.")] = False,
    retained_rows: Annotated[
        int | None, option("--retained-rows", metavar="COUNT", least=0, help="Rows of a tablet that are always kept.")
    ] = None,
    retained_lifetime: Annotated[
        int | None,
        option("--retained-lifetime", metavar="MS", least=0, help="Milliseconds that rows stay, a multiple of 1000."),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Set the auto trim of a queue as a whole; without options show it."""
    if enable and disable:
        raise WrongInput("--enable and --disable exclude each other; give one of them")
    if not (enable or disable) and (retained_rows is not None or retained_lifetime is not None):
        raise WrongInput("bounds are set with the rest: give --enable, or --disable")
    config = {
        "enable": enable, "retained_rows": retained_rows, "retained_lifetime_duration": retained_lifetime,
    }  # fmt: skip
    path = queue_path(queue)
    with Web(http) as web:
        if enable or disable:
            found = web.patch(path, {"auto_trim_config": config}, "auto_trim_config")
        else:
            found = web.get(path, "auto_trim_config")
    if json:
        show_json(found)
    else:
        say(f"auto trim of {found['name']}: {_auto_trim(found)}")


@declare(app, "sessions", "pqbroker queue sessions shop.orders")
def list_sessions(queue: QueueName, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the sessions of a queue's producers."""
    found: list[dict[str, Any]] = []
    query: dict[str, object] = {}
    with Web(http) as web:
        while True:
            page = web.get(f"{queue_path(queue)}/producer-sessions", "sessions", **query)
            found += page["sessions"]
            if page["next"] is None:
                break
            query = {f"after_{name}": text for name, text in page["next"].items()}
    if json:
        for one in found:
            show_json(one)
    elif found:
        names = ("producer", "session", "epoch", "sequence_number", "user_meta")
        header = [name.replace("_", " ") for name in names]
        show_table(header, ([shown_cell(one[name]) for name in names] for one in found))
    else:
        say(f"{queue} has no sessions of producers")


@declare(app, "take-session", "pqbroker queue take-session shop.orders host-1 --producer loader")
def take_session(
    queue: QueueName,
    session: SessionArgument,
    producer: ProducerName,
    user_meta: Annotated[
        str | None, option("--user-meta", metavar="JSON", help="JSON object to keep with the session.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Take a session of a producer: its epoch grows, and pushes of earlier owners are refused."""
    body: dict[str, object] = {"producer": producer, "session": session}
    body |= {} if user_meta is None else {"user_meta": json_object(user_meta, "--user-meta")}
    with Web(http) as web:
        taken = web.post(f"{queue_path(queue)}/producer-sessions", body, "epoch")
    if json:
        show_json(taken)
    else:
        say(f"session {session} of {producer} is in epoch {taken['epoch']}; its last row is {taken['sequence_number']}")


@declare(app, "end-session", "pqbroker queue end-session shop.orders host-1 --producer loader --yes")
def end_session(
    queue: QueueName,
    session: SessionArgument,
    producer: ProducerName,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Forget a session of a producer: rows that it has pushed can be pushed again."""
    confirm(f"forget session {session} of {producer}?", yes)
    with Web(http) as web:
        web.delete_named(f"{queue_path(queue)}/producer-sessions", {"producer": producer, "session": session})
    if json:
        show_json({"queue": queue, "producer": producer, "session": session, "ended": True})
    else:
        say(f"session {session} of {producer} is forgotten")


@declare(
    app, "push", """pqbroker queue push shop.orders host-1 --producer loader --epoch 0 --from 0 --row '{"id": 1}'"""
)
def push(
    queue: QueueName,
    session: SessionArgument,
    producer: ProducerName,
    epoch: Annotated[int, option("--epoch", metavar="EPOCH", least=0, help="Epoch that `take-session` answered.")],
    row: Annotated[
        list[str] | None,
        option("--row", metavar="JSON", help="Row as a JSON object; repeatable; without one: lines of standard input."),
    ] = None,
    first: Annotated[
        int | None,
        option(
            "--from", metavar="NUMBER", least=0,
            help="Number of the first row, others follow; without it each row has a $sequence_number.",
        ),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Push rows in a session, a thousand in a request; those that it has taken before are left out."""
    body: dict[str, object] = {"producer": producer, "session": session, "epoch": epoch}
    count, skipped, last = 0, 0, -1
    with Web(http) as web:

        def send(some: list[dict[str, Any]], before: int) -> dict[str, Any]:
            numbered = {} if first is None else {"sequence_number": first + before}
            return web.post(f"{queue_path(queue)}/push", {**body, **numbered, "rows": some}, "last_sequence_number")

        for sent, done in send_rows(json_objects(row or sys.stdin, "row"), send, "rows were pushed"):
            count += sent
            skipped += done["skipped_row_count"]
            last = done["last_sequence_number"]
    if json:
        show_json({"rows": count - skipped, "skipped": skipped, "last_sequence_number": last})
    else:
        left_out = f", left out {skipped} that it had taken" if skipped else ""
        say(f"pushed {count - skipped} row{'s' * (count - skipped != 1)}{left_out}; the last one is {last}")


def _summary(queue: dict[str, Any]) -> tuple[object, ...]:
    names = [f"{one['consumer']}{' (vital)' * one['vital']}" for one in queue["consumers"]]
    return queue["name"], queue["tablet_count"], ", ".join(names), _auto_trim(queue)


def _auto_trim(queue: dict[str, Any]) -> str:
    config = queue["auto_trim_config"]
    if not config["enable"]:
        return "off"
    rows, lifetime_ms = config["retained_rows"], config["retained_lifetime_duration"]
    bounds = [f"keeps {rows} rows"] * (rows is not None) + [f"keeps {lifetime_ms} ms"] * (lifetime_ms is not None)
    return ", ".join(["on", *bounds])
