"""`pqbroker consume`: records become lines."""

from enum import StrEnum
from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import Broker, Json, TopicName, complete_groups
from pqbroker.broker.cli.positions import choose_partitions, parse_position, resolve
from pqbroker.broker.cli.refusals import WrongInput

GROUP_STARTS = {"beginning": "earliest", "end": "latest"}


class Format(StrEnum):
    """What is printed of a record."""

    VALUE = "value"
    KEY = "key"
    JSON = "json"


def add_consume(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "consume", "pqbroker consume orders --from 15m --follow --format json")(consume)


def consume(
    topic: TopicName,
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="beginning, end, an offset, a time, an age (15m).")
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option(min=0, metavar="NUMBER", help="Only this one; repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            autocompletion=complete_groups,
            help="Read as a member of this group: on from its offsets, and commit.",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What is printed of a record.")] = Format.VALUE,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Print a topic's records, up to those that are there now."""
    position = parse_position("--from", start)
    if group is not None and partition:
        raise WrongInput("--group and --partition do not go together: a group divides the partitions itself")
    if group is not None and start not in GROUP_STARTS:
        raise WrongInput(
            f"--from {start} does not go with --group, which goes on at its offsets; beginning or end say where it "
            "starts without any, and `pqbroker group reset` moves them"
        )
    from pqbroker.broker.cli.consuming import Reading, read_group, read_partitions

    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        chosen = choose_partitions(found, partition or [])
        starts = {} if group is not None else resolve(cluster, found, chosen, position)
        ends = None if follow else {index: span.end for index, span in cluster.spans(found, chosen).items()}
    reading = Reading(broker, topic, limit, ends, Format.JSON if json else form)
    if group is None:
        read_partitions(reading, starts)
    else:
        read_group(reading, group, GROUP_STARTS[start])
