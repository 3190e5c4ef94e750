"""`pqbroker group reset`: move the offsets of a group without members."""

from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.groups import UNUSED, Group, Place, commit, find_group
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import Broker, GroupName, Json, complete_topics
from pqbroker.broker.cli.output import say, show_json, show_table
from pqbroker.broker.cli.positions import Position, choose_partitions, parse_position, resolve
from pqbroker.broker.cli.refusals import CommandError, WrongInput

COLUMNS = ("topic", "partition", "before", "offset")


def add_reset(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "reset", "pqbroker group reset billing --topic orders --to 2h --dry-run")(reset)


def reset(
    group: GroupName,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC", autocompletion=complete_topics, help="Repeatable; else all that the group has read."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, metavar="NUMBER", help="Only this one of --topic; repeatable.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="POSITION", help="earliest, latest, an offset, a time, an age (2h).")
    ] = None,
    shift: Annotated[int | None, typer.Option(metavar="COUNT", help="On by so many records; back if negative.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, do nothing.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Move a group's offsets; it must not have members then."""
    if (to is None) == (shift is None):
        raise WrongInput("say where to: one of --to POSITION and --shift COUNT")
    if partition and len(topic or []) != 1:
        raise WrongInput("--partition needs the one --topic it belongs to")
    position = None if to is None else parse_position("--to", to)
    with Cluster(broker) as cluster:
        found = find_group(cluster, group, must_be=not topic or position is None)
        if found.state not in UNUSED and not dry_run:
            raise CommandError(
                f"group {group} is {found.state} with {len(found.members)} members; stop them first, "
                "they would not notice (--dry-run shows what would be set)"
            )
        offsets = _places(cluster, found, topic or [], partition or [], position, shift or 0)
        if not offsets:
            raise CommandError(f"group {group} has read nothing there; name a --topic and give --to")
        if not dry_run:
            commit(cluster, group, offsets)
    rows = [(*place, found.offsets.get(place), offset) for place, offset in offsets.items()]
    if json:
        moved = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        show_json({"group": group, "dry_run": dry_run, "offsets": moved})
        return
    show_table(COLUMNS, rows)
    if dry_run:
        say("nothing was changed: --dry-run")


def _places(
    cluster: Cluster, group: Group, topics: list[str], partitions: list[int], position: Position | None, shift: int
) -> dict[Place, int]:
    """The offset to set in each partition: of the topics named, or of all that the group has read."""
    offsets: dict[Place, int] = {}
    for name in topics or dict.fromkeys(name for name, _ in group.offsets):
        topic = cluster.topic(name)
        read = [index for each, index in group.offsets if each == name and index in topic.partitions]
        chosen = choose_partitions(topic, partitions or ([] if topics else read))
        if position is not None:
            found = resolve(cluster, topic, chosen, position)
        else:
            spans = cluster.spans(topic, [index for index in chosen if (name, index) in group.offsets])
            found = {
                index: min(max(group.offsets[name, index] + shift, span.start), span.end)
                for index, span in spans.items()
            }
        offsets |= {(name, index): offset for index, offset in found.items()}
    return offsets
