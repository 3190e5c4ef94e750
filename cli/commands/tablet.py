"""`pqbroker tablet`: the tablets of a pqbroker, over its HTTP address."""

from datetime import datetime
from itertools import islice
from json import loads
from shlex import quote
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.notices import tell
from pqbroker.cli.options import INT32_MAX, Http, Json
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

_KEY_CURES = {"INVALID_REQUEST": "`pqbroker tablet keys` lists keys as they are written."}

app = Family("List, show, restart and move the tablets of a pqbroker.")

TabletId = Annotated[int, Argument(metavar="TABLET", least=0, help="Id of the tablet.")]


@declare(app, "list", "pqbroker tablet list")
def list_all(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List tablets with their types, topics and generations."""
    columns = ("id", "type", "topic", "state", "generation", "partition_count")
    with Web(http) as web:
        found = list(web.items("/v1/tablets", "tablets", "after"))
    if json:
        for tablet in found:
            show_json(tablet)
    else:
        show_table((*columns[:-1], "partitions"), ([tablet[column] for column in columns] for tablet in found))


@declare(app, "show", "pqbroker tablet show 65536")
def show(tablet: TabletId, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Show a tablet: its generation, its contents, and the pools of each channel by generation."""
    with Web(http) as web:
        found = web.get(f"/v1/tablets/{tablet}", "channels")
    if json:
        show_json(found)
        return
    of = f" of topic {found['topic']}" if found["topic"] is not None else ""
    say(f"tablet {found['id']}, {found['type']}{of}, {found['state']} in cell {found['cell']}")
    say(f"  generation {found['generation']}, blocked up to {found['blocked_generation']}")
    if found["key_count"] is not None:
        say(f"  partitions {', '.join(map(str, found['partitions']))}")
        say(f"  {found['key_count']} keys, {found['size_bytes']} bytes of records")
    for rows in found["row_sets"] or ():
        say(f"  row set {rows['name']}, {rows['rows']} rows")
    columns = ("channel", "holds", "pool", "status", "history", "soft_barrier", "hard_barrier")
    show_table(columns, ([_cell(channel[column]) for column in columns] for channel in found["channels"]))


@declare(app, "keys", "pqbroker tablet keys 65536 --from m --limit 20")
def keys(
    tablet: TabletId,
    first: Annotated[
        str, option("--from", metavar="KEY", help="First key to list, written as this command shows keys.")
    ] = "",
    limit: Annotated[
        int, option("--limit", metavar="COUNT", least=1, most=INT32_MAX, help="Keys to list at most.")
    ] = 100,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """List the keys of a KV tablet, and the blobs of their values."""
    with Web(http, cures=_KEY_CURES) as web:
        found = list(islice(web.items(f"/v1/tablets/{tablet}/keys", "keys", "from", **{"from": first}), limit + 1))
    listed = found[:limit]
    if json:
        for key in listed:
            show_json(key)
        return
    show_table(("key", "bytes", "created", "blobs"), (_key_row(key) for key in listed))
    if len(found) > limit:
        say(f"more with --from {quote(found[limit]['key'])}")


@declare(app, "kv", """pqbroker tablet kv 65536 '{"read": {"key": "i0000000000"}}'""")
def kv(
    tablet: TabletId,
    commands: Annotated[
        list[str], Argument(metavar="COMMAND", help="Commands of the request, each as JSON (docs/inside.md).")
    ],
    generation: Annotated[
        int | None,
        option(
            "--generation",
            metavar="NUMBER",
            least=0,
            help="Change nothing unless this is the tablet's user generation.",
        ),
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Run commands of a KV tablet in one request: read keys; on a broker for tests, change them, all or none."""
    body: dict[str, object] = {"commands": [_command(text) for text in commands]}
    if generation is not None:
        body["generation"] = generation
    with Web(http, cures=_KEY_CURES) as web:
        found = web.post(f"/v1/tablets/{tablet}/commands", body, "result")
    result = found["result"]
    if json:
        show_json(found)
    elif result is None:
        say(f"done in user generation {found['generation']}")
    elif "pairs" in result:
        columns = ("key", "size_bytes", "created", "value")
        show_table(columns, ([pair[column] for column in columns] for pair in result["pairs"]))
        if result["status"] == "overrun":
            say(f"more behind {quote(result['pairs'][-1]['key'])}")
    else:
        say(str(result.get("value", result["status"])) if result["status"] != "nodata" else "there is no such key")


@declare(app, "restart", "pqbroker tablet restart 65536")
def restart(tablet: TabletId, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Restart a tablet, one generation later; its clients look for it and find it again."""
    with Web(http) as web:
        found = web.post(f"/v1/tablets/{tablet}/restart", {}, "channels")
    if json:
        show_json({"id": tablet, "generation": found["generation"]})
    else:
        say(f"tablet {tablet} runs in generation {found['generation']}")


@declare(app, "move", "pqbroker tablet move 65536 --channel 2 --pool big")
def move(
    tablet: TabletId,
    channel: Annotated[
        int, option("--channel", metavar="NUMBER", least=0, help="Number of the channel; records are in 2.")
    ],
    pool: Annotated[
        str | None, option("--pool", metavar="NAME", help="The pool that the channel writes to from now on.")
    ] = None,
    group: Annotated[
        int | None, option(metavar="NUMBER", least=0, is_hidden=True, help="Number of the pool, in version 0.1.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Move a channel of a tablet to another pool and restart the tablet; old blobs stay where they are, readable."""
    if pool is None and group is None:
        raise WrongInput("missing option '--pool'")
    if pool is None:
        tell("--group is now called --pool, and takes the pool's name")
    with Web(http) as web:
        body = {"group": group} if pool is None else {"pool": pool}
        web.post(f"/v1/tablets/{tablet}/channels/{channel}", body, "channels")
        try:
            found = web.post(f"/v1/tablets/{tablet}/restart", {}, "channels")
        except CommandError as error:
            cause = f"channel {channel} moves with the next start of tablet {tablet}, which was not restarted"
            raise CommandError(f"{cause}: {error}") from None
    moved, generation = found["channels"][channel], found["generation"]
    if json:
        number = moved["history"][-1]["pool_number"]
        show_json({"id": tablet, "channel": channel, "pool": moved["pool"], "generation": generation, "group": number})
    else:
        say(f"tablet {tablet} writes channel {channel} to pool {moved['pool']}, from generation {generation} on")
        say(f"blobs smaller than {moved['index_below_bytes']} bytes stay in the index")


def _command(text: str) -> object:
    try:
        return loads(text)
    except ValueError as error:
        raise WrongInput(f"the command {text!r} is no JSON: {error}") from None


def _key_row(key: dict[str, Any]) -> tuple[object, ...]:
    """One blob is named; of a chain the length."""
    blobs = key["blobs"]
    shown = blobs[0] if len(blobs) == 1 else f"{len(blobs)} blobs" if blobs else None
    return key["key"], key["size_bytes"], _time(key["created"]), shown


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().isoformat(timespec="seconds")


def _cell(value: Any) -> object:
    """A part of a channel in few words."""
    if isinstance(value, list):
        return ", ".join(f"{each['pool']} from {each['from_generation']}" for each in value)
    return f"{value['generation']}:{value['step']}" if isinstance(value, dict) else value
