"""`pqbroker produce`: lines become records."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import Broker, Json, TopicName, assignments
from pqbroker.broker.cli.output import say, show_json
from pqbroker.broker.cli.positions import choose_partitions
from pqbroker.broker.cli.records import Acks, Compression
from pqbroker.broker.cli.refusals import CommandError, WrongInput

STANDARD_INPUT = 0


def add_produce(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "produce", "printf 'k1:one\\nk2:two\\n' | pqbroker produce orders --key-separator :")(produce)


def produce(
    topic: TopicName,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the lines here instead of at standard input.")
    ] = None,
    key_separator: Annotated[str | None, typer.Option(metavar="TEXT", help="What stands before it is the key.")] = None,
    null: Annotated[str | None, typer.Option(metavar="TEXT", help="A value that reads so is null.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="On each record; repeatable.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, metavar="NUMBER", help="Else by the key, or any.")] = None,
    compression: Annotated[Compression, typer.Option(help="Of the batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option(help="Who must have a record: nobody, the leader, all.")] = Acks.ALL,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Write a record for each line of standard input or of a file."""
    from pqbroker.broker.cli.producing import Lines, write_lines

    if key_separator == "":
        raise WrongInput("--key-separator is empty; give what stands after a key, as in --key-separator :")
    headers = [(name, value.encode()) for name, value in assignments("--header", header or [], "source=cli").items()]
    lines = Lines(
        key_separator=None if key_separator is None else key_separator.encode(),
        null=None if null is None else null.encode(),
        headers=headers,
        partition=partition,
    )
    descriptor = STANDARD_INPUT if file is None else _open(file)
    with Cluster(broker) as cluster:
        choose_partitions(cluster.topic(topic), [] if partition is None else [partition])
    begin = time.monotonic()
    written = write_lines(broker, topic, lines, descriptor, compression, acks)
    seconds = round(time.monotonic() - begin, 3)
    if json:
        partitions = [
            {"partition": index, "first": first, "last": last} for index, (first, last) in sorted(written.spans.items())
        ]
        show_json(
            {"topic": topic, "records": written.records, "bytes": written.bytes, "seconds": seconds}
            | {"partitions": partitions}
        )
    else:
        say(f"{written.records} records to {topic} in {seconds:.1f} s")


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
