"""`pqbroker topic`: create, list, describe, grow and delete topics. Their configs and their trimming stand beside."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.topic_analyze import add_analyze
from pqbroker.cli.commands.topic_clean import add_clean
from pqbroker.cli.commands.topic_configs import add_configs, is_own
from pqbroker.cli.commands.topic_export import add_export
from pqbroker.cli.commands.topic_trim import add_trim
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.kafka.cluster import (
    Cluster,
    OffsetRange,
    Topic,
    TopicPartition,
    leaderless,
    settled,
    tell_leaderless,
)
from pqbroker.cli.kafka.configs import TOPIC, describe_configs
from pqbroker.cli.kafka.figures import read_sizes, read_spans
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.topics import DECIDED_BY_BROKER, TIMEOUT_MS, create_topic, delete_topics
from pqbroker.cli.options import (
    INT16_MAX,
    INT32_MAX,
    Broker,
    Json,
    TopicName,
    TopicNames,
    Yes,
    assignments,
)
from pqbroker.cli.output import say, show_bytes, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput, check
from pqbroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

app = Family("List, create, describe, change and delete topics.")
CONFIG_EXAMPLE = "retention.ms=3600000"
NEW_SERVED_S = 2.0
"""Time in which the leader of a partition that was just made serves it."""


@declare(app, "create", "pqbroker topic create orders --partitions 4 --config retention.ms=3600000")
def create(
    topics: TopicNames,
    partitions: Annotated[
        int | None,
        option(
            "--partitions",
            "-p",
            metavar="COUNT",
            least=1,
            most=INT32_MAX,
            help="Partitions; without it: num.partitions of the broker.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        option(metavar="COUNT", least=1, most=INT16_MAX, help="Replicas; without it: the broker's default."),
    ] = None,
    config: Annotated[
        list[str] | None, option("--config", "-c", metavar="NAME=VALUE", help="Topic config; repeatable.")
    ] = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Create topics."""
    configs = assignments("--config", config or [], CONFIG_EXAMPLE)
    count, factor = partitions or DECIDED_BY_BROKER, replication_factor or DECIDED_BY_BROKER
    with Cluster(broker) as cluster:
        for name in topics:
            create_topic(cluster, name, count, factor, configs)
            made = len(cluster.created(name).partitions)
            if json:
                show_json({"topic": name, "partitions": made})
            else:
                say(f"created topic {name} with {_partitions(made)}")


@declare(app, "list", "pqbroker topic list --json")
def list_all(
    internal: Annotated[bool, option("--internal", help="Include the cluster's own topics.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """List topics with their records and sizes.

    Records are counted by offsets, so a compacted topic seems to have more. The size is that of the largest replicas.
    """
    with Cluster(broker) as cluster:
        found = [topic for _, topic in sorted(cluster.topics().items()) if internal or not topic.is_internal]
        spans, sizes = (read_spans(cluster, found), read_sizes(cluster)) if found else ({}, {})
    records = {place: end - start for place, (start, end) in spans.items()}
    rows = [
        (topic.name, len(topic.partitions), _replicas(topic), _sum_of(topic, records), _sum_of(topic, sizes))
        for topic in found
    ]
    columns = ("topic", "partitions", "replicas", "records", "bytes")
    if json:
        for row in rows:
            show_json(dict(zip(columns, row, strict=True)))
    elif rows:
        cells = [(*row[:3], _known(row[3], str), _known(row[4], show_bytes)) for row in rows]
        show_table((*columns[:4], "size"), cells)
    else:
        say("no topics; `pqbroker topic create TOPIC` makes one")


def _known(figure: int | None, show: Callable[[int], str]) -> str:
    return "-" if figure is None else show(figure)


def _sum_of(topic: Topic, figures: Mapping[TopicPartition, int]) -> int | None:
    """Return the sum over a topic's partitions; None where that of one is unknown."""
    found = [figures.get((topic.name, index)) for index in topic.partitions]
    known = [each for each in found if each is not None]
    return sum(known) if len(known) == len(found) else None


@declare(app, "describe", "pqbroker topic describe orders")
def describe(topic: TopicName, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Show the partitions of a topic and the configs set on it."""
    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        unled = leaderless(found, found.partitions)
        spans = _known_spans(cluster, found, [index for index in found.partitions if index not in unled])
        configs = {each.name: each.value for each in describe_configs(cluster, TOPIC, topic) if is_own(each)}
    partitions = [
        {
            "partition": index, "leader": one.leader, "leader_epoch": one.leader_epoch, "replicas": one.replicas,
            "in_sync": one.isr, **_figures(spans.get(index)),
        }
        for index, one in found.partitions.items()
    ]  # fmt: skip
    if json:
        show_json({"topic": topic, "partitions": partitions, "configs": configs})
        return
    say(f"topic {topic}, {_partitions(len(partitions))}")
    for name, value in configs.items():
        say(f"  {name}={value}")
    columns = ("partition", "leader", "replicas", "in_sync", "start", "end", "records")
    show_table(columns, ([_cell(one[column]) for column in columns] for one in partitions))
    if unled:
        say(tell_leaderless(found, unled))


@declare(app, "grow", "pqbroker topic grow orders 8")
def grow(
    topic: TopicName,
    partitions: Annotated[int, Argument(metavar="COUNT", least=1, most=INT32_MAX, help="New number of partitions.")],
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Add partitions to a topic; their number can never shrink."""
    with Cluster(broker) as cluster:
        before = len(cluster.topic(topic).partitions)
        if partitions <= before:
            raise WrongInput(f"topic {topic} has {_partitions(before)}; give a COUNT above that, topics never shrink")
        asked = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
        result = cluster.ask_controller(request, CreatePartitionsResponse).results[0]
        check(result.error_code, f"cannot grow topic {topic}", result.error_message)
        cluster.created(topic, partitions)
    if json:
        show_json({"topic": topic, "partitions": partitions, "before": before})
    else:
        say(f"topic {topic} has {_partitions(partitions)}, {before} before")


@declare(app, "delete", "pqbroker topic delete orders --yes")
def delete(topics: TopicNames, yes: Yes = False, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Delete topics and all their records."""
    with Cluster(broker) as cluster:
        for name in topics:
            cluster.topic(name)
        confirm(f"delete {', '.join(topics)} with all records?", yes)
        for name in delete_topics(cluster, list(dict.fromkeys(topics))):
            if json:
                show_json({"topic": name, "deleted": True})
            else:
                say(f"deleted topic {name}")


add_configs(app)
add_analyze(app)
add_export(app)
add_trim(app)
add_clean(app)


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def _known_spans(cluster: Cluster, topic: Topic, partitions: Sequence[int]) -> dict[int, OffsetRange]:
    """Return the spans of the partitions that are served; their leaders may not serve them yet if they are new."""
    wanted = {(topic.name, index) for index in partitions}
    found = settled(lambda: read_spans(cluster, [topic]), lambda found: wanted <= found.keys(), NEW_SERVED_S)
    return {index: OffsetRange(*span) for (_, index), span in found.items()}


def _figures(span: OffsetRange | None) -> dict[str, int | None]:
    """None of a partition that nobody leads or serves: what it holds is not known here."""
    if span is None:
        return {"start": None, "end": None, "records": None}
    return {"start": span.start, "end": span.end, "records": span.end - span.start}


def _replicas(topic: Topic) -> int:
    return max((len(one.replicas) for one in topic.partitions.values()), default=0)


def _cell(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else value
