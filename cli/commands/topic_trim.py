"""`pqbroker topic trim`: give up the oldest records (DeleteRecords)."""

from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.kafka.cluster import Cluster, Topic
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.positions import choose_partitions, parse_position, resolve
from pqbroker.cli.options import Broker, Json, TopicName, Yes
from pqbroker.cli.output import show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import CommandError, check
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TIMEOUT_MS = 30_000


def add_trim(app: Family) -> None:
    """Declare the command."""
    declare(app, "trim", "pqbroker topic trim orders --before 7d --yes")(trim)


def trim(
    topic: TopicName,
    before: Annotated[
        str, option(metavar="POSITION", help="First position to keep: end, an offset, a time, an age (7d).")
    ],
    partition: Annotated[
        list[int] | None, option(least=0, metavar="NUMBER", help="Partition to trim; repeatable; without it: all.")
    ] = None,
    yes: Yes = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Delete the records of a topic before an offset or a time."""
    position = parse_position("--before", before)
    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        offsets = resolve(cluster, found, choose_partitions(found, partition or []), position)
        starts = {index: span.start for index, span in cluster.spans(found, offsets).items()}
        count = sum(max(0, offset - starts[index]) for index, offset in offsets.items())
        confirm(f"delete up to {count} records of {topic}?", yes)
        trimmed = _delete_records(cluster, found, offsets)
    rows = [(index, starts[index], trimmed[index], trimmed[index] - starts[index]) for index in sorted(trimmed)]
    columns = ("partition", "before", "start", "deleted")
    if json:
        show_json({"topic": topic, "partitions": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        show_table(columns, rows)


def _delete_records(cluster: Cluster, topic: Topic, offsets: dict[int, int]) -> dict[int, int]:
    """Return by partition the offset at which its records begin afterwards."""
    found: dict[int, int] = {}
    for leader, indices in cluster.by_leader(topic, offsets).items():
        asked = [DeleteRecordsPartition(partition_index=index, offset=offsets[index]) for index in indices]
        topics = [DeleteRecordsTopic(name=topic.name, partitions=asked)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        for each in cluster.ask(request, DeleteRecordsResponse, leader).topics[0].partitions:
            if each.error_code is ErrorCode.POLICY_VIOLATION:
                _check_policy(cluster, topic)
            check(each.error_code, f"cannot trim {topic.name}-{each.partition_index}")
            found[each.partition_index] = each.low_watermark
    return found


def _check_policy(cluster: Cluster, topic: Topic) -> None:
    """CommandError where the topic's policy is why its records cannot be deleted from the front."""
    policy = cluster.config_of(topic.name, "cleanup.policy") or "delete"
    if "delete" not in policy:
        raise CommandError(
            f"cannot trim {topic.name}: its cleanup.policy is {policy}; delete a key by a record with the key and "
            "no value, or set cleanup.policy=compact,delete"
        )
