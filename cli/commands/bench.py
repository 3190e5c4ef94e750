"""`pqbroker bench`: how fast a broker takes records and gives them back, as an ordinary Python client sees it."""

import os
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.topics import create_topic, delete_topic
from pqbroker.cli.notices import tell
from pqbroker.cli.options import INT32_MAX, Broker, Json
from pqbroker.cli.output import show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.records.client import REQUEST_BYTES_MAX, Acks, Compression
from pqbroker.cli.refusals import CommandError

COLUMNS = ("phase", "records", "mb", "seconds", "records_per_s", "mb_per_s", "p50_ms", "p99_ms")


app = Family()


@declare(app, "bench", "pqbroker bench --records 100000 --size 1000")
def bench(
    records: Annotated[int, option(metavar="COUNT", least=1, help="Records to write and read.")] = 100_000,
    size: Annotated[int, option(metavar="BYTES", least=1, most=REQUEST_BYTES_MAX, help="Bytes of each value.")] = 1000,
    partitions: Annotated[
        int, option(metavar="COUNT", least=1, most=INT32_MAX, help="Partitions of the created topic.")
    ] = 1,
    batch: Annotated[int, option(least=1, metavar="BYTES", help="Bytes of a batch at most.")] = 1 << 17,
    linger: Annotated[int, option(least=0, metavar="MS", help="Milliseconds that a batch waits to fill.")] = 5,
    compression: Annotated[Compression, option(help="Compression of the batches.")] = Compression.NONE,
    acks: Annotated[Acks, option(help="Replicas that must acknowledge a record: none, the leader, all.")] = Acks.ALL,
    keep: Annotated[bool, option("--keep", help="Keep the topic afterwards.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Measure writing and reading with one Python client.

    The topic is created for it and deleted afterwards. The result includes the client: one Python process cannot use
    all that a broker can do.
    """
    from pqbroker.cli.records.measuring import Workload, measure

    topic = f"pqbroker-bench-{os.urandom(4).hex()}"
    with Cluster(broker) as cluster:
        create_topic(cluster, topic, partitions, -1, {})
        try:
            cluster.created(topic)
            phases = measure(cluster.brokers, topic, Workload(records, size, batch, linger, compression, acks))
        except BaseException:
            if not keep:
                _delete_if_possible(cluster, topic)
            raise
        if not keep:
            delete_topic(cluster, topic)
    if json:
        for phase in phases:
            show_json(dict(zip(COLUMNS, phase.row(), strict=True)))
    else:
        show_table(COLUMNS, [phase.row() for phase in phases])


def _delete_if_possible(cluster: Cluster, topic: str) -> None:
    """Delete the topic of a measurement that failed; the failure, which the caller raises, counts more."""
    try:
        delete_topic(cluster, topic)
    except CommandError as refused:
        tell(f"the topic stays: {refused}")
