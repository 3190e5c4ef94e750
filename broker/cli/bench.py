"""`pqbroker bench`: how fast a broker takes records and gives them back, as an ordinary Python client sees it."""

import os
from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.command import declare
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import COUNT_MAX, Broker, Json
from pqbroker.broker.cli.output import show_json, show_table
from pqbroker.broker.cli.records import REQUEST_BYTES_MAX, Acks, Compression

COLUMNS = ("phase", "records", "mb", "seconds", "records_per_s", "mb_per_s", "p50_ms", "p99_ms")


def add_bench(app: typer.Typer) -> None:
    """Declare the command."""
    declare(app, "bench", "pqbroker bench --records 100000 --size 1000")(bench)


def bench(
    records: Annotated[int, typer.Option(min=1, help="How many.")] = 100_000,
    size: Annotated[int, typer.Option(min=1, max=REQUEST_BYTES_MAX, help="Bytes of each value.")] = 1000,
    partitions: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="Of the topic made for it.")] = 1,
    batch: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of a batch, at most.")] = 1 << 17,
    linger: Annotated[int, typer.Option(min=0, metavar="MS", help="How long a batch waits to fill.")] = 5,
    compression: Annotated[Compression, typer.Option(help="Of the batches.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option(help="Who must have a record.")] = Acks.ALL,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the topic there.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Measure writing and reading with one client, in a topic made for it and deleted afterwards.

    The client is part of what is measured: a broker can do more than one Python process asks of it.
    """
    from pqbroker.broker.cli.measuring import Load, measure
    from pqbroker.broker.cli.topic import create_topic, delete_topic

    topic = f"pqbroker-bench-{os.urandom(4).hex()}"
    with Cluster(broker) as cluster:
        create_topic(cluster, topic, partitions, -1, {})
        try:
            cluster.created(topic)
            phases = measure(broker, topic, Load(records, size, batch, linger, compression, acks))
        finally:
            if not keep:
                delete_topic(cluster, topic)
    if json:
        for phase in phases:
            show_json(dict(zip(COLUMNS, phase.row(), strict=True)))
    else:
        show_table(COLUMNS, [phase.row() for phase in phases])
