"""`pqbroker tablet`: what a broker of ours stores, seen and moved over its HTTP address."""

from datetime import datetime
from itertools import islice
from json import loads
from shlex import quote
from typing import Annotated, Any

import typer

from pqbroker.broker.cli.command import declare, family
from pqbroker.broker.cli.options import COUNT_MAX, Http, Json
from pqbroker.broker.cli.output import say, show_json, show_table
from pqbroker.broker.cli.refusals import CommandError, WrongInput
from pqbroker.broker.cli.web import DEFAULT_HTTP, Web

app = family("Look at the tablets of a broker of ours, move and restart them.")

TabletId = Annotated[int, typer.Argument(metavar="TABLET", min=0, help="A tablet's id.")]


@declare(app, "list", "pqbroker tablet list")
def list_all(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List tablets: what they are, for which topic, and how often they were started."""
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
    """Show a tablet: its generation, what it holds, and which pool each channel wrote to since which generation."""
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
    for table in found["tables"] or ():
        say(f"  table {table['name']}, {table['rows']} rows")
    columns = ("channel", "holds", "pool", "status", "history", "soft_barrier", "hard_barrier")
    show_table(columns, ([_cell(channel[column]) for column in columns] for channel in found["channels"]))


@declare(app, "keys", "pqbroker tablet keys 65536 --from m --limit 20")
def keys(
    tablet: TabletId,
    first: Annotated[str, typer.Option("--from", metavar="KEY", help="Begin with this key, as keys are shown.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=COUNT_MAX, help="List so many.")] = 100,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """List the keys of a KV tablet with what their values are: bytes in the index, or blobs."""
    with Web(http) as web:
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
        list[str], typer.Argument(metavar="COMMAND", help="Commands of one request, each as JSON (docs/inside.md).")
    ],
    generation: Annotated[
        int | None, typer.Option("--generation", min=0, help="Do nothing unless the tablet's user generation is this.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Run commands of a KV tablet: read a key or a range; on a test broker change keys, all at once or none."""
    body: dict[str, object] = {"commands": [_command(text) for text in commands]}
    if generation is not None:
        body["generation"] = generation
    with Web(http) as web:
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
    """Start a tablet anew, one generation later; its clients look for it and find it again."""
    with Web(http) as web:
        found = web.post(f"/v1/tablets/{tablet}/restart", {}, "channels")
    if json:
        show_json({"id": tablet, "generation": found["generation"]})
    else:
        say(f"tablet {tablet} runs in generation {found['generation']}")


@declare(app, "move", "pqbroker tablet move 65536 --channel 2 --group 1")
def move(
    tablet: TabletId,
    channel: Annotated[int, typer.Option("--channel", min=0, help="Which; records are in 2.")],
    group: Annotated[int, typer.Option("--group", metavar="NUMBER", min=0, help="The blob group, which is a pool.")],
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Let a channel write to another blob group, and restart the tablet so that it does; old blobs stay readable."""
    with Web(http) as web:
        web.post(f"/v1/tablets/{tablet}/channels/{channel}", {"group": group}, "channels")
        try:
            found = web.post(f"/v1/tablets/{tablet}/restart", {}, "channels")
        except CommandError as error:
            told = f"channel {channel} moves with the next start of tablet {tablet}, which was not started anew"
            raise CommandError(f"{told}: {error}") from None
    pool, generation = found["channels"][channel]["pool"], found["generation"]
    small = found["channels"][channel]["index_below_bytes"]
    if json:
        show_json({"id": tablet, "channel": channel, "group": group, "pool": pool, "generation": generation})
    else:
        say(f"tablet {tablet} writes channel {channel} to pool {pool}, from generation {generation} on")
        say(f"blobs smaller than {small} bytes stay in the index")


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
