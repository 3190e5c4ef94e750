"""`pqbroker topic`: create, list, describe, grow and delete topics. Their configs and their trimming stand beside."""

from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster, Topic
from pqbroker.broker.cli.command import declare, family
from pqbroker.broker.cli.confirming import confirm
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.options import (
    COUNT_MAX,
    REPLICATION_FACTOR_MAX,
    Broker,
    Json,
    TopicName,
    TopicNames,
    Yes,
    assignments,
)
from pqbroker.broker.cli.output import say, show_json, show_table
from pqbroker.broker.cli.refusals import WrongInput, check
from pqbroker.broker.cli.topic_config import add_config, described, is_own, tell_no_compaction
from pqbroker.broker.cli.topic_trim import add_trim
from pqbroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pqbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

DECIDED_BY_BROKER = -1
TIMEOUT_MS = 30_000

app = family("Create, look at, change and delete topics.")
CONFIG_EXAMPLE = "retention.ms=3600000"


@declare(app, "create", "pqbroker topic create orders --partitions 4 --config retention.ms=3600000")
def create(
    topics: TopicNames,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=COUNT_MAX, help="How many; else the broker's num.partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, max=REPLICATION_FACTOR_MAX, help="Copies of each; the broker's default.")
    ] = None,
    config: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A config; repeatable.")] = None,
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
            tell_no_compaction(cluster, name, configs)
            if json:
                show_json({"topic": name, "partitions": made})
            else:
                say(f"created topic {name} with {_partitions(made)}")


def create_topic(cluster: Cluster, name: str, count: int, factor: int, configs: dict[str, str]) -> None:
    """Create a topic; CommandError."""
    given = [CreatableTopicConfig(name=each, value=value) for each, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    result = cluster.ask_controller(request, CreateTopicsResponse).topics[0]
    check(result.error_code, f"cannot create topic {name}", result.error_message)


@declare(app, "list", "pqbroker topic list --json")
def list_all(
    internal: Annotated[bool, typer.Option("--internal", help="The cluster's own topics too.")] = False,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """List topics."""
    with Cluster(broker) as cluster:
        found = [topic for _, topic in sorted(cluster.topics().items()) if internal or not topic.is_internal]
    rows = [(topic.name, len(topic.partitions), _replicas(topic)) for topic in found]
    if json:
        for name, partitions, replicas in rows:
            show_json({"topic": name, "partitions": partitions, "replicas": replicas})
    elif rows:
        show_table(("topic", "partitions", "replicas"), rows)
    else:
        say("no topics; `pqbroker topic create TOPIC` makes one")


@declare(app, "describe", "pqbroker topic describe orders")
def describe(topic: TopicName, broker: Broker = DEFAULT_KAFKA, json: Json = False) -> None:
    """Show a topic's partitions and what it is configured to."""
    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        spans = cluster.spans(found)
        configs = {each.name: each.value for each in described(cluster, topic) if is_own(each)}
    partitions = [
        {
            "partition": index, "leader": one.leader, "leader_epoch": one.leader_epoch, "replicas": one.replicas,
            "in_sync": one.isr, "start": spans[index].start, "end": spans[index].end,
            "records": spans[index].end - spans[index].start,
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


@declare(app, "grow", "pqbroker topic grow orders 8")
def grow(
    topic: TopicName,
    partitions: Annotated[
        int, typer.Argument(metavar="COUNT", min=1, max=COUNT_MAX, help="How many it shall have.")
    ],
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Give a topic more partitions; it can never have fewer again."""
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
    """Delete topics with all their records."""
    with Cluster(broker) as cluster:
        for name in topics:
            cluster.topic(name)
        confirm(f"delete {', '.join(topics)} with all records?", yes)
        for name in topics:
            delete_topic(cluster, name)
            if json:
                show_json({"topic": name, "deleted": True})
            else:
                say(f"deleted topic {name}")


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic; CommandError."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    result = cluster.ask_controller(request, DeleteTopicsResponse).responses[0]
    check(result.error_code, f"cannot delete topic {name}", result.error_message)
    cluster.await_deletion(name)


add_config(app)
add_trim(app)


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def _replicas(topic: Topic) -> int:
    return max((len(one.replicas) for one in topic.partitions.values()), default=0)


def _cell(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else value
