"""`pqbroker group reset`: move the offsets of a group without members."""

from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster, TopicPartition
from pqbroker.cli.kafka.groups import UNUSED, Group, commit, find_group
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.positions import Position, choose_partitions, parse_position, resolve
from pqbroker.cli.options import Broker, GroupName, Json, complete_topics
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import CommandError, WrongInput

COLUMNS = ("topic", "partition", "before", "offset")


def add_reset(app: Family) -> None:
    """Declare the command."""
    declare(app, "reset", "pqbroker group reset billing --topic orders --to 2h --dry-run")(reset)


def reset(
    group: GroupName,
    topic: Annotated[
        list[str] | None,
        option(metavar="TOPIC", complete=complete_topics, help="Topic; repeatable; without it: all of the group."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        option(least=0, metavar="NUMBER", help="Partition of --topic; repeatable; without it: all."),
    ] = None,
    to: Annotated[
        str | None,
        option(metavar="POSITION", help="New position: earliest, latest, an offset, a time, an age (2h)."),
    ] = None,
    shift: Annotated[int | None, option(metavar="COUNT", help="Records to move forward; negative: back.")] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show the new offsets and change nothing.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Move the offsets of a consumer group without members."""
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
        offsets = _partitions(cluster, found, topic or [], partition or [], position, shift or 0)
        if not offsets:
            raise CommandError(f"group {group} has read nothing there; name a --topic and give --to")
        if not dry_run:
            commit(cluster, group, offsets)
    rows = [(*partition, found.offsets.get(partition), offset) for partition, offset in offsets.items()]
    if json:
        moved = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        show_json({"group": group, "dry_run": dry_run, "offsets": moved})
        return
    show_table(COLUMNS, rows)
    if dry_run:
        say("nothing was changed: --dry-run")


def _partitions(
    cluster: Cluster, group: Group, topics: list[str], partitions: list[int], position: Position | None, shift: int
) -> dict[TopicPartition, int]:
    """The offset to set in each partition: of the topics named, or of all that the group has read."""
    offsets: dict[TopicPartition, int] = {}
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
